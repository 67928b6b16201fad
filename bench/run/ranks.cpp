#include "bench/run/ranks.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "bench/base/text.h"
#include "model/error.h"
#include "model/socket.h"

namespace stepladder {
namespace {

/// What mpirun starts for each rank: its executable, with its events on descriptor 3, which dies with mpirun.
/// How it ended is told here, since mpirun tells it of one rank and in words.
constexpr const char* kRankScript =
    R"(eval "exec 3>\"\$STEPLADDER_EVENTS_$OMPI_COMM_WORLD_RANK\""
setpriv --pdeathsig KILL "$@"
status=$?
echo "{\"event\":\"exit\",\"status\":$status}" >&3
exit $status)";
constexpr std::string_view kDevices = "{devices}";
constexpr double kRankGrace = 3.0;  // seconds

bool is_mpirun(const std::string& program) {
  const std::string name = std::filesystem::path(program).filename();
  return name == "mpirun" || name == "mpiexec" || name == "orterun";
}

/// Throws InputError where an mpirun, which `what` names, is of another MPI: it tells its ranks who they are
/// in variables that are not understood.
void check_open_mpi(const std::string& what, const std::string& version) {
  for (const char* other : {"HYDRA", "MPICH", "Intel(R) MPI", "MVAPICH"})
    if (version.find(other) != version.npos)
      throw InputError(
          cat(what, " is of another MPI (", printable(version.substr(0, version.find('\n')), 100),
              ") than Open MPI, whose mpirun, torchrun and srun are understood: put that first in "
              "PATH"));
}

}  // namespace

Job job_of_ranks(const Job::Process& process, int64_t devices, Starter starter) {
  Job job{.processes = {}, .ranks = static_cast<size_t>(devices), .grace_s = kRankGrace};
  std::vector<std::string> environment = process.environment;
  share_cores(environment, devices);
  environment.push_back("STEPLADDER_JOB_SECRET=" + random_secret());

  if (starter == Starter::command) {
    job.processes.push_back({process.command, environment, process.folder});
    job.launcher = true;
    return job;
  }
  if (starter == Starter::mpirun) {
    std::vector<std::string> all = {"mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"};
    all.insert(all.end(), {"-n", std::to_string(devices), "setpriv", "--pdeathsig", "KILL"});
    all.insert(all.end(), {"sh", "-c", kRankScript, "rank"});
    all.insert(all.end(), process.command.begin(), process.command.end());
    job.processes.push_back({all, environment, process.folder});
    return job;
  }
  const int port = free_port();
  for (int64_t rank = 0; rank < devices; ++rank) {
    auto of_rank = environment;
    of_rank.insert(of_rank.end(),
                   {cat("RANK=", rank), cat("LOCAL_RANK=", rank), cat("WORLD_SIZE=", devices),
                    cat("LOCAL_WORLD_SIZE=", devices), "MASTER_ADDR=127.0.0.1", cat("MASTER_PORT=", port)});
    job.processes.push_back({process.command, of_rank, process.folder});
  }
  return job;
}

std::vector<std::string> launcher_command(const std::string& words, int64_t devices) {
  std::vector<std::string> all = shell_words(words);
  if (all.empty())
    throw InputError("--launcher is empty: name what starts the ranks, such as 'srun --nodes 2'");
  const std::string ranks = std::to_string(devices);
  for (std::string& word : all)
    for (size_t at; (at = word.find(kDevices)) != std::string::npos;)
      word.replace(at, kDevices.size(), ranks);
  const auto has = [&](std::initializer_list<std::string_view> options) {
    return std::ranges::any_of(all, [&](const std::string& word) {
      return std::ranges::any_of(options, [&](std::string_view option) {
        return word == option || word.starts_with(cat(option, "="));
      });
    });
  };
  std::vector<std::string> more;
  const std::string program = std::filesystem::path(all.front()).filename();
  if (is_mpirun(all.front())) {
    more = {"-x", "STEPLADDER_JOB_SECRET"};
    if (!has({"-n", "--n", "-np", "--np", "-c"})) more.insert(more.end(), {"-n", ranks});
  } else if (program == "srun") {
    if (!has({"-n", "--ntasks"})) more = {"--ntasks=" + ranks};
  } else if (program == "torchrun") {
    if (!has({"--no-python", "--no_python"})) more = {"--no_python"};  // which older ones know too
  }
  all.insert(all.begin() + 1, more.begin(), more.end());
  return all;
}

void check_launcher(const Launcher& launcher, int64_t devices) {
  const std::string program = launcher_command(launcher.words, devices).front();
  if (!output_of({"sh", "-c", "command -v \"$0\"", program}))
    throw InputError(cat("--launcher: ", program, " is not here: name a program of PATH, or its file"));
  if (is_mpirun(program))
    check_open_mpi(cat("--launcher: ", program), output_of({program, "--version"}).value_or(""));
  address_of_interface(launcher.interface);
}

Job job_of_launcher(const Launcher& launcher, AgentOptions rank, int64_t devices, Hub& hub) {
  rank.to = hub.address();
  Job::Process process{.command = launcher_command(launcher.words, devices)};
  process.command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  process.command.emplace_back("rank");
  for (std::string& word : rank.arguments()) process.command.push_back(std::move(word));
  process.environment.push_back("STEPLADDER_JOB_SECRET=" + hub.secret());
  for (char** variable = environ; *variable; ++variable)  // which say what the machines of the job are
    if (std::string_view(*variable).starts_with("SLURM_")) process.environment.emplace_back(*variable);
  Job job{
      .processes = {process}, .ranks = static_cast<size_t>(devices), .launcher = true, .grace_s = kRankGrace};
  job.started = [&hub](std::vector<Fd> streams) { hub.begin(std::move(streams)); };
  return job;
}

void check_mpirun(int64_t devices) {
  const auto answer = output_of({"mpirun", "--version"});
  if (!answer)
    throw InputError(
        cat("--devices ", devices,
            ": ranks on the CPU are started by mpirun, which is not here: apt-get install openmpi-bin"));
  check_open_mpi(cat("--devices ", devices, ": mpirun, which starts ranks on the CPU,"), *answer);
}

}  // namespace stepladder
