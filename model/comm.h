// Several ranks of one job: who they are, and what they do together.
#pragma once

#include <string>

#include "model/tensor.h"

namespace stepladder {

/// Operations of all ranks on the tensors of a bucket, each in place. Part r of a tensor is the r-th of
/// `world` equal parts.
enum class Collective {
  all_reduce,      // x = sum of all ranks' x
  reduce_scatter,  // this rank's part = sum of all ranks' x there; the other parts are undefined
  all_gather,      // part r = rank r's part r, for every r
  broadcast,       // x = rank 0's x
  all_max,         // x = the largest of all ranks' x, element by element; f32, none < 0; NaN is the largest
};
/// The name of a collective: "all_reduce", ...
const char* name_of(Collective collective);

/// Part `rank` of x, flat. Throws std::invalid_argument where x has no `world` equal parts.
Tensor part_of(const Tensor& x, int rank, int world);

/// One process of a job; each process has one device.
struct World {
  int rank = 0, size = 1;
  int local_rank = 0;     // among the ranks of this machine: picks the device
  std::string address{};  // where rank 0 listens
  int port = 0;
  std::string secret{};  // the job's secret; callers with another are rejected
  std::string launcher_variables = "RANK and WORLD_SIZE";  // those that gave rank and size

  /// Index of this rank's device among the `devices` CUDA devices that this process sees: 0 where it sees
  /// one, as with srun --gpus-per-task=1, else the local rank. Throws InputError where several are too few.
  int device_among(int devices) const;

  /// For error messages: how to run without a launcher. "" in a job with a secret, which has a launcher.
  std::string hint_without_launcher() const;

  /// The world that the launcher's variables describe: mpirun (OMPI_COMM_WORLD_*), torchrun or the harness
  /// (RANK, WORLD_SIZE, LOCAL_RANK), srun (SLURM_*); a world of 1 where none does. MASTER_ADDR and
  /// MASTER_PORT come first. Without them the address is Slurm's first host, or this machine where all ranks
  /// are on it, and the port is a hash of the launcher's name for the job. STEPLADDER_JOB_SECRET is the
  /// secret. Throws InputError naming a variable that makes no sense, or that is another launcher's.
  static World from_environment();
  /// from_environment() without MASTER_ADDR and MASTER_PORT, for callers that learn elsewhere where rank 0
  /// is.
  static World identity_from_environment();
};

}  // namespace stepladder
