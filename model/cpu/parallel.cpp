#include "model/cpu/parallel.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>

#include "model/error.h"

namespace stepladder {
namespace {

thread_local int index_in_loop = 0;
thread_local bool in_loop = false;

/// Threads that take part in one loop at a time. OpenMP's threads would spin at the end of every loop, and on
/// a busy machine take time from the thread that they wait for.
class Pool {
 public:
  void run(int threads, int64_t n, void (*call)(const void*, int64_t), const void* body) {
    const std::unique_lock only(one_loop_, std::try_to_lock);
    if (!only.owns_lock()) {  // another thread's loop has the pool
      for (int64_t i = 0; i < n; ++i) call(body, i);
      return;
    }
    {
      const std::scoped_lock lock(mutex_);
      start(threads - 1);
      call_ = call, body_ = body, n_ = n, next_ = 0;
      threads_ = static_cast<int>(std::min<int64_t>(threads, n)), started_ = 1;
    }
    threads_ > 2 ? open_.notify_all() : open_.notify_one();
    work(0);
    threads_ = 0;
    await([this] { return working_ == 0; });
    std::unique_lock lock(mutex_);
    left_.wait(lock, [this] { return working_ == 0; });
  }

 private:
  /// Spins until `condition`, but for no longer than it would take to sleep and be woken.
  template <class Condition>
  static void await(const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    while (!condition() && std::chrono::steady_clock::now() < end) {
    }
  }

  void start(int others) try {
    for (; size_ < others; ++size_) std::thread([this] { serve(); }).detach();
  } catch (const std::system_error& e) {
    throw Error(cat("only ", 1 + size_, " of ", 1 + others, " threads can be started: ", e.code().message(),
                    "; set OMP_NUM_THREADS to fewer, or raise `ulimit -u` or `-v`"));
  }

  void work(int index) {
    index_in_loop = index, in_loop = true;
    for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) call_(body_, i);
    index_in_loop = 0, in_loop = false;
  }

  [[noreturn]] void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      lock.unlock();
      await([this] { return started_ < threads_; });
      lock.lock();
      open_.wait(lock, [this] { return started_ < threads_; });
      const int index = started_++;
      ++working_;
      lock.unlock();
      work(index);
      lock.lock();
      threads_ = 0;  // all iterations are taken
      if (--working_ == 0) left_.notify_one();
    }
  }

  std::mutex one_loop_, mutex_;
  std::condition_variable open_, left_;
  int size_ = 0;
  // The current loop, changed only while no thread works on it.
  void (*call_)(const void*, int64_t) = nullptr;
  const void* body_ = nullptr;
  int64_t n_ = 0;
  std::atomic<int64_t> next_ = 0;
  // Numbers of threads that may work on the loop, have begun to, and still do.
  std::atomic<int> threads_ = 0, started_ = 0, working_ = 0;
};

}  // namespace

int usable_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0
             ? std::max(1, CPU_COUNT(&cores))
             : static_cast<int>(std::thread::hardware_concurrency());
}

int max_threads() {
  if (const char* wanted = std::getenv("OMP_NUM_THREADS"))
    if (const int threads = std::atoi(wanted); threads > 0) return threads;
  return usable_cores();
}

int thread_index() {
  return index_in_loop;
}

void run_parallel(int threads, int64_t n, void (*call)(const void*, int64_t), const void* body) {
  static Pool& pool = *new Pool;  // its threads end with the process
  if (!in_loop) return pool.run(threads, n, call, body);
  for (int64_t i = 0; i < n; ++i) call(body, i);
}

}  // namespace stepladder
