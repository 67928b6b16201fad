// Where the ranks of a job on several machines report to the harness, whatever launcher starts them.
#pragma once

#include <chrono>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "model/socket.h"

namespace stepladder {

/// Each rank is started as `stepladder rank --to ADDRESS COMMAND...` (bench/run/agent.h), which connects
/// here. Both sides send lines, fields parted by tabs:
///
///   rank     hello version secret rank size port host                  port: free where the rank is
///   harness  go address port local_size                                once all are here: where rank 0 is
///   rank     >LINE                                                     an event
///   rank     bye status, or killed signal                              how the rank ended
///   harness  ack                                                       all of it has arrived
///   both     beat                                                      each second
namespace hub {
inline constexpr const char* kHello = "stepladder-rank 1";
inline constexpr size_t kMaxHello = 512;     // bytes, before it is known who calls
inline constexpr size_t kMaxLine = 2 << 20;  // bytes, after
inline constexpr double kHello_s = 5.0;      // for a caller to say who it is
inline constexpr double kSilence_s = 10.0;   // without a sign of life
inline constexpr double kBeat_s = 1.0;
}  // namespace hub

/// The IPv4 address of `interface`: a network interface's name, or an address of this machine. By default the
/// one that this host's name stands for; where that is a loopback address, the first that is none. Throws
/// InputError naming the interfaces that there are.
sockaddr_in address_of_interface(const std::string& interface);

class Hub {
 public:
  /// Listens at a free port of `interface`. All `ranks` must have come `meet_s` seconds after begin(). Throws
  /// InputError.
  Hub(size_t ranks, const std::string& interface, double meet_s);
  /// Hangs up, which ends each rank that is left.
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  /// "10.0.0.7:40123", for `stepladder rank --to`.
  std::string address() const;
  /// What a rank must have in its environment as STEPLADDER_JOB_SECRET.
  const std::string& secret() const { return secret_; }
  /// The launcher has started: what rank r tells is written to streams[r], a line each. A rank that is
  /// silent, comes twice, or not at all tells an error and an exit there, as if it had itself.
  void begin(std::vector<Fd> streams);

  /// Of each rank; "" of one that has not come.
  std::vector<std::string> hosts() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Caller;
  struct Agent;

  void watch();
  void take_callers();
  bool hear(Caller& caller);
  void send_away(const Caller& caller, const char* why);
  void admit(Caller& caller, const std::vector<std::string>& fields);
  void go();
  bool hear(Agent& agent);
  void handle(Agent& agent, const std::string& line);
  void look_for_the_silent();
  void look_for_the_missing();
  void fail(size_t rank, const std::string& reason);

  const size_t ranks_;
  const double meet_s_;
  const std::string secret_;
  sockaddr_in address_;
  Socket listening_;
  std::vector<Fd> streams_;
  std::list<Caller> callers_;  // of whom nothing is known yet
  std::list<Agent> agents_;
  mutable std::mutex mutex_;  // of hosts_
  std::vector<std::string> hosts_;
  Clock::time_point meet_until_;
  int strangers_ = 0;
  bool failed_ = false;
  int wake_[2] = {-1, -1};  // a pipe that ends the watch
  std::thread watch_;
};

}  // namespace stepladder
