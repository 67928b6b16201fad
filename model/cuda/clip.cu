// Clipping by the global norm.
#include "model/cuda/cuda_ops.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/range.h"

namespace stepladder {
namespace {

struct SquaresOfPart {  // sum x^2 over row `row` of x, taken as a matrix whose last row may be short
  float* partials;
  const float* x;
  int64_t n;
  __device__ float operator()(int64_t i, int64_t, int) const { return i < n ? x[i] * x[i] : 0.0F; }
  __device__ void write(int64_t row, float sum) const { partials[row] = sum; }
};

struct SumOfParts {  // sum of parts
  float* out;
  const float* parts;
  __device__ float operator()(int64_t i, int64_t, int) const { return parts[i]; }
  __device__ void write(int64_t, float sum) const { *out = sum; }
};

struct ClipFactor {  // norm = sqrt(sum of parts), factor = min(1, max_norm / (norm + 1e-6)); NaN stays NaN
  float *factor, *norm;
  const float* parts;
  float max_norm;
  __device__ float operator()(int64_t i, int64_t, int) const { return parts[i]; }
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
  const int64_t parts = std::clamp<int64_t>(ceil_div(n, kThreads * kItems), 1, kSquareBlocks);
  check(parts <= partials_.numel(), "sum_of_squares before bind_workspace");
  float* partials = partials_.ptr<float>();
  sum_each_row(stream_.get(), parts, ceil_div(n, parts), SquaresOfPart{partials, x.ptr<float>(), n});
  sum_each_row(stream_.get(), 1, parts, SumOfParts{out.ptr<float>(), partials});
}

void CudaOps::clip_factor(Tensor factor, Tensor norm, Tensor parts, float max_norm) {
  const Range range("clip_factor");
  check(factor.numel() == 1 && norm.numel() == 1, "clip_factor: ", factor, " and ", norm,
        ", must have one element");
  sum_each_row(stream_.get(), 1, parts.numel(),
               ClipFactor{factor.ptr<float>(), norm.ptr<float>(), parts.ptr<float>(), max_norm});
}

}  // namespace stepladder
