// Elementwise ops, one kernel each.
#include "model/cuda/cuda_ops.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/range.h"

namespace stepladder {
namespace {

struct Mul {  // a * b
  __device__ float operator()(const float (&x)[2]) const { return x[0] * x[1]; }
};
struct Affine {  // scale * x + shift
  float scale, shift;
  __device__ float operator()(const float (&x)[1]) const { return scale * x[0] + shift; }
};
struct Square {  // x^2
  __device__ float operator()(const float (&x)[1]) const { return x[0] * x[0]; }
};
struct Cube {  // x^3
  __device__ float operator()(const float (&x)[1]) const { return x[0] * x[0] * x[0]; }
};
struct Tanh {
  __device__ float operator()(const float (&x)[1]) const { return tanhf(x[0]); }
};
struct Sqrt {
  __device__ float operator()(const float (&x)[1]) const { return sqrtf(x[0]); }
};
struct Lerp {  // x + weight * (y - x)
  float weight;
  __device__ float operator()(const float (&x)[2]) const { return x[0] + weight * (x[1] - x[0]); }
};
struct AddCMul {  // x + value * a * b
  float value;
  __device__ float operator()(const float (&x)[3]) const { return x[0] + value * x[1] * x[2]; }
};
struct AddCDiv {  // x + value * a / b
  float value;
  __device__ float operator()(const float (&x)[3]) const { return x[0] + value * x[1] / x[2]; }
};
struct ScaleBy {  // x * factor
  const float* factor;
  __device__ float operator()(const float (&x)[1]) const { return x[0] * *factor; }
};

}  // namespace

int CudaOps::kernel_image() {
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, map_kernel<float, float, Add, 2>));
  return attributes.ptxVersion;
}

void CudaOps::add(Tensor out, Tensor a, Tensor b) {
  const Range range("add");
  map(queue_, "add", out, Add{}, a, b);
}

void CudaOps::mul(Tensor out, Tensor a, Tensor b) {
  const Range range("mul");
  map(queue_, "mul", out, Mul{}, a, b);
}

void CudaOps::affine(Tensor out, Tensor x, float scale, float shift) {
  const Range range("affine");
  map(queue_, "affine", out, Affine{scale, shift}, x);
}

void CudaOps::pow(Tensor out, Tensor x, int exponent) {
  const Range range("pow");
  check(exponent == 2 || exponent == 3, "pow: exponent ", exponent, ", must be 2 or 3");
  if (exponent == 2) {
    map(queue_, "pow", out, Square{}, x);
  } else {
    map(queue_, "pow", out, Cube{}, x);
  }
}

void CudaOps::tanh(Tensor out, Tensor x) {
  const Range range("tanh");
  map(queue_, "tanh", out, Tanh{}, x);
}

void CudaOps::sqrt(Tensor out, Tensor x) {
  const Range range("sqrt");
  map(queue_, "sqrt", out, Sqrt{}, x);
}

void CudaOps::lerp(Tensor x, Tensor y, float weight) {
  const Range range("lerp");
  map(queue_, "lerp", x, Lerp{weight}, x, y);
}

void CudaOps::addcmul(Tensor x, Tensor a, Tensor b, float value) {
  const Range range("addcmul");
  map(queue_, "addcmul", x, AddCMul{value}, x, a, b);
}

void CudaOps::addcdiv(Tensor x, Tensor a, Tensor b, float value) {
  const Range range("addcdiv");
  map(queue_, "addcdiv", x, AddCDiv{value}, x, a, b);
}

void CudaOps::scale_by(Tensor x, Tensor factor) {
  const Range range("scale_by");
  check(factor.numel() == 1, "scale_by: factor ", factor, ", must have one element");
  map(queue_, "scale_by", x, ScaleBy{factor.ptr<float>()}, x);
}

}  // namespace stepladder
