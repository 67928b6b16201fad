// Starting the ranks of a job, one process for each device: on this machine, or by a launcher on several.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/run/agent.h"
#include "bench/run/child.h"
#include "model/rendezvous.h"

namespace stepladder {

/// `process` for each of `devices` ranks, to be run with Channel::events, as processes of this machine that
/// find each other as torchrun's do: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and
/// MASTER_PORT, a port that was free. They share its cores. Throws Error where no port is free.
Job job_of_ranks(const Job::Process& process, int64_t devices);

/// `process` alone, which starts the ranks itself, as torchrun does; otherwise as job_of_ranks().
Job job_of_command(const Job::Process& process, int64_t devices);

/// What starts the ranks, here and on other machines.
struct Launcher {
  std::string words;           // "srun --nodes 2", {devices} in them for how many ranks; "" for none
  std::string interface = {};  // where they report to: see address_of_interface()
  double meet_s = 25.0;        // for all of them to come
};

/// The IPv4 address of `interface`: a network interface's name, or an address of this machine. By default the
/// one that this host's name stands for; where that is a loopback address, the first that is none. Throws
/// InputError naming the interfaces that there are.
sockaddr_in address_of_interface(const std::string& interface);

/// The ranks of a job that a launcher starts, here and on other machines, each as `stepladder rank --to
/// ADDRESS` (bench/run/agent.h): they meet and are watched here, and tell their events.
class LaunchedRanks {
 public:
  /// Listens at a free port of the launcher's interface. Throws InputError.
  LaunchedRanks(size_t ranks, const Launcher& launcher);
  /// Ends each rank that is left.
  ~LaunchedRanks();
  LaunchedRanks(const LaunchedRanks&) = delete;
  LaunchedRanks& operator=(const LaunchedRanks&) = delete;

  /// "10.0.0.7:40123", for `stepladder rank --to`.
  std::string address() const;
  /// What a rank must have in its environment as STEPLADDER_JOB_SECRET.
  const std::string& secret() const { return world_.secret; }
  /// The launcher has started: what rank r tells is written to streams[r], a line each.
  void begin(std::vector<Fd> streams);

  /// Each rank's host; "" until all have come.
  std::vector<std::string> hosts() const;
  /// Why the job has failed, beside what the ranks tell: one did not come, is of another build, or is gone.
  std::optional<std::string> failure() const;

 private:
  void meet();
  void fail(const std::string& reason);

  World world_;
  const double meet_s_;
  Socket listening_;
  std::vector<Fd> streams_;
  mutable std::mutex mutex_;  // of the next two
  std::vector<std::string> hosts_;
  std::optional<std::string> failure_;
  Fd over_, wake_;  // a pipe that ends the meeting
  std::optional<Rendezvous> meeting_;
  std::thread meets_;
};

/// The words before those of the rank. To mpirun, srun and torchrun is added what they need: how many ranks,
/// to pass the secret on, that it is no Python. Throws InputError where there are none.
std::vector<std::string> launcher_command(const std::string& words, int64_t devices);

/// Throws InputError for a launcher that is not there, or an interface.
void check_launcher(const Launcher& launcher, int64_t devices);

/// A job whose `ranks` the launcher starts, each as `stepladder rank` with `rank`.
Job job_of_launcher(const Launcher& launcher, AgentOptions rank, int64_t devices, LaunchedRanks& ranks);

/// Starts ranks that talk through MPI on this machine.
Launcher mpirun_here();
/// Throws InputError, with what to install, where there is no such mpirun to start `devices` ranks.
void check_mpirun(int64_t devices);

}  // namespace stepladder
