#include <algorithm>

#include "model/cuda/kernels.cuh"
#include "model/cuda/sm_clocks.h"

namespace stepladder {
namespace {

/// counts[sm] = this SM's clock, for every SM that a block lands on.
__global__ void clocks_kernel(int64_t* counts, int slots) {
  await_predecessor();
  unsigned sm = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (sm < static_cast<unsigned>(slots)) counts[sm] = clock64();
}

}  // namespace

SmClocks::SmClocks(Device& device, int multiprocessors)
    : multiprocessors_(multiprocessors), memory_(device.allocate_host(2 * kSlots * sizeof(int64_t))) {}

void SmClocks::start(Queue& queue) {
  std::fill_n(counts(), 2 * kSlots, int64_t{0});
  read(queue, 0);
}

void SmClocks::stop(Queue& queue) {
  read(queue, kSlots);
}

void SmClocks::read(Queue& queue, int offset) {
  // Idle SMs each get a block before any gets a second one.
  launch(queue, clocks_kernel, grid_size(multiprocessors_), 1, 0, counts() + offset, kSlots);
}

std::optional<double> SmClocks::cycles() const {
  double sum = 0.0;
  int seen = 0;
  for (int sm = 0; sm < kSlots; ++sm) {
    const int64_t first = counts()[sm], last = counts()[sm + kSlots];
    if (first == 0 || last == 0) continue;
    sum += static_cast<double>(last - first);
    ++seen;
  }
  return seen > 0 ? std::optional(sum / seen) : std::nullopt;
}

}  // namespace stepladder
