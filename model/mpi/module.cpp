#include "model/mpi/module.h"

#include <mpi.h>

namespace stepladder {
namespace {

constexpr MpiCalls kCalls = {
    .init =
        [](int* rank, int* world) {
          int provided = 0;
          MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
          MPI_Comm_rank(MPI_COMM_WORLD, rank);
          MPI_Comm_size(MPI_COMM_WORLD, world);
        },
    .all_reduce = [](float* x,
                     int n) { MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
    .all_max = [](int32_t* x,
                  int n) { MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_INT32_T, MPI_MAX, MPI_COMM_WORLD); },
    .reduce_scatter = [](float* part, const float* x,
                         int n) { MPI_Reduce_scatter_block(x, part, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
    .all_gather = [](void* x,
                     int n) { MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, x, n, MPI_BYTE, MPI_COMM_WORLD); },
    .broadcast = [](void* x, int n) { MPI_Bcast(x, n, MPI_BYTE, 0, MPI_COMM_WORLD); },
    .finalize = [] { MPI_Finalize(); },
};

}  // namespace
}  // namespace stepladder

extern "C" const stepladder::MpiCalls* stepladder_mpi() {
  return &stepladder::kCalls;
}
