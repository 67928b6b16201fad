// Copies between types, and values from the host.
#include <type_traits>

#include "model/cuda/cuda_ops.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/range.h"

namespace stepladder {
namespace {

constexpr int kMaxValues = 8;
struct Values {
  float at[kMaxValues];
};

// out[i] = values[i]; one warp
__global__ void __launch_bounds__(32) write_kernel(float* out, int n, const __grid_constant__ Values values) {
  await_predecessor();
  if (threadIdx.x < n) out[threadIdx.x] = values.at[threadIdx.x];
}

}  // namespace

void CudaOps::copy(Tensor dst, Tensor src) {
  const Range range("copy");
  check_same_shape("copy", dst, src);
  with_float_type(dst.dtype, [&](auto to) {
    with_float_type(src.dtype, [&](auto from) {
      using Out = decltype(to);
      using In = decltype(from);
      if constexpr (std::is_same_v<Out, In>) {
        CUDA_CHECK(cudaMemcpyAsync(dst.data, src.data, dst.bytes(), cudaMemcpyDeviceToDevice, stream_.get()));
      } else {
        map(queue_, dst.ptr<Out>(), dst.numel(), Operands<In, 1>{{src.ptr<In>()}}, Unchanged{});
      }
    });
  });
}

void CudaOps::write(Tensor dst, std::initializer_list<float> values) {
  const Range range("write");
  const auto n = static_cast<int>(values.size());
  check(n <= kMaxValues && dst.numel() == n, "write: ", n, " values to ", dst);
  float* to = dst.ptr<float>();
  if (n == 0) return;
  Values copied{};
  std::copy(values.begin(), values.end(), copied.at);
  launch(queue_, write_kernel, 1, 32, 0, to, n, copied);
}

}  // namespace stepladder
