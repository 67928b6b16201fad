// Clipping by the global norm.
#include "model/cuda/cuda_ops.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/range.h"

namespace stepladder {
namespace {

template <class T>
struct SquaresOfPart {  // sum of x^2
  float* partials;
  const T* x;
  __device__ auto row(int64_t) const {
    return [x = x](int64_t i) {
      const float value = load(x + i);
      return value * value;
    };
  }
  __device__ void write(int64_t row, float sum) const { partials[row] = sum; }
};

struct SumOfParts {  // sum of parts
  float* out;
  const float* parts;
  __device__ auto row(int64_t) const {
    return [parts = parts](int64_t i) { return parts[i]; };
  }
  __device__ void write(int64_t, float sum) const { *out = sum; }
};

struct ClipFactor {  // norm = sqrt(sum of parts), factor = min(1, max_norm / (norm + 1e-6)); NaN stays NaN
  float *factor, *norm;
  const float* parts;
  float max_norm;
  __device__ auto row(int64_t) const {
    return [parts = parts](int64_t i) { return parts[i]; };
  }
  __device__ void write(int64_t, float sum) const {
    *norm = sqrtf(sum);
    const float ratio = max_norm / (*norm + 1e-6F);
    *factor = ratio > 1.0F ? 1.0F : ratio;
  }
};

}  // namespace

void CudaOps::sum_of_squares(Tensor out, Tensor x) {
  const Range range("sum_of_squares");
  check(out.numel() == 1, "sum_of_squares: ", out, ", must have one element");
  const int64_t n = x.numel();
  if (n == 0) return zero(out);
  check(partials_.numel() >= kSquareBlocks, "sum_of_squares needs a workspace: call bind_workspace() first");

  // x cut into at most kSquareBlocks parts, then a second pass over their sums.
  const int64_t part = std::max<int64_t>(kThreads * kItems, ceil_div(n, kSquareBlocks));
  const int64_t parts = ceil_div(n, part);
  float* partials = partials_.ptr<float>();
  with_float_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    sum_each_row<T>(stream_.get(), n, part, SquaresOfPart<T>{partials, x.ptr<T>()});
  });
  sum_each_row(stream_.get(), parts, parts, SumOfParts{out.ptr<float>(), partials});
}

void CudaOps::clip_factor(Tensor factor, Tensor norm, Tensor parts, float max_norm) {
  const Range range("clip_factor");
  check(factor.numel() == 1 && norm.numel() == 1, "clip_factor: ", factor, " and ", norm,
        ", must have one element");
  check(parts.numel() > 0, "clip_factor: no parts");
  sum_each_row(stream_.get(), parts.numel(), parts.numel(),
               ClipFactor{factor.ptr<float>(), norm.ptr<float>(), parts.ptr<float>(), max_norm});
}

}  // namespace stepladder
