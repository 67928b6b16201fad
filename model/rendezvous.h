// Rendezvous: where the ranks of a job meet over TCP, agree that they are one job, and watch each other.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "model/comm.h"
#include "model/socket.h"

namespace stepladder {

/// This machine's name.
std::string host_name();

/// Properties on which the ranks of a job must agree.
struct Identity {
  std::string source, config, data;  // hash of the sources, the configuration, digest of the tokens
  std::string device = {};  // the UUID of the rank's GPU, which two ranks must not share; "" on the CPU
};

/// Time limits for the ranks, in seconds.
struct RendezvousLimits {
  double meet_s = 20.0;         // until all ranks are there: a fault ends the job within 30 s
  double silence_s = 10.0;      // without a heartbeat
  double step_s = 20.0;         // without progress while all are in a step; or 20 times the longest, if more
  double first_step_s = 300.0;  // step_s for the first step, which searches and records
};

/// A harness in rank 0's place: the ranks meet there. It is not a rank itself, and gets the lines that each
/// rank tells.
struct Harness {
  static constexpr int kRank = -1;  // World::rank of the harness

  std::string hint = {};   // last words of the error where a process does not find the others
  std::string offer = {};  // set by a rank: a text for the harness, see Member

  // The harness alone sets the following fields.
  Socket listening = Socket();  // at the address that the ranks know
  int over = -1;                // a descriptor: once it can be read, the harness stops waiting for the ranks
  /// Called with each line of tell(), from the watching thread.
  std::function<void(int rank, const std::string& line)> on_line = {};
  /// Called for each caller that was rejected, with its address and the reason.
  std::function<void(const std::string& from, const char* why)> on_rejected = {};
};

/// Every rank is connected to the first process: rank 0, or a harness in its place. A thread sends a
/// heartbeat each second and listens, so that a rank that fails, dies (its connection closes without a
/// goodbye) or hangs ends the job on all ranks, whatever their main threads are stuck in.
class Rendezvous {
 public:
  /// Called once, from the watching thread, when the job has failed: must end the process. `reason` names
  /// rank, host and process; `speaks` is set on the one rank that should report it.
  using OnFailure = std::function<void(const std::string& reason, bool speaks)>;

  /// Meets the other ranks; a caller without the job's secret is rejected. Throws InputError for a port in
  /// use and an invalid address; Error naming the rank that did not come, or is of another build,
  /// configuration or data.
  Rendezvous(const World& world, const Identity& identity, OnFailure on_failure,
             const RendezvousLimits& limits = {}, std::optional<Harness> harness = {});
  /// Says goodbye: the other ranks go on, unless they wait for this one.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  const World& world() const { return world_; }
  /// The first process's `bytes`, on every rank. All ranks must call it.
  std::string share(const std::string& bytes);
  /// Checks that this rank's `state` is rank 0's. Throws Error naming `what` where they differ. All ranks
  /// must call it.
  void agree(const std::string& what, const std::string& state);
  /// Whether any rank's `flag` is set. All ranks must call it, and wait here for each other.
  bool any(bool flag);
  /// begin_step() and end_step() bracket a step, whose duration RendezvousLimits bounds.
  void begin_step(int64_t step);
  void end_step();
  /// Notes that this rank got further; called for each micro-batch and collective. It distinguishes a rank
  /// that hangs from ranks that wait for it, and from slow ones.
  void progress() { ++progress_; }
  /// Ends the job on all ranks, except that the caller ends its own process.
  void fail(const std::string& reason);

  /// A rank that has met the first process.
  struct Member {
    int rank = 0;
    std::string host, address, offer;  // address: "10.0.0.7", as the first process sees it
  };
  /// All ranks, as the harness knows them.
  std::vector<Member> members() const;
  /// Sends a line, which may contain tabs, to the harness. The destructor waits until the harness has read
  /// all lines, but 1 s at most.
  void tell(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer;

  void meet_as_first(const Identity& identity);
  void meet(const Identity& identity);
  bool is_first() const { return world_.rank == first_; }
  /// The name of the first process: "rank 0", or "the harness".
  std::string first_name() const;
  std::string hint() const { return harness_ ? harness_->hint : world_.hint_without_launcher(); }
  std::string name(const Peer& peer) const;
  void watch();
  bool receive(Peer& peer);
  void handle(Peer& peer, const std::string& line);
  void answer();
  void check_heartbeats();
  void check_progress();
  void check_departed();
  void broadcast(const std::string& line);
  void lost(const Peer& peer, const std::string& why);
  void end_job(const std::string& reason, bool speaks);
  void leave(const std::string& last_words);

  const World world_;
  const OnFailure on_failure_;
  const RendezvousLimits limits_;
  std::optional<Harness> harness_;
  const int first_;        // rank 0, or the harness
  std::list<Peer> peers_;  // in the first process all others; elsewhere only the first

  std::mutex mutex_;  // guards the following fields, Peer::left, and sending
  std::condition_variable changed_;
  int64_t asked_ = 0, answered_ = 0;  // calls of any()
  int flags_ = 0;                     // flags that rank 0 has received for the current any()
  bool any_ = false, answer_ = false;
  std::deque<std::string> shared_;  // received for share() but not asked for yet, in hex
  bool waits_for_share_ = false;
  bool failed_ = false;
  std::string reason_;

  std::atomic<int64_t> step_ = -1;  // the step that this rank is in; -1: none
  std::atomic<int64_t> last_step_ = -1;
  std::atomic<int64_t> progress_ = 0;
  std::atomic<double> longest_step_s_ = 0.0;
  Clock::time_point step_begin_;

  Clock::time_point moved_;  // when rank 0 last saw any rank get further
  int64_t seen_ = 0;
  int wake_[2] = {-1, -1};  // a pipe that ends the watch
  std::thread watch_;
};

}  // namespace stepladder
