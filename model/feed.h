// Feed: the next batch on its way to the device while this one is trained on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "model/arena.h"
#include "model/config.h"
#include "model/data.h"
#include "model/ops.h"

namespace stepladder {

/// Two page-locked buffers, a thread that fills one while the device reads the other, and a staging tensor on
/// the device, which a batch is copied into while ops run. The thread reads ahead with a copy of the loader,
/// so its batches are the loader's.
class Feed {
 public:
  /// Takes "batch/staged" from the arena; a planning arena gets no thread and no host memory.
  Feed(Ops& ops, Arena& arena, const Config& config);
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  /// The next batch of `data`, in page-locked memory and on its way to the device.
  Batch next(Loader& data);
  /// Starts the copy of the following batch to the device: call it once the current batch's work is queued.
  void send_ahead();
  /// tokens, targets (B,T) = batch, in order with the ops: from the staging tensor if `batch` is next()'s,
  /// else from the host's memory.
  void deliver(Tensor tokens, Tensor targets, const Batch& batch);

 private:
  static constexpr int kSlots = 2;
  int32_t* slot(int i) const;
  void fill(int i);
  void run(const std::stop_token& stop);

  Ops& ops_;
  const int64_t size_;  // B*T
  Tensor staged_;       // (2,B,T): tokens, targets
  std::shared_ptr<void> pinned_;

  // The contents of the slots; used by the calling thread only.
  int current_ = 0;
  bool staged_ahead_ = false;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Loader> ahead_;  // reads the batch for the slot that is not current
  bool wanted_ = false;          // the thread is to fill that slot; until then it owns the slot and ahead_
  std::jthread thread_;          // last: joined before the rest goes
};

}  // namespace stepladder
