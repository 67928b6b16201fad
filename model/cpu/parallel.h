// Loops of the CPU backend: over threads, and over the lanes of a vector register.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#ifdef _OPENMP
#include <omp.h>
/// Iterations of the next loop are independent, though its operands may be the same array.
#define STEPLADDER_SIMD _Pragma("omp simd")
#else
#define STEPLADDER_SIMD
#endif

namespace stepladder {

inline int max_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// Index of the calling thread inside parallel_for.
inline int thread_index() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

/// body(i) for i in [0,n) on up to `threads` threads. `body` must not throw.
template <class Body>
void parallel_for([[maybe_unused]] int threads, int64_t n, const Body& body) {
#ifdef _OPENMP
  const int team = static_cast<int>(std::min<int64_t>(threads, n));
#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
#endif
  for (int64_t i = 0; i < n; ++i) body(i);
}

/// Sum of f(i) over [0,n), in double.
template <class F>
double sum(int64_t n, F f) {
  double total = 0.0;
#ifdef _OPENMP
#pragma omp simd reduction(+ : total)
#endif
  for (int64_t i = 0; i < n; ++i) total += f(i);
  return total;
}

/// Largest f(i) over [0,n), -inf when empty. NaN is passed over.
template <class F>
float max(int64_t n, F f) {
  float top = -std::numeric_limits<float>::infinity();
#ifdef _OPENMP
#pragma omp simd reduction(max : top)
#endif
  for (int64_t i = 0; i < n; ++i) {
    const float x = f(i);
    top = x > top ? x : top;
  }
  return top;
}

}  // namespace stepladder
