#include "model/comm.h"

#include <array>
#include <functional>
#include <string_view>

#include "model/environment.h"
#include "model/number.h"

namespace stepladder {
namespace {

constexpr int kMaxRanks = 65536;

/// Whether srun started this process as a rank. Batch scripts and the shells of interactive steps have a
/// rank's other variables too; only the step's number tells them apart.
bool is_step_of_ranks(const std::string& step) {
  return !step.empty() && step != "4294967291" && step != "4294967290";  // slurm.h: batch, interactive
}

/// Value of the environment variable `name`, an integer from `least` to `most`.
int number(const World& world, const char* name, int least, int most) {
  const std::string text = environment_variable(name);
  const auto value = number_from<int>(text);
  if (!value || *value < least || *value > most)
    throw InputError(cat("the environment variable ", name, " is ",
                         text.empty() ? "missing" : cat("'", text, "'"), ", must be from ", least, " to ",
                         most, world.hint_without_launcher()));
  return *value;
}

/// A port from a hash of the job's name, so that jobs on a machine rarely share one; below the ephemeral
/// ports.
int port_of_job(const std::string& job) {
  constexpr int kFirst = 20000, kPorts = 12000;
  return kFirst + static_cast<int>(std::hash<std::string>{}(job) % kPorts);
}

/// Variables of launchers that are not supported: a process's rank, and the number of ranks where there is
/// such a variable.
constexpr std::pair<const char*, const char*> kOtherLaunchers[] = {
    {"PMI_RANK", "PMI_SIZE"},  // MPICH's and Intel MPI's mpirun, and srun --mpi=pmi2
    {"PMIX_RANK", ""},         // prterun, and srun --mpi=pmix
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    {"MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"},
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},  // jsrun
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {"PALS_RANKID", "PMI_SIZE"},
    {"ALPS_APP_PE", "PMI_SIZE"},  // aprun
    {"HOROVOD_RANK", "HOROVOD_SIZE"},
};

/// Throws InputError where another launcher started this process as one of several: it would train alone.
/// With `by_slurm`, variables that agree with `world` are Slurm's own.
void refuse_other_launchers(World world, bool by_slurm) {
  by_slurm = by_slurm ||
             environment_variable("PMIX_NAMESPACE").starts_with("slurm.");  // set in some interactive steps
  for (const auto& [rank, size] : kOtherLaunchers) {
    const std::string its_rank = environment_variable(rank), its_size = environment_variable(size);
    const bool same = by_slurm && its_rank == std::to_string(world.rank) &&
                      (its_size.empty() || its_size == std::to_string(world.size));
    if (its_rank.empty() || its_size == "1" || same) continue;
    world.launcher_variables = rank;
    throw InputError(
        cat("the environment variable ", rank, " says that this is rank ", its_rank,
            its_size.empty() ? "" : cat(" of ", its_size),
            " of a launcher that is not known here, and each of its processes would train alone: start them "
            "with Open MPI's mpirun, torchrun or srun, or set RANK, WORLD_SIZE and LOCAL_RANK of each",
            world.hint_without_launcher()));
  }
}

/// The first host of a list: "node03" of "node[03-05,9],other".
std::string first_host(std::string_view nodes) {
  const size_t bracket = nodes.find('['), comma = nodes.find(',');
  if (bracket >= comma) return std::string(nodes.substr(0, comma));
  const std::string_view numbers = nodes.substr(bracket + 1);
  return std::string(nodes.substr(0, bracket)) + std::string(numbers.substr(0, numbers.find_first_of(",-]")));
}

}  // namespace

const char* name_of(Collective collective) {
  constexpr std::array kNames = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_max"};
  return kNames.at(static_cast<size_t>(collective));
}

Tensor part_of(const Tensor& x, int rank, int world) {
  check(x.numel() % world == 0, x, " has no ", world, " equal parts");
  return x.view({world, x.numel() / world})[rank];
}

std::string World::hint_without_launcher() const {
  return secret.empty() ? cat("; unset ", launcher_variables, " where there is no launcher") : "";
}

World World::identity_from_environment() {
  World world{.secret = environment_variable("STEPLADDER_JOB_SECRET")};
  const auto read = [&](const char* rank, const char* size, const char* local_rank) {
    world.size = number(world, size, 1, kMaxRanks);
    world.rank = number(world, rank, 0, world.size - 1);
    world.local_rank = number(world, local_rank, 0, world.rank);
  };
  if (!environment_variable("OMPI_COMM_WORLD_SIZE").empty()) {
    world.launcher_variables = "OMPI_COMM_WORLD_SIZE";
    read("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK");
    // Default address and port of rank 0, unless MASTER_ADDR and MASTER_PORT set them below.
    if (number(world, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, world.size) == world.size) world.address = "127.0.0.1";
    world.port = port_of_job(environment_variable("PMIX_NAMESPACE"));
  } else if (!environment_variable("RANK").empty() || !environment_variable("WORLD_SIZE").empty()) {
    read("RANK", "WORLD_SIZE", "LOCAL_RANK");
  } else if (is_step_of_ranks(environment_variable("SLURM_STEP_ID"))) {
    world.launcher_variables = "SLURM_STEP_ID";
    read("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID");
    world.address = first_host(environment_variable("SLURM_STEP_NODELIST").empty()
                                   ? environment_variable("SLURM_NODELIST")
                                   : environment_variable("SLURM_STEP_NODELIST"));
    world.port =
        port_of_job(environment_variable("SLURM_JOB_ID") + "." + environment_variable("SLURM_STEP_ID"));
    refuse_other_launchers(world, /*by_slurm=*/true);
  } else {
    refuse_other_launchers(world, /*by_slurm=*/false);
  }
  return world;
}

int World::device_among(int devices) const {
  if (devices == 1) return 0;
  if (local_rank >= devices)
    throw InputError(cat("rank ", rank, " is number ", local_rank + 1, " on this machine, which has ",
                         devices, " CUDA devices: start one rank for each"));
  return local_rank;
}

World World::from_environment() {
  World world = identity_from_environment();
  if (world.size == 1) return world;
  if (!environment_variable("MASTER_ADDR").empty()) world.address = environment_variable("MASTER_ADDR");
  if (!environment_variable("MASTER_PORT").empty()) {
    // torchrun's own rendezvous keeps MASTER_PORT in use, so take the next port.
    const bool torchrun = !environment_variable("TORCHELASTIC_RUN_ID").empty();
    world.port = number(world, "MASTER_PORT", 1, torchrun ? 65534 : 65535) + (torchrun ? 1 : 0);
  }
  if (world.address.empty())
    throw InputError(cat("the ranks are on several machines: set MASTER_ADDR to the host of rank 0",
                         world.hint_without_launcher()));
  if (world.port == 0)
    throw InputError(
        cat("several ranks need a port to meet at: set MASTER_PORT", world.hint_without_launcher()));
  return world;
}

}  // namespace stepladder
