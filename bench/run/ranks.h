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

/// A job that runs `process` as each of `devices` ranks on this machine, for Channel::events. The ranks find
/// each other as torchrun's do: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT,
/// a port that was free. They share the machine's cores. Throws Error where no port is free.
Job job_of_ranks(const Job::Process& process, int64_t devices);

/// A job of `process` alone, which starts the `devices` ranks itself, as torchrun does.
Job job_of_command(const Job::Process& process, int64_t devices);

/// A launcher, which starts the ranks here and on other machines.
struct Launcher {
  std::string words;           // "srun --nodes 2", with {devices} for the number of ranks; "" for none
  std::string interface = {};  // where ranks report to: see address_of_interface()
  double meet_s = 25.0;        // for all ranks to connect
};

/// The IPv4 address of `interface`: a network interface's name, or an address of this machine. If empty, the
/// address that this host's name stands for or, where that is a loopback address, the first other one. Throws
/// InputError naming the interfaces that there are.
sockaddr_in address_of_interface(const std::string& interface);

/// The ranks of a job that a launcher starts, here and on other machines, each as `stepladder rank --to
/// ADDRESS` (bench/run/agent.h). This object lets them meet, watches them and receives their events.
class LaunchedRanks {
 public:
  /// Listens at a free port of the launcher's interface. Throws InputError.
  LaunchedRanks(size_t ranks, const Launcher& launcher);
  /// Ends the ranks that still run.
  ~LaunchedRanks();
  LaunchedRanks(const LaunchedRanks&) = delete;
  LaunchedRanks& operator=(const LaunchedRanks&) = delete;

  /// "10.0.0.7:40123", for `stepladder rank --to`.
  std::string address() const;
  /// What a rank must have in its environment as STEPLADDER_JOB_SECRET.
  const std::string& secret() const { return world_.secret; }
  /// Lets the ranks meet; call it once the launcher has started. Each event of rank r is written to
  /// streams[r], as a line.
  void begin(std::vector<Fd> streams);

  /// Each rank's host; "" until all have come.
  std::vector<std::string> hosts() const;
  /// Why the job has failed, beside the ranks' own errors: a rank did not connect, is of another build, or is
  /// gone.
  std::optional<std::string> failure() const;

 private:
  void meet();
  void fail(const std::string& reason);

  World world_;
  const double meet_s_;
  Socket listening_;
  std::vector<Fd> streams_;
  mutable std::mutex mutex_;  // guards hosts_ and failure_
  std::vector<std::string> hosts_;
  std::optional<std::string> failure_;
  Fd over_, wake_;  // a pipe that ends the meeting
  std::optional<Rendezvous> meeting_;
  std::thread meets_;
};

/// The launcher's command, before the rank's. For mpirun, srun and torchrun, adds the options they need: for
/// the number of ranks, for passing the secret on, and for ranks that are no Python scripts. Throws
/// InputError for empty `words`.
std::vector<std::string> launcher_command(const std::string& words, int64_t devices);

/// Throws InputError where the launcher or its interface doesn't exist.
void check_launcher(const Launcher& launcher, int64_t devices);

/// A job whose ranks the launcher starts, each as `stepladder rank` with the options `rank`, and which report
/// to `ranks`.
Job job_of_launcher(const Launcher& launcher, AgentOptions rank, int64_t devices, LaunchedRanks& ranks);

/// The launcher for ranks on this machine that communicate through MPI.
Launcher mpirun_here();
/// Throws InputError where mpirun, which starts ranks on CPUs, is missing or of another MPI than Open MPI.
void check_mpirun(int64_t devices);

}  // namespace stepladder
