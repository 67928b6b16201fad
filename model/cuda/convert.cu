// Copies between types, and values from the host.
#include <type_traits>

#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"

namespace stepladder {
namespace {

struct Values {
  float at[WriteValues::kMost];
};

// out[i] = values[i]; one warp
__global__ void __launch_bounds__(32) write_kernel(float* out, int n, const __grid_constant__ Values values) {
  await_predecessor();
  if (threadIdx.x < n) out[threadIdx.x] = values.at[threadIdx.x];
}

}  // namespace

void Copy::run(Cuda& cuda) const {
  with_float_type(dst.dtype, [&](auto to) {
    with_float_type(src.dtype, [&](auto from) {
      using Out = decltype(to);
      using In = decltype(from);
      if constexpr (std::is_same_v<Out, In>) {
        CUDA_CHECK(
            cudaMemcpyAsync(dst.data, src.data, dst.bytes(), cudaMemcpyDeviceToDevice, cuda.stream.get()));
      } else {
        map(cuda.queue, dst.ptr<Out>(), dst.numel(), Pointers<In, 1>{{src.ptr<In>()}}, Unchanged{});
      }
    });
  });
}

void WriteValues::run(Cuda& cuda) const {
  const auto n = static_cast<int>(values.size());
  float* to = dst.ptr<float>();
  if (n == 0) return;
  Values copied{};
  std::copy(values.begin(), values.end(), copied.at);
  launch(cuda.queue, write_kernel, 1, 32, 0, to, n, copied);
}

}  // namespace stepladder
