// Ranks of a job, as threads of this process: how they find each other, agree, and notice that one is gone.
#include "model/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "model/data.h"
#include "model/socket.h"
#include "tests/caller.h"
#include "tests/files.h"
#include "tests/processes.h"

namespace stepladder {
namespace {

sockaddr_in here(int port) {
  return resolve("127.0.0.1", port);
}
std::string at(int port) {
  return cat("127.0.0.1:", port);
}

/// The first line that a rank sends to rank 0.
std::string hello(int rank, int size) {
  return cat("stepladder 4\t", rank, '\t', size, "\thost\tpid\tbuild\tconfig\tdata\t\t\t");
}

/// A rank, and how its job ended.
struct Rank {
  Rank(int rank, int size, int port, const Identity& identity = {"build", "config", "data"},
       RendezvousLimits limits = {}, const std::string& secret = "") {
    const World world{.rank = rank,
                      .size = size,
                      .local_rank = rank,
                      .address = "127.0.0.1",
                      .port = port,
                      .secret = secret};
    try {
      meeting.emplace(
          world, identity,
          [this](const std::string& reason, bool speaks) {
            failure.set_value((speaks ? "speaks: " : "silent: ") + reason);
          },
          limits);
    } catch (const Error& e) {
      error = e.what();
      code = e.code();
    }
  }
  std::string end() {
    auto future = failure.get_future();
    if (future.wait_for(std::chrono::seconds(20)) != std::future_status::ready) return "nothing";
    return future.get();
  }

  std::promise<std::string> failure;
  std::string error;
  int code = 0;
  std::optional<Rendezvous> meeting;  // destroyed first
};

/// All ranks of a job, after they have met; the last rank has the identity `odd`.
std::vector<std::unique_ptr<Rank>> job(int size, const Identity& odd = {"build", "config", "data"},
                                       RendezvousLimits limits = {}) {
  const int port = free_port();
  std::vector<std::unique_ptr<Rank>> ranks(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      const Identity usual{"build", "config", "data"};
      ranks[static_cast<size_t>(r)] =
          std::make_unique<Rank>(r, size, port, r == size - 1 ? odd : usual, limits);
    });
  for (std::thread& t : threads) t.join();
  return ranks;
}

/// Results of f(rank), called for all ranks at once.
template <class F>
auto on_all(const std::vector<std::unique_ptr<Rank>>& ranks, const F& f) {
  std::vector<std::future<decltype(f(*ranks[0]))>> futures;
  for (const auto& rank : ranks) futures.push_back(std::async(std::launch::async, [&] { return f(*rank); }));
  std::vector<decltype(f(*ranks[0]))> results;
  for (auto& future : futures) results.push_back(future.get());
  return results;
}

TEST(Rendezvous, RanksShareWhatTheFirstHasAndAgreeOnFlags) {
  const auto ranks = job(3);
  for (const auto& rank : ranks) ASSERT_TRUE(rank->meeting) << rank->error;
  const std::string bytes("\0\n\t\xff id", 7);
  EXPECT_EQ(
      on_all(ranks, [&](Rank& r) { return r.meeting->share(r.meeting->world().rank == 0 ? bytes : ""); }),
      std::vector<std::string>(3, bytes));
  for (const int flagged : {-1, 0, 2, -1})
    EXPECT_EQ(on_all(ranks, [&](Rank& r) { return int{r.meeting->any(r.meeting->world().rank == flagged)}; }),
              std::vector<int>(3, flagged >= 0));
}

/// Why any(false), a question to all ranks, failed; "an answer" where it did not.
std::string reason_of_any(Rank& rank) {
  try {
    rank.meeting->any(false);
  } catch (const Error& e) {
    return e.what();
  }
  return "an answer";
}

TEST(Rendezvous, RanksThatDisagreeAreNamedToAll) {
  const std::map<std::string, Identity> cases = {{"another build", {"other", "config", "data"}},
                                                 {"another configuration", {"build", "other", "data"}},
                                                 {"other data", {"build", "config", "other"}}};
  for (const auto& [words, odd] : cases) {
    for (const auto& rank : job(3, odd)) {
      EXPECT_FALSE(rank->meeting);
      EXPECT_EQ(rank->code, kExitFailed);
      EXPECT_TRUE(says(rank->error, {"rank 2 (", "process ", words}));
    }
  }
}

TEST(Rendezvous, TwoRanksOnOneDeviceAreNamed) {
  const auto ranks = job(3, {"build", "config", "data", "GPU-1"});
  for (const auto& rank : ranks) EXPECT_TRUE(rank->meeting) << rank->error << ": the others have no GPU";
  const int port = free_port();
  auto first = std::async(std::launch::async, [&] {
    return Rank(0, 2, port, {"build", "config", "data", "GPU-1"}).error;
  });
  const Rank second(1, 2, port, {"build", "config", "data", "GPU-1"});
  for (const std::string& error : {first.get(), second.error})
    EXPECT_TRUE(says(error, {"rank 1 (", "GPU-1", "device"})) << error;
}

TEST(Rendezvous, ARankThatDoesNotComeIsNamed) {
  const int port = free_port();
  auto other = std::async(std::launch::async, [&] {
    return Rank(1, 3, port, {"build", "config", "data"}, {.meet_s = 1.0}).error;
  });
  const Rank first(0, 3, port, {"build", "config", "data"}, {.meet_s = 1.0});
  EXPECT_TRUE(says(first.error, {"rank 2 ", at(port), "unset RANK"}));
  EXPECT_TRUE(says(other.get(), {"rank 2 ", at(port)}));
}

TEST(Rendezvous, ACallerWithoutTheSecretIsSentAway) {
  const int port = free_port();
  const Identity identity{"build", "config", "data"};
  auto first = std::async(std::launch::async, [&] {
    return std::make_unique<Rank>(0, 2, port, identity, RendezvousLimits{}, "sesame");
  });
  for (const char* wrong : {"", "sesamE", "sesame2", "sesam"}) {
    const Rank stranger(1, 2, port, identity, {}, wrong);
    EXPECT_FALSE(stranger.meeting) << wrong;
    EXPECT_EQ(stranger.code, kExitFailed);
  }
  const Rank second(1, 2, port, identity, {}, "sesame");
  EXPECT_TRUE(second.meeting) << second.error;
  EXPECT_TRUE(first.get()->meeting);
}

TEST(Rendezvous, CallersThatSayNothingKeepNobodyWaiting) {
  const int port = free_port();
  const Identity identity{"build", "config", "data"};
  auto first = std::async(std::launch::async, [&] {
    return std::make_unique<Rank>(0, 2, port, identity, RendezvousLimits{.meet_s = 8}, "sesame");
  });
  std::list<Caller> silent;
  for (int i = 0; i < 70; ++i) silent.emplace_back(cat("127.0.0.1:", port));
  const auto begin = std::chrono::steady_clock::now();
  const Rank second(1, 2, port, identity, {}, "sesame");
  EXPECT_TRUE(second.meeting) << second.error;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  EXPECT_TRUE(first.get()->meeting);
}

TEST(Rendezvous, CallersBeyondTheFilesThatMayBeOpenKeepNobodyWaiting) {
#ifdef STEPLADDER_SANITIZED
  GTEST_SKIP() << "UBSan opens a pipe to look at an object, and takes one without a file left for damaged";
#endif
  const int port = free_port();
  const pid_t callers = ::fork();
  if (callers == 0) {
    std::list<Socket> silent;
    const auto called = [&] { return silent.emplace_back(connect_to(here(port), in_seconds(1.0))).open(); };
    while (!called()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (int i = 0; i < 79; ++i) called();
    const Rank second(1, 2, port, {"build", "config", "data"}, {}, "sesame");
    ::_exit(second.meeting ? 0 : 1);
  }
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{.rlim_cur = 30, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  const auto begin = std::chrono::steady_clock::now();
  const Rank first(0, 2, port, {"build", "config", "data"}, {.meet_s = 8}, "sesame");
  EXPECT_TRUE(first.meeting) << first.error;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(wait_for(callers), 0);
}

TEST(Rendezvous, WhatACallerSaysReachesNoTerminalAsItIs) {
  const int port = free_port();
  auto first = std::async(std::launch::async, [&] { return Rank(0, 2, port).error; });
  const Caller caller(at(port));
  caller.say("stepladder 4\t1\t2\thost\x1b]0;owned\x07\tpid\xc2\x9b\tbuild\tother\x7f\x1b[31m\tdata\t\t\t");
  const std::string error = first.get();
  EXPECT_TRUE(says(error, {"rank 1 (host", "another configuration"}));
  EXPECT_TRUE(
      std::none_of(error.begin(), error.end(), [](char c) { return std::iscntrl(c) != 0 || c == '\x9b'; }));
}

TEST(Rendezvous, AnAddressThatAnswersNothingIsGivenUp) {
  // A listening socket with a full backlog drops a caller's first packet, as a firewall does.
  const Socket full = listen_at(here(0));
  ASSERT_EQ(::listen(full.get(), 1), 0);
  const int port = port_of(full);
  std::vector<Socket> callers;
  do callers.push_back(connect_to(here(port), in_seconds(0.5)));
  while (callers.back().open());
  const auto start = std::chrono::steady_clock::now();
  const Rank late(1, 2, port, {"build", "config", "data"}, {.meet_s = 1.0});
  EXPECT_TRUE(says(late.error, {"rank 0 ", at(port), "unset RANK"}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Rendezvous, ASignalKeepsTheFirstRankWaitingNoLonger) {
  std::signal(SIGUSR1, [](int) {});
  const int port = free_port();
  std::promise<std::string> error;
  auto end = error.get_future();
  std::thread first([&] {
    error.set_value(Rank(0, 2, port, {"build", "config", "data"}, {.meet_s = 1.0}).error);
  });
  for (int i = 0; i < 5; ++i) {  // at least one signal arrives during the wait
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    pthread_kill(first.native_handle(), SIGUSR1);
  }
  EXPECT_EQ(end.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  connect_to(here(port), in_seconds(1.0));  // ends a wait without time limit
  first.join();
  EXPECT_TRUE(says(end.get(), {"rank 1 ", at(port)}));
}

TEST(Rendezvous, ARankThatLeavesEndsNothingWhileNobodyWaitsForIt) {
  auto ranks = job(3);
  ranks[1].reset();
  EXPECT_EQ(ranks[0]->meeting->share("still here"), "still here");
  EXPECT_EQ(ranks[2]->meeting->share(""), "still here");
  // Ranks that later wait for rank 1 hear that it left, not that it died.
  for (const int rank : {0, 2})
    EXPECT_TRUE(says(reason_of_any(*ranks[static_cast<size_t>(rank)]), {"rank 1 (", "left"}));
}

TEST(Rendezvous, RanksMayLeaveWhileTheFirstShares) {
  constexpr int kRanks = 16;
  const int port = free_port();
  auto meeting = std::async(std::launch::async, [&] { return std::make_unique<Rank>(0, kRanks, port); });
  std::list<Caller> others;
  for (int rank = 1; rank < kRanks; ++rank) others.emplace_back(at(port)).say(hello(rank, kRanks));
  const auto first = meeting.get();
  ASSERT_TRUE(first->meeting) << first->error;
  auto leaving = std::async(std::launch::async, [&] {
    for (const Caller& other : others) {
      other.say("bye\t0\t0");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  while (leaving.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    EXPECT_EQ(first->meeting->share("x"), "x");
  EXPECT_TRUE(says(reason_of_any(*first), {"rank ", "left"}));
}

TEST(Rendezvous, ARankThatLeavesBeforeAStepOfOthersIsMissed) {
  auto ranks = job(3);
  for (const auto& rank : ranks) {
    rank->meeting->begin_step(7);
    rank->meeting->end_step();
  }
  ranks[2].reset();
  ranks[0]->meeting->begin_step(8);
  EXPECT_TRUE(says(ranks[0]->end(), {"speaks: rank 2 (", "left"}));
  EXPECT_TRUE(says(ranks[1]->end(), {"silent: rank 2 (", "left"}));

  ranks = job(2);
  ranks[0].reset();
  EXPECT_TRUE(says(reason_of_any(*ranks[1]), {"rank 0 (", "left"}));
}

TEST(Rendezvous, RanksAgreeOnAState) {
  const auto ranks = job(3);
  const auto agree = [&](const std::string& odd) {
    return on_all(ranks, [&](Rank& r) {
      try {
        r.meeting->agree("the state", r.meeting->world().rank == 2 ? odd : "step 4");
      } catch (const Error& e) {
        return std::string(e.what());
      }
      return std::string();
    });
  };
  EXPECT_EQ(agree("step 4"), std::vector<std::string>(3));
  const auto errors = agree("step 3");
  EXPECT_EQ(errors[0] + errors[1], "");
  EXPECT_TRUE(says(errors[2], {"the state", "step 3", "step 4"}));
}

TEST(Rendezvous, AStepInWhichRanksGetFurtherIsNoHangHoweverLong) {
  const auto ranks = job(2, {"build", "config", "data"}, {.first_step_s = 1.0});
  for (const auto& rank : ranks) rank->meeting->begin_step(0);
  for (int micro = 0; micro < 15; ++micro) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (const auto& rank : ranks) rank->meeting->progress();
  }
  for (const auto& rank : ranks)
    EXPECT_EQ(rank->failure.get_future().wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

TEST(Rendezvous, ARankThatFailsEndsAllWithItsReasonAndOneSpeaks) {
  auto ranks = job(3);
  ranks[2]->meeting->fail("out of memory");
  EXPECT_TRUE(says(ranks[0]->end(), {"speaks: rank 2 (", "out of memory"}));
  EXPECT_TRUE(says(ranks[1]->end(), {"silent: rank 2 (", "out of memory"}));
  ranks = job(2);
  ranks[0]->meeting->fail("disk full");
  EXPECT_TRUE(says(ranks[1]->end(), {"silent: rank 0: disk full"}));
}

TEST(Rendezvous, AWaitingRankIsToldThatTheJobIsOver) {
  auto ranks = job(2);
  auto waiting = std::async(std::launch::async, [&] { return reason_of_any(*ranks[0]); });
  ranks[1]->meeting->fail("diverged");
  EXPECT_TRUE(says(waiting.get(), {"rank 1 (", "diverged"}));
}

TEST(Rendezvous, TheRankThatKeepsAllOthersWaitingInAStepIsNamed) {
  auto ranks = job(3, {"build", "config", "data"}, {.first_step_s = 2.0});
  for (const auto& rank : ranks) {
    rank->meeting->begin_step(0);
    if (rank->meeting->world().rank != 1) rank->meeting->progress();
  }
  EXPECT_TRUE(says(ranks[0]->end(), {"speaks: rank 1 (", "hangs", "step 0", "2 s"}));
}

TEST(Rendezvous, AStepMayTakeAsLongAsARankIsElsewhere) {
  const int port = free_port();
  auto first = std::async(std::launch::async, [&] {
    return std::make_unique<Rank>(0, 2, port, Identity{"build", "config", "data"},
                                  RendezvousLimits{.first_step_s = 0.01});
  });
  Caller other(at(port));
  other.say(hello(1, 2));
  EXPECT_TRUE(other.hear().starts_with("welcome"));
  const auto rank0 = first.get();  // rank 0 is busy, as if saving a checkpoint
  for (int beat = 0; beat < 5; ++beat) {
    ASSERT_TRUE(other.hear().starts_with("beat")) << "not told that the job is over";
    other.say("beat\t0\t1");
  }
}

TEST(Rendezvous, ARankBeyondTheWorldIsNotSaidToHaveComeTwice) {
  for (const int number : {2, -1}) {
    const int port = free_port();
    auto first = std::async(std::launch::async, [&] { return Rank(0, 2, port).error; });
    const Caller caller(at(port));
    caller.say(hello(number, 2));
    const std::string error = first.get();
    EXPECT_TRUE(says(error, {cat("rank ", number, " (host"), "0 to 1"}));
    EXPECT_FALSE(says(error, {"twice"})) << error;
  }
}

TEST(Rendezvous, ARankThatDiesBeforeAllAreThereIsNamed) {
  const int port = free_port();
  auto first = std::async(std::launch::async, [&] { return Rank(0, 3, port).error; });
  { Caller(at(port)).say(hello(2, 3)); }
  EXPECT_TRUE(says(first.get(), {"rank 2 (host, process pid) died"}));
}

TEST(Rendezvous, AFirstRankThatWasStoppedAndGoesOnHearsThatItWasMissed) {
  // Rank 1 misses the silent rank 0 and sends it an abort.
  const Socket listening = listen_at(here(0));
  const int port = port_of(listening);
  auto meeting = std::async(std::launch::async, [&] {
    return std::make_unique<Rank>(1, 2, port, Identity{"build", "config", "data"},
                                  RendezvousLimits{.silence_s = 2});
  });
  const Socket silent(::accept(listening.get(), nullptr, nullptr));
  std::string pending, line;
  EXPECT_TRUE(silent.line(pending, in_seconds(10)).value_or("").starts_with("stepladder "));
  silent.send("welcome\tfar\t7");
  const auto second = meeting.get();
  ASSERT_TRUE(second->meeting) << second->error;
  const std::string missed = "rank 0 (far, process 7) hangs: no sign of life for 2 s";
  EXPECT_EQ(second->end(), "speaks: " + missed);
  do line = silent.line(pending, in_seconds(10)).value_or("");
  while (line.starts_with("beat"));
  EXPECT_EQ(line, "abort\t" + missed);

  // A rank 0 that reads this abort reports it, and not that rank 1 died.
  const int other_port = free_port();
  auto first = std::async(std::launch::async, [&] { return std::make_unique<Rank>(0, 2, other_port); });
  {
    Caller rank1(at(other_port));
    rank1.say(hello(1, 2));
    EXPECT_TRUE(rank1.hear().starts_with("welcome"));
    rank1.say("abort\t" + missed);
  }
  EXPECT_EQ(first.get()->end(), "silent: " + missed);
}

// ---- a harness in rank 0's place

World in_world(int rank, int size, int port) {
  return {.rank = rank, .size = size, .address = "127.0.0.1", .port = port, .secret = "sesame"};
}

TEST(Harness, KnowsAllRanksAndHearsWhatTheyTellToTheLastLine) {
  Socket listening = listen_at(here(0));
  const int port = port_of(listening);
  const Identity build{"build", "", ""};
  const auto nothing = [](const std::string&, bool) {};
  std::mutex mutex;
  std::vector<std::string> heard[2];
  Harness middle{.listening = std::move(listening)};
  middle.on_line = [&](int rank, const std::string& line) {
    const std::scoped_lock lock(mutex);
    heard[rank].push_back(line);
  };
  const auto rank_that_tells = [&](int rank) {
    Rendezvous meeting(in_world(rank, 2, port), build, nothing, {}, Harness{.offer = cat("offer ", rank)});
    const std::string shared = meeting.share("");
    for (int i = 0; i < 50; ++i) meeting.tell(cat(i, "\twith\ttabs ", std::string(20'000, 'x')));
    meeting.tell("last");
    return shared;
  };
  std::future<std::string> ranks[] = {std::async(std::launch::async, rank_that_tells, 0),
                                      std::async(std::launch::async, rank_that_tells, 1)};
  Rendezvous harness(in_world(Harness::kRank, 2, port), build, nothing, {}, std::move(middle));
  const auto members = harness.members();
  ASSERT_EQ(members.size(), 2U);
  harness.share("where rank 0 is");
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(members[rank].rank, static_cast<int>(rank));
    EXPECT_EQ(members[rank].host, host_name());
    EXPECT_EQ(members[rank].address, "127.0.0.1");
    EXPECT_EQ(members[rank].offer, cat("offer ", rank));
    EXPECT_EQ(ranks[rank].get(), "where rank 0 is");
    const std::scoped_lock lock(mutex);
    ASSERT_EQ(heard[rank].size(), 51U) << "all that was told before the rank was gone";
    EXPECT_TRUE(heard[rank][49].starts_with("49\twith\ttabs x"));
    EXPECT_EQ(heard[rank][50], "last");
  }
}

TEST(Harness, ThatNobodyWaitsForEndsItsMeetingAndTheRanksThatCame) {
  Socket listening = listen_at(here(0));
  const int port = port_of(listening);
  const Identity build{"build", "", ""};
  int over[2];
  ASSERT_EQ(::pipe(over), 0);
  const Fd reads(over[0]);
  Fd writes(over[1]);
  const auto error_of = [&](int rank, Harness harness) {
    try {
      Rendezvous(
          in_world(rank, 2, port), build, [](const std::string&, bool) {}, {}, std::move(harness));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  const auto begin = std::chrono::steady_clock::now();
  auto waits = std::async(std::launch::async, error_of, 1, Harness{});
  auto harness = std::async(std::launch::async, [&] {
    return error_of(Harness::kRank, {.listening = std::move(listening), .over = reads.get()});
  });
  EXPECT_EQ(harness.wait_for(std::chrono::milliseconds(1500)), std::future_status::timeout);
  writes.close();
  EXPECT_EQ(harness.get(), "the job is over");
  EXPECT_EQ(waits.get(), "the job is over");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Rendezvous, APortInUseIsAUsageError) {
  const Socket taken = listen_at(here(0));
  const Rank first(0, 2, port_of(taken));
  EXPECT_EQ(first.code, kExitUsage);
  EXPECT_TRUE(says(first.error, {"port " + std::to_string(port_of(taken)), "MASTER_PORT"}));
}

TEST(Rendezvous, AnAddressThatIsNoneIsAUsageError) {
  const World world{.rank = 1, .size = 2, .local_rank = 0, .address = "no such host.invalid", .port = 29500};
  EXPECT_TRUE(
      says(input_error([&] { Rendezvous(world, {}, [](const std::string&, bool) {}); }), {"MASTER_ADDR"}));
}

/// Reads the environment of one launcher, without variables of any other.
class WorldOf : public testing::Test {
 protected:
  static World world(const std::map<std::string, std::string>& variables) {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "TORCHELASTIC_RUN_ID",
                             "PMIX_NAMESPACE",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_NODELIST",
                             "SLURM_STEP_NODELIST",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "PMIX_RANK"})
      unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    return World::from_environment();
  }
};

TEST_F(WorldOf, NobodyIsOne) {
  EXPECT_EQ(world({}).size, 1);
  EXPECT_EQ(world({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).size, 1);  // a batch script
}

TEST_F(WorldOf, TorchrunOrTheHarness) {
  std::map<std::string, std::string> variables = {{"RANK", "3"},
                                                  {"WORLD_SIZE", "4"},
                                                  {"LOCAL_RANK", "1"},
                                                  {"MASTER_ADDR", "node7"},
                                                  {"MASTER_PORT", "29500"}};
  World w = world(variables);
  EXPECT_EQ(w.rank, 3);
  EXPECT_EQ(w.size, 4);
  EXPECT_EQ(w.local_rank, 1);
  EXPECT_EQ(w.address, "node7");
  EXPECT_EQ(w.port, 29500);
  variables["TORCHELASTIC_RUN_ID"] = "x";
  EXPECT_EQ(world(variables).port, 29501);  // torchrun itself listens at 29500
}

TEST_F(WorldOf, Mpirun) {
  std::map<std::string, std::string> variables = {{"OMPI_COMM_WORLD_RANK", "1"},
                                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                  {"PMIX_NAMESPACE", "17"}};
  const World w = world(variables);
  EXPECT_EQ(w.address, "127.0.0.1");
  EXPECT_GT(w.port, 1024);
  EXPECT_EQ(w.port, world(variables).port);
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  variables["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_TRUE(says(input_error([&] { world(variables); }), {"several machines", "MASTER_ADDR"}));
  EXPECT_TRUE(says(input_error([&] {
                     world({{"OMPI_COMM_WORLD_SIZE", "2"}});
                   }),
                   {"OMPI_COMM_WORLD_RANK", "unset OMPI_COMM_WORLD_SIZE"}));
}

TEST_F(WorldOf, Srun) {
  std::map<std::string, std::string> variables = {
      {"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "8"},  {"SLURM_LOCALID", "1"},
      {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_ID", "12"}, {"SLURM_NODELIST", "gpu[03-04,7],x"}};
  EXPECT_EQ(world(variables).address, "gpu03");
  EXPECT_EQ(world(variables).rank, 5);
  variables["SLURM_NODELIST"] = "alone";
  EXPECT_EQ(world(variables).address, "alone");
  variables["SLURM_NODELIST"] = "a1,a[2-3]";
  EXPECT_EQ(world(variables).address, "a1");
  EXPECT_TRUE(says(input_error([&] {
                     world({{"SLURM_STEP_ID", "0"}});
                   }),
                   {"SLURM_NTASKS", "unset SLURM_STEP_ID"}));
}

TEST_F(WorldOf, AnInteractiveStepOfSlurmIsNoRank) {
  const std::map<std::string, std::string> shell = {
      {"SLURM_PROCID", "0"},  {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "4294967290"},
      {"SLURM_JOB_ID", "12"}, {"PMIX_RANK", "0"},    {"PMIX_NAMESPACE", "slurm.pmix.12.0"}};
  EXPECT_EQ(world(shell).size, 1);
}

TEST_F(WorldOf, ARankThatSeesOneDeviceHasThat) {
  World world{.rank = 3, .size = 4, .local_rank = 3};
  EXPECT_EQ(world.device_among(1), 0);  // srun --gpus-per-task=1
  EXPECT_EQ(world.device_among(4), 3);
  EXPECT_TRUE(says(input_error([&] { world.device_among(2); }), {"rank 3", "2"}));
}

TEST_F(WorldOf, AnotherLauncherIsRefusedRatherThanTrainedUnderAlone) {
  using Variables = std::map<std::string, std::string>;
  const Variables launchers[] = {
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}},  // MPICH, Intel MPI
      {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "prterun-1"}},             // tells no number of ranks
      {{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "2"}},
      {{"JSM_NAMESPACE_RANK", "0"}, {"JSM_NAMESPACE_SIZE", "2"}},
      {{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "2"}},
      {{"PALS_RANKID", "1"}},
      {{"ALPS_APP_PE", "1"}},
      // srun starts Hydra's proxies, one a node, so Slurm's variables describe the proxies.
      {{"PMI_RANK", "3"},
       {"PMI_SIZE", "4"},
       {"SLURM_PROCID", "1"},
       {"SLURM_NTASKS", "2"},
       {"SLURM_LOCALID", "0"},
       {"SLURM_STEP_ID", "0"},
       {"SLURM_JOB_ID", "12"},
       {"SLURM_NODELIST", "a1"}}};
  for (const Variables& variables : launchers) {
    const std::string name = variables.contains("PMI_RANK") ? "PMI_RANK" : variables.begin()->first;
    EXPECT_TRUE(says(input_error([&] { world(variables); }), {"mpirun", "torchrun", "srun"})) << name;
    Variables told = variables;  // set by a script between launcher and rank
    for (const auto& [own, value] : Variables{{"RANK", "1"},
                                              {"WORLD_SIZE", "2"},
                                              {"LOCAL_RANK", "1"},
                                              {"MASTER_ADDR", "a1"},
                                              {"MASTER_PORT", "29500"}})
      told[own] = value;
    EXPECT_EQ(world(told).rank, 1) << name;
    for (const auto& [variable, value] : variables) unsetenv(variable.c_str());
  }
  EXPECT_EQ(world({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).size, 1);
  Variables pmi2 = {{"PMI_RANK", "1"},      {"PMI_SIZE", "2"},       {"SLURM_PROCID", "1"},
                    {"SLURM_NTASKS", "2"},  {"SLURM_LOCALID", "1"},  {"SLURM_STEP_ID", "0"},
                    {"SLURM_JOB_ID", "12"}, {"SLURM_NODELIST", "a1"}};  // srun --mpi=pmi2
  EXPECT_EQ(world(pmi2).rank, 1);
}

TEST_F(WorldOf, NonsenseNamesTheVariable) {
  const std::map<std::string, std::string> good = {{"RANK", "1"},
                                                   {"WORLD_SIZE", "2"},
                                                   {"LOCAL_RANK", "1"},
                                                   {"MASTER_ADDR", "127.0.0.1"},
                                                   {"MASTER_PORT", "29500"}};
  EXPECT_EQ(world(good).size, 2);
  const std::pair<const char*, const char*> bad[] = {
      {"RANK", "2"},        {"RANK", "-1"},          {"RANK", "one"},       {"RANK", ""},
      {"WORLD_SIZE", "0"},  {"WORLD_SIZE", "2x"},    {"WORLD_SIZE", "1e9"}, {"LOCAL_RANK", "2"},
      {"MASTER_PORT", "0"}, {"MASTER_PORT", "70000"}};
  for (const auto& [name, value] : bad) {
    auto variables = good;
    variables[name] = value;
    EXPECT_TRUE(says(input_error([&] { world(variables); }), {name})) << name << '=' << value;
  }
  for (const char* missing : {"MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"}) {
    auto variables = good;
    variables.erase(missing);
    EXPECT_TRUE(says(input_error([&] { world(variables); }), {missing, "unset RANK and WORLD_SIZE"}));
  }
}

TEST(Loader, RanksTogetherReadWhatOneWould) {
  std::vector<uint16_t> tokens(100);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i);
  const auto file = std::make_shared<const Tokens>("tokens", tokens, 100);
  Loader one(file, 1, 7), rank0(file, 1, 7, 0, 3), rank1(file, 1, 7, 1, 3), rank2(file, 1, 7, 2, 3);
  for (int round = 0; round < 7; ++round)
    for (Loader* rank : {&rank0, &rank1, &rank2})
      EXPECT_EQ(*rank->next().tokens, *one.next().tokens) << round;
  EXPECT_EQ(rank0.index(), one.index());
}

}  // namespace
}  // namespace stepladder
