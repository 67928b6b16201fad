#include "model/feed.h"

#include <algorithm>
#include <utility>

#include "model/error.h"

namespace stepladder {

Feed::Feed(Ops& ops, Arena& arena, const Config& config) : ops_(ops), size_(config.B * config.T) {
  staged_ = arena.alloc("batch/staged", DType::i32, {2, config.B, config.T});
  if (arena.planning()) return;
  pinned_ = ops.device().allocate_host(kSlots * staged_.bytes());
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Feed::~Feed() {
  // The device may still read the host memory that is about to go.
  if (!pinned_) return;
  try {
    ops_.synchronize();
  } catch (const Error&) {  // a device that failed reads nothing more; whoever awaits a step gets the error
  }
}

int32_t* Feed::slot(int i) const {
  return static_cast<int32_t*>(pinned_.get()) + i * 2 * size_;
}

void Feed::fill(int i) {
  Loader loader = *std::exchange(ahead_, std::nullopt);  // if next() throws, the slot holds no batch
  const Batch batch = loader.next();
  std::copy_n(batch.tokens, size_, slot(i));
  std::copy_n(batch.targets, size_, slot(i) + size_);
  ahead_ = std::move(loader);
}

void Feed::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return wanted_; })) {
    const int other = 1 - current_;
    lock.unlock();
    try {
      fill(other);
    } catch (...) {  // next() reads that batch again, and throws where it is caught
    }
    lock.lock();
    wanted_ = false;
    changed_.notify_all();
  }
}

Batch Feed::next(Loader& data) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !wanted_; });
  // ahead_'s index is that of the batch after the one that it has read.
  const bool foreseen = ahead_ && ahead_->index() == data.index() + data.stride() && ahead_->reads_as(data);
  if (!foreseen) {
    ahead_ = data;
    fill(1 - current_);
    staged_ahead_ = false;
  }
  current_ = 1 - current_;
  if (!staged_ahead_) ops_(Stage{staged_, slot(current_)});
  staged_ahead_ = false;
  data.seek(data.index() + data.stride());
  wanted_ = true;
  changed_.notify_all();
  return {slot(current_), slot(current_) + size_};
}

void Feed::send_ahead() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !wanted_; });
  if (!ahead_ || staged_ahead_) return;
  ops_(Stage{staged_, slot(1 - current_)});
  staged_ahead_ = true;
}

void Feed::deliver(Tensor tokens, Tensor targets, const Batch& batch) {
  if (batch.tokens == slot(current_)) {
    ops_(Receive{tokens, staged_[0]});
    ops_(Receive{targets, staged_[1]});
  } else {
    ops_(Upload{tokens, batch.tokens});
    ops_(Upload{targets, batch.targets});
  }
}

}  // namespace stepladder
