// Feed delivers the loader's batches in order, whether or not they were sent ahead.
#include "model/feed.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "model/cpu/cpu.h"

namespace stepladder {
namespace {

Config small_config() {
  Config config;
  config.B = 2, config.T = config.max_T = 8, config.V = 1000;
  return config;
}

/// Tokens first, first + 1, ...: a batch's values tell its place.
std::shared_ptr<const Tokens> counted_tokens(int first) {
  std::vector<uint16_t> tokens(100);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(first + static_cast<int>(i));
  return std::make_shared<const Tokens>("counted tokens", std::move(tokens), 1000);
}

class FeedTest : public testing::Test {
 protected:
  FeedTest() : arena(*ops, 1 << 20), feed(*ops, arena, config) {
    tokens = arena.alloc("batch/tokens", DType::i32, {config.B, config.T});
    targets = arena.alloc("batch/targets", DType::i32, {config.B, config.T});
  }

  /// Delivers `batch` and expects the next batch of `expected`.
  void expect_next(const Batch& batch, Loader& expected) {
    feed.deliver(tokens, targets, batch);
    const Batch want = expected.next();
    const auto size = static_cast<size_t>(tokens.numel());
    std::vector<int32_t> got(size);
    (*ops)(Download{got.data(), tokens});
    EXPECT_EQ(got, std::vector<int32_t>(want.tokens, want.tokens + size));
    (*ops)(Download{got.data(), targets});
    EXPECT_EQ(got, std::vector<int32_t>(want.targets, want.targets + size));
  }

  const Config config = small_config();
  std::unique_ptr<Ops> ops = make_cpu_ops();
  Arena arena;
  Feed feed;
  Tensor tokens, targets;
  std::shared_ptr<const Tokens> file = counted_tokens(0);
};

TEST_F(FeedTest, GivesTheLoadersBatchesWithAndWithoutSendingAhead) {
  Loader data(file, config.B, config.T), expected = data;
  for (int i = 0; i < 20; ++i) {  // three epochs
    expect_next(feed.next(data), expected);
    EXPECT_EQ(data.index(), expected.index());
    if (i % 3 != 0) feed.send_ahead();
    if (i % 5 == 0) feed.send_ahead();
  }
}

TEST_F(FeedTest, FollowsALoaderThatIsMovedAndOneOfAnotherFile) {
  Loader data(file, config.B, config.T), expected = data, other(counted_tokens(500), config.B, config.T);
  Loader expected_other = other;
  expect_next(feed.next(data), expected);
  feed.send_ahead();
  data.seek(4), expected.seek(4);
  expect_next(feed.next(data), expected);
  expect_next(feed.next(other), expected_other);
  feed.send_ahead();
  expect_next(feed.next(data), expected);
}

TEST_F(FeedTest, DeliversAForeignBatchWithoutLosingItsOwn) {
  Loader data(file, config.B, config.T), expected = data, validation(file, config.B, config.T);
  Loader expected_validation = validation;
  for (int i = 0; i < 4; ++i) {
    expect_next(feed.next(data), expected);
    feed.send_ahead();
    expect_next(validation.next(), expected_validation);
  }
}

TEST_F(FeedTest, WhatFailsWhenReadAheadIsThrownInItsTurn) {
  std::vector<uint16_t> tokens(900);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  tokens[static_cast<size_t>(3 * config.B * config.T)] =
      1000;  // outside the vocabulary: a target of batch 2, the first token of batch 3
  Loader data(std::make_shared<const Tokens>("memory", tokens, 1000), config.B, config.T), expected = data;
  for (int i = 0; i < 2; ++i) {
    expect_next(feed.next(data), expected);
    feed.send_ahead();
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(feed.next(data), InputError);
    EXPECT_EQ(data.index(), 2);
    feed.send_ahead();
  }
  for (const int64_t next : {1, 4}) {
    data.seek(next), expected.seek(next);
    expect_next(feed.next(data), expected);
  }
}

TEST_F(FeedTest, CanGoWhileItReadsAhead) {
  for (int i = 0; i < 50; ++i) {
    Arena memory(*ops, 1 << 20);
    Feed brief(*ops, memory, config);
    Loader data(file, config.B, config.T);
    brief.next(data);
  }
}

TEST(Feed, EndsWhereTheDeviceHasFailed) {
  /// A CPU device that has failed for good, as a GPU does: every wait throws.
  struct Failed final : Device {
    Cpu cpu{1};
    void run(const AnyOp& op) override { cpu.run(op); }
    DeviceInfo info() const override { return cpu.info(); }
    MemoryInfo memory() override { return cpu.memory(); }
    std::shared_ptr<void> allocate(size_t bytes) override { return cpu.allocate(bytes); }
    std::shared_ptr<void> allocate_host(size_t bytes) override { return cpu.allocate_host(bytes); }
    void bind_workspace(Arena&, const Config&) override {}
    void set_matmul_precision(Precision) override {}
    void synchronize() override { throw Error("uncorrectable ECC error"); }
    void phase(const char*, int64_t) override {}
    void start_timer() override {}
    void stop_timer() override {}
    Elapsed elapsed() override { return {}; }
    std::unique_ptr<Tracer> make_tracer() override { return nullptr; }
  };
  Ops ops(Backend{std::make_unique<Failed>(), {}, {}});
  Arena arena(ops, 1 << 20);
  const auto train = [&] {
    const Feed feed(ops, arena, small_config());
    ops.synchronize();
  };
  EXPECT_THROW(train(), Error);
}

TEST(Feed, OnlyCountsBytesInAPlan) {
  const auto ops = make_cpu_ops();
  Arena plan;
  const Feed feed(*ops, plan, small_config());
  EXPECT_EQ(plan.by_name().at("batch/staged"), 256);  // tokens and targets, 16 each, aligned
}

}  // namespace
}  // namespace stepladder
