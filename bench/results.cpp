#include "bench/results.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <type_traits>

#include "bench/ladder.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr Status kStatuses[] = {Status::ok,       Status::oom,   Status::unsupported,
                                Status::diverged, Status::crash, Status::timeout};
constexpr int kMaxDepth = 32;

// ---- each struct's fields, once for both directions ----------------------------------------------------------

template <class Archive, class T>
concept Holds = std::same_as<std::remove_const_t<T>, Archive>;

template <class A>
void fields(A& a, Holds<Step> auto& x) {
  a("step", x.step), a("warmup", x.warmup), a("step_ms", x.step_ms), a("device_ms", x.device_ms);
  a("loss", x.loss), a("grad_norm", x.grad_norm), a("lr", x.lr);
}

template <class A>
void fields(A& a, Holds<Memory> auto& x) {
  a("live_peak", x.live_peak), a("reserved_peak", x.reserved_peak), a("process_peak", x.process_peak);
  a("by_name", x.by_name);
}

template <class A>
void fields(A& a, Holds<Summary> auto& x) {
  a("median_step_ms", x.median_step_ms), a("p10_step_ms", x.p10_step_ms), a("p90_step_ms", x.p90_step_ms);
  a("first_step_ms", x.first_step_ms), a("startup_ms", x.startup_ms), a("warmup_steps", x.warmup_steps);
  a("tokens_per_second", x.tokens_per_second), a("mfu_nanogpt", x.mfu_nanogpt), a("mfu_llmc", x.mfu_llmc);
  a("memory_bytes", x.memory);
}
