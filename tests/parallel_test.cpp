// Parallel loops: every iteration runs once, and waiting threads take no time from working ones.
#include "model/cpu/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

namespace stepladder {
namespace {

TEST(Parallel, EveryIterationRunsOnceOnAThreadOfItsOwnIndex) {
  for (const int threads : {1, 2, 3, 8}) {
    std::vector<std::atomic<int>> runs(1000), busy(static_cast<size_t>(threads));
    for (int loop = 0; loop < 50; ++loop)
      parallel_for(threads, std::ssize(runs), [&](int64_t i) {
        const int index = thread_index();
        ASSERT_TRUE(index >= 0 && index < threads) << index;
        EXPECT_EQ(busy[static_cast<size_t>(index)]++, 0);
        ++runs[static_cast<size_t>(i)];
        --busy[static_cast<size_t>(index)];
      });
    for (const auto& count : runs) ASSERT_EQ(count, 50) << threads << " threads";
  }
  EXPECT_EQ(thread_index(), 0);
}

TEST(Parallel, SeveralThreadsTakePart) {
  // Each iteration waits for the other, so a single thread would never end.
  std::atomic<int> here = 0;
  parallel_for(2, 2, [&](int64_t) {
    ++here;
    while (here < 2) std::this_thread::yield();
  });
  EXPECT_EQ(here, 2);
}

TEST(Parallel, LoopsOfTwoThreadsAndLoopsWithinLoopsAllRun) {
  std::atomic<int> runs = 0;
  const auto loops = [&] {
    for (int loop = 0; loop < 100; ++loop)
      parallel_for(3, 10, [&](int64_t) { parallel_for(3, 10, [&](int64_t) { ++runs; }); });
  };
  std::thread other(loops);
  loops();
  other.join();
  EXPECT_EQ(runs, 2 * 100 * 100);
}

TEST(Parallel, AThreadThatWaitsSleeps) {
  // Each loop leaves one thread without work for a millisecond; a spinning thread would burn that
  // millisecond.
  const auto cpu_s = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  const auto start = std::chrono::steady_clock::now();
  const double before = cpu_s();
  for (int loop = 0; loop < 300; ++loop)
    parallel_for(2, 2, [&](int64_t i) {
      if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(cpu_s() - before, 0.5 * took.count());
}

TEST(Parallel, ThreadsAreAsManyAsAskedForElseTheCoresOfThisProcess) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(max_threads(), 3);
  ::setenv("OMP_NUM_THREADS", "4,2", 1);  // the first number is the outer loops'
  EXPECT_EQ(max_threads(), 4);
  for (const char* none : {"", "0", "-1", "many"}) {
    ::setenv("OMP_NUM_THREADS", none, 1);
    EXPECT_GE(max_threads(), 1) << none;
    EXPECT_LE(max_threads(), static_cast<int>(std::thread::hardware_concurrency())) << none;
  }
  ::unsetenv("OMP_NUM_THREADS");
}

}  // namespace
}  // namespace stepladder
