// Elementwise ops, one kernel each.
#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"

namespace stepladder {
namespace {

struct MulFunctor {  // a * b
  __device__ float operator()(const float (&x)[2]) const { return x[0] * x[1]; }
};
struct AffineFunctor {  // scale * x + shift
  float scale, shift;
  __device__ float operator()(const float (&x)[1]) const { return scale * x[0] + shift; }
};
struct Square {  // x^2
  __device__ float operator()(const float (&x)[1]) const { return x[0] * x[0]; }
};
struct Cube {  // x^3
  __device__ float operator()(const float (&x)[1]) const { return x[0] * x[0] * x[0]; }
};
struct TanhFunctor {
  __device__ float operator()(const float (&x)[1]) const { return tanhf(x[0]); }
};
struct SqrtFunctor {
  __device__ float operator()(const float (&x)[1]) const { return sqrtf(x[0]); }
};
struct LerpFunctor {  // x + weight * (y - x)
  float weight;
  __device__ float operator()(const float (&x)[2]) const { return x[0] + weight * (x[1] - x[0]); }
};
struct AddCMulFunctor {  // x + value * a * b
  float value;
  __device__ float operator()(const float (&x)[3]) const { return x[0] + value * x[1] * x[2]; }
};
struct AddCDivFunctor {  // x + value * a / b
  float value;
  __device__ float operator()(const float (&x)[3]) const { return x[0] + value * x[1] / x[2]; }
};
struct ScaleByFunctor {  // x * factor
  const float* factor;
  __device__ float operator()(const float (&x)[1]) const { return x[0] * *factor; }
};

}  // namespace

int Cuda::kernel_image() {
  return attributes_of(map_kernel<float, float, AddFunctor, 2>).ptxVersion;
}

void Add::run(Cuda& cuda) const {
  map(cuda.queue, out, AddFunctor{}, a, b);
}

void Mul::run(Cuda& cuda) const {
  map(cuda.queue, out, MulFunctor{}, a, b);
}

void Affine::run(Cuda& cuda) const {
  map(cuda.queue, out, AffineFunctor{scale, shift}, x);
}

void Pow::run(Cuda& cuda) const {
  if (exponent == 2) {
    map(cuda.queue, out, Square{}, x);
  } else {
    map(cuda.queue, out, Cube{}, x);
  }
}

void Tanh::run(Cuda& cuda) const {
  map(cuda.queue, out, TanhFunctor{}, x);
}

void Sqrt::run(Cuda& cuda) const {
  map(cuda.queue, out, SqrtFunctor{}, x);
}

void Lerp::run(Cuda& cuda) const {
  map(cuda.queue, x, LerpFunctor{weight}, x, y);
}

void AddCMul::run(Cuda& cuda) const {
  map(cuda.queue, x, AddCMulFunctor{value}, x, a, b);
}

void AddCDiv::run(Cuda& cuda) const {
  map(cuda.queue, x, AddCDivFunctor{value}, x, a, b);
}

void ScaleBy::run(Cuda& cuda) const {
  map(cuda.queue, x, ScaleByFunctor{factor.ptr<float>()}, x);
}

}  // namespace stepladder
