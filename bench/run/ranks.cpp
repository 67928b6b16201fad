#include "bench/run/ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "bench/base/text.h"
#include "bench/run/machine.h"
#include "bench/run/placeholders.h"
#include "model/error.h"
#include "model/socket.h"

namespace stepladder {
namespace {

constexpr double kRankGrace = 3.0;  // seconds
constexpr int kMostTold = 5;        // callers sent away that the user is told of

bool is_mpirun(const std::string& program) {
  const std::string name = std::filesystem::path(program).filename();
  return name == "mpirun" || name == "mpiexec" || name == "orterun";
}

/// Checks that the mpirun that `what` names is Open MPI's: we can't read the variables by which another MPI
/// tells its ranks who they are. Throws InputError.
void check_open_mpi(const std::string& what, const std::string& version) {
  for (const char* other : {"HYDRA", "MPICH", "Intel(R) MPI", "MVAPICH"})
    if (version.find(other) != version.npos)
      throw InputError(
          cat(what, " is of another MPI (", printable(version.substr(0, version.find('\n')), 100),
              ") than Open MPI, whose mpirun, torchrun and srun are understood: put that first in "
              "PATH"));
}

/// `process` with the secret of a new job, and its share of the cores.
Job::Process of_one_job(Job::Process process, int64_t processes) {
  share_cores(process.environment, processes);
  process.environment.push_back("STEPLADDER_JOB_SECRET=" + random_secret());
  return process;
}

struct Interface {
  std::string name;
  sockaddr_in address;
};

std::vector<Interface> interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(first, ::freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* one = first; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
    Interface& interface = all.emplace_back(Interface{one->ifa_name, {}});
    std::memcpy(&interface.address, one->ifa_addr, sizeof interface.address);
    interface.address.sin_port = 0;
  }
  return all;
}

bool same(const sockaddr_in& a, const sockaddr_in& b) {
  return a.sin_addr.s_addr == b.sin_addr.s_addr;
}

}  // namespace

sockaddr_in address_of_interface(const std::string& interface) {
  const std::vector<Interface> all = interfaces();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (interface.empty()) {
    try {
      address = resolve(host_name(), 0);
    } catch (const InputError&) {  // the host's name has no address
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    const auto is_it = [&](const Interface& one) { return same(one.address, address); };
    if (!is_loopback(address) && std::ranges::any_of(all, is_it)) return address;
    const auto outward =
        std::ranges::find_if(all, [](const Interface& one) { return !is_loopback(one.address); });
    if (outward != all.end()) return outward->address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  const bool numeric = ::inet_pton(AF_INET, interface.c_str(), &address.sin_addr) == 1;
  std::vector<std::string> names;
  for (const Interface& one : all) {
    if (one.name == interface || (numeric && same(one.address, address))) return one.address;
    names.push_back(cat(one.name, " (", address_text(one.address), ")"));
  }
  throw InputError(cat("--interface ", interface, ": no network interface or IPv4 address of this machine",
                       names.empty() ? "" : cat("; there are ", join(names, ", "))));
}

LaunchedRanks::LaunchedRanks(size_t ranks, const Launcher& launcher)
    : world_{.rank = Harness::kRank, .size = static_cast<int>(ranks), .secret = random_secret()},
      meet_s_(launcher.meet_s),
      hosts_(ranks) {
  const sockaddr_in address = address_of_interface(launcher.interface);
  listening_ = listen_at(address);
  if (!listening_.open())
    throw InputError(cat("no rank can report to ", address_text(address), " (", std::strerror(errno),
                         "): --interface names another network"));
  world_.address = address_text(address);
  world_.port = port_of(listening_);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(cat("cannot make a pipe: ", std::strerror(errno)));
  over_ = Fd(ends[0]);
  wake_ = Fd(ends[1]);
}

LaunchedRanks::~LaunchedRanks() {
  wake_.close();
  if (meets_.joinable()) meets_.join();
  if (meeting_) meeting_->fail("the job is over");
}

std::string LaunchedRanks::address() const {
  return cat(world_.address, ":", world_.port);
}

void LaunchedRanks::begin(std::vector<Fd> streams) {
  check(streams.size() == hosts_.size(), "a stream for each rank");
  streams_ = std::move(streams);
  meets_ = std::thread([this] { meet(); });
}

/// The body of the thread meets_, whose signal mask the rendezvous's thread inherits.
void LaunchedRanks::meet() {
  sigset_t pipes;
  sigemptyset(&pipes);
  sigaddset(&pipes, SIGPIPE);  // from a stream whose reader is gone
  ::pthread_sigmask(SIG_BLOCK, &pipes, nullptr);
  Harness harness{.hint = "; --launch-timeout allows more", .listening = std::move(listening_)};
  harness.over = over_.get();
  harness.on_line = [this](int rank, const std::string& line) {
    write_all(streams_[static_cast<size_t>(rank)].get(), line + "\n");
  };
  harness.on_rejected = [told = 0](const std::string& from, const char* why) mutable {
    if (++told > kMostTold) return;
    notice(cat("sent away ", from, ", which ", why, told == kMostTold ? "; more of them are not told" : ""));
  };
  try {
    meeting_.emplace(
        world_, Identity{version(), "", ""}, [this](const std::string& reason, bool) { fail(reason); },
        RendezvousLimits{.meet_s = meet_s_}, std::move(harness));
    const auto members = meeting_->members();
    std::string all = cat(members[0].address, '\t', members[0].offer);
    const std::scoped_lock lock(mutex_);
    for (size_t rank = 0; rank < members.size(); ++rank) all += cat('\t', hosts_[rank] = members[rank].host);
    meeting_->share(all);
  } catch (const Error& e) {
    fail(e.what());
  }
}

void LaunchedRanks::fail(const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  if (!failure_) failure_ = reason;
}

std::vector<std::string> LaunchedRanks::hosts() const {
  const std::scoped_lock lock(mutex_);
  return hosts_;
}

std::optional<std::string> LaunchedRanks::failure() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

Job job_of_ranks(const Job::Process& process, int64_t devices) {
  Job job{.processes = {}, .ranks = static_cast<size_t>(devices), .grace_s = kRankGrace};
  const Job::Process common = of_one_job(process, devices);
  const int port = free_port();
  for (int64_t rank = 0; rank < devices; ++rank) {
    Job::Process& one = job.processes.emplace_back(common);
    one.environment.insert(
        one.environment.end(),
        {cat("RANK=", rank), cat("LOCAL_RANK=", rank), cat("WORLD_SIZE=", devices),
         cat("LOCAL_WORLD_SIZE=", devices), "MASTER_ADDR=127.0.0.1", cat("MASTER_PORT=", port)});
  }
  return job;
}

Job job_of_command(const Job::Process& process, int64_t devices) {
  return {.processes = {of_one_job(process, devices)},
          .ranks = static_cast<size_t>(devices),
          .launcher = true,
          .grace_s = kRankGrace};
}

std::vector<std::string> launcher_command(const std::string& words, int64_t devices) {
  std::vector<std::string> all = shell_words(words);
  if (all.empty())
    throw InputError("--launcher is empty: name what starts the ranks, such as 'srun --nodes 2'");
  const std::string ranks = std::to_string(devices);
  for (std::string& word : all) word = filled(word, {{"devices", ranks}});
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
    if (!has({"-n", "--n", "-np", "--np", "-c"})) append(more, {"-n", ranks});
  } else if (program == "srun") {
    if (!has({"-n", "--ntasks"})) more = {"--ntasks=" + ranks};
  } else if (program == "torchrun") {
    if (!has({"--no-python", "--no_python"})) more = {"--no_python"};  // older torchruns know it too
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

Job job_of_launcher(const Launcher& launcher, AgentOptions rank, int64_t devices, LaunchedRanks& ranks) {
  rank.to = ranks.address();
  Job::Process process{.command = launcher_command(launcher.words, devices)};
  process.command.push_back(
      std::filesystem::read_symlink("/proc/self/exe").replace_filename("stepladder").string());
  process.command.emplace_back("rank");
  for (std::string& word : rank.arguments()) process.command.push_back(std::move(word));
  process.environment.push_back("STEPLADDER_JOB_SECRET=" + ranks.secret());
  for (char** variable = environ; *variable; ++variable)  // describe the job's machines
    if (std::string_view(*variable).starts_with("SLURM_")) process.environment.emplace_back(*variable);
  Job job{
      .processes = {process}, .ranks = static_cast<size_t>(devices), .launcher = true, .grace_s = kRankGrace};
  job.started = [&ranks](std::vector<Fd> streams) { ranks.begin(std::move(streams)); };
  return job;
}

Launcher mpirun_here() {
  return {.words = "mpirun --oversubscribe --allow-run-as-root --bind-to none", .interface = "lo"};
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
