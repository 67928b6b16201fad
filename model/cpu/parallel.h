// Parallel loops of the CPU backend: over threads, and over the lanes of a vector register.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#ifdef STEPLADDER_OPENMP_SIMD
/// Iterations of the next loop are independent, though its operands may be the same array.
#define STEPLADDER_SIMD _Pragma("omp simd")
#else
#define STEPLADDER_SIMD
#endif

namespace stepladder {

/// Cores that this process may run on.
int usable_cores();

/// Threads worth using: OMP_NUM_THREADS where it is set, else a thread for each usable core.
int max_threads();

/// Index of the calling thread inside parallel_for, below its `threads`; 0 outside.
int thread_index();

/// Calls call(body, i) for i in [0,n), as parallel_for does.
void run_parallel(int threads, int64_t n, void (*call)(const void* body, int64_t i), const void* body);

/// Calls body(i) for i in [0,n) on up to `threads` threads, each i on whichever is free. `body` must not
/// throw. A thread without work sleeps, and no loop waits for a thread that has not started on it.
template <class Body>
void parallel_for(int threads, int64_t n, const Body& body) {
  if (threads > 1 && n > 1)
    return run_parallel(
        threads, n, [](const void* b, int64_t i) { (*static_cast<const Body*>(b))(i); }, &body);
  for (int64_t i = 0; i < n; ++i) body(i);
}

/// Sum of f(i) over [0,n), in double.
template <class F>
double sum(int64_t n, F f) {
  double total = 0.0;
#ifdef STEPLADDER_OPENMP_SIMD
#pragma omp simd reduction(+ : total)
#endif
  for (int64_t i = 0; i < n; ++i) total += f(i);
  return total;
}

/// Largest f(i) over [0,n), -inf when empty. Ignores NaN.
template <class F>
float max(int64_t n, F f) {
  float top = -std::numeric_limits<float>::infinity();
#ifdef STEPLADDER_OPENMP_SIMD
#pragma omp simd reduction(max : top)
#endif
  for (int64_t i = 0; i < n; ++i) {
    const float x = f(i);
    top = x > top ? x : top;
  }
  return top;
}

}  // namespace stepladder
