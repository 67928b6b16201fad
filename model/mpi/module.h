// The functions of libstepladder_mpi.so, a library of its own so that only ranks that talk through MPI need
// MPI.
#pragma once

#include <cstdint>

namespace stepladder {

/// Collectives over all ranks of MPI_COMM_WORLD. Errors end the job, as is MPI's default.
struct MpiCalls {
  void (*init)(int* rank, int* world);
  void (*all_reduce)(float* x, int n);                         // x = sum of x
  void (*all_max)(int32_t* x, int n);                          // x = largest x
  void (*reduce_scatter)(float* part, const float* x, int n);  // part (n) = this rank's part of the sum of x
  void (*all_gather)(void* x, int n);                          // x = parts of n bytes
  void (*broadcast)(void* x, int n);                           // x (n bytes) = rank 0's x
  void (*finalize)();
};

}  // namespace stepladder

/// The module's one symbol.
extern "C" const stepladder::MpiCalls* stepladder_mpi();
