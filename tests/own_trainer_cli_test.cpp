// Ladders of a user's own trainers through the real binary: shell scripts that speak the protocol of
// docs/trainer-reference.md.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "bench/base/text.h"
#include "bench/results/file.h"
#include "bench/results/json.h"
#include "bench/run/child.h"
#include "model/data.h"
#include "tests/command.h"
#include "tests/contract.h"
#include "tests/fake_rung.h"
#include "tests/files.h"
#include "tests/processes.h"
#include "tests/results.h"

namespace stepladder {
namespace {

/// The shortest trainer, in parts: start, steps and end. $1 B, $2 T, $3 steps, $4 ms a step; $i is the step.
constexpr const char* kStart = R"(say '{"event":"start","config":{"B":'$1',"T":'$2'}}'
)";
/// Steps of which each runs these commands.
std::string loop(const std::string& commands) {
  return cat("i=0\nwhile [ $i -lt $3 ]; do\n", commands, "\ni=$((i + 1))\ndone\n");
}
const std::string kSteps =
    loop(R"(sleep 0.0$4; say '{"event":"step","step":'$i',"step_ms":'$4',"loss":'$((9 - i))'}')");
constexpr const char* kEnd = R"(say '{"event":"end"}'
)";

// A rank's, and the rungs whose ranks the harness starts and the command itself.
constexpr const char* kRankStarts =
    R"(say '{"event":"start","rank":'$RANK',"config":{"B":4,"T":32,"world_size":'$WORLD_SIZE'}}'
)";
constexpr const char* kRankSteps = R"(i=0; while [ $i -lt 5 ]; do sleep 0.01
say '{"event":"step","step":'$i',"step_ms":10,"loss":'$loss'}'; i=$((i + 1)); done
)";
constexpr const char* kRanks =
    R"({"name": "both", "changes": "", "requires": {"devices": 2}, "command": ["sh", "rank.sh"]})";
constexpr const char* kStartsRanks =
    R"({"name": "itself", "changes": "", "requires": {"devices": 2}, "command": ["sh", "launch.sh", "{devices}"]})";

/// kStart with more fields of its config.
std::string start_with(const std::string& config) {
  return cat(R"(say '{"event":"start","config":{"B":'$1',"T":'$2',)", config, "}}'\n");
}

std::string script(const std::string& body) {
  return cat("say() { printf '%s\\n' \"$1\" >&$STEPLADDER_EVENTS; }\n", body);
}

class OwnTrainer : public testing::Test {
 protected:
  OwnTrainer() {
    std::filesystem::create_directory(folder_ / "own");
    trainer("trainer.sh", cat(kStart, kSteps, kEnd));
    ladder();
  }

  void trainer(const std::string& name, const std::string& body) {
    write_file(folder_ / cat("own/", name), script(body));
  }
  /// Writes a ladder of two rungs, whose steps take 20 and 10 ms; `more` are fields of the second rung.
  void ladder(const std::string& more = "", const std::string& place = "own") {
    write_file(folder_ / cat(place, "/ladder.json"), cat(R"({"name": "mine",
 "workload": {"batch": [4], "seq": 32, "steps": 5, "warmup": 1, "rounds": 2},
 "rungs": [
  {"name": "00_slow", "changes": "nothing yet", "source": "trainer.sh",
   "command": ["sh", "trainer.sh", "{batch}", "{seq}", "{steps}", "20"]},
  {"name": "01_fast", "parent": "00_slow", "changes": "half as long", "source": "trainer.sh", "tolerance": 0.01,
   "command": ["sh", "trainer.sh", "{batch}", "{seq}", "{steps}", "10"])",
                                                         more, "}]}\n"));
  }
  void ladder_of(const std::string& rungs) {
    write_file(folder_ / "own/ladder.json", cat(R"({"name": "mine",
 "workload": {"batch": [4], "seq": 32, "steps": 5, "warmup": 1, "rounds": 1}, "rungs": [)",
                                                rungs, "]}\n"));
  }
  void edit_ladder(const std::string& was, const std::string& is) {
    replace_last(folder_ / "own/ladder.json", was, is);
  }

  Outcome stepladder(const std::string& arguments, const std::string& environment = "") {
    return run_in(folder_,
                  cat("export STEPLADDER_BIN_DIR=", folder_ / "ours", " STEPLADDER_PYTHON=/nowhere/python; ",
                      environment, " ", STEPLADDER_BIN, "/stepladder ", arguments));
  }
  Outcome run(const std::string& more = "", const std::string& environment = "") {
    return stepladder("run --ladder own/ladder.json --backend cpu --out r.json " + more, environment);
  }
  Results results() const { return load_results(folder_ / "r.json"); }
  Json json() const { return exported(folder_ / "r.json"); }

  const TempFolder folder_;
  const Environment no_sample_{"STEPLADDER_BUSY_SAMPLE_MS", "0"};  // skips the load sample
};

// ---- run

TEST_F(OwnTrainer, IsMeasuredAndComparedLikeARung) {
  ASSERT_TRUE(ended(run(), 0));
  const Json file = json();
  ASSERT_EQ(file["variants"].size(), 2U);
  EXPECT_EQ(file["variants"][1]["variant"], "01_fast");
  EXPECT_EQ(file["variants"][1]["config"]["B"], 4);
  EXPECT_EQ(file["variants"][1]["speedup_previous"]["ratio"], 2.0);
  EXPECT_EQ(file["variants"][1]["speedup_baseline"]["against"], "00_slow");
  EXPECT_EQ(file["plan"]["ladder"]["rungs"][1]["changes"], "half as long");
  EXPECT_EQ(file["runs"].size(), 4U);
  EXPECT_EQ(file["plan"]["model"], "mine");
  EXPECT_FALSE(file["variants"][1]["config"].contains("seed")) << "which no command is told";
  expect_contract(folder_ / "r.json");
  const Outcome diff = stepladder("diff 00 01 --ladder own/ladder.json --results r.json");
  EXPECT_TRUE(ended(diff, 0, {"- sh trainer.sh", "+ sh trainer.sh", "2.00", "01_fast"}));
  EXPECT_FALSE(says(diff.out, {"live memory"})) << "which nobody told";
  EXPECT_TRUE(says(stepladder("diff 00 01 --ladder own/ladder.json").out, {"run --ladder own/ladder.json"}));
  EXPECT_TRUE(says(stepladder("list --ladder own/ladder.json").out, {"01_fast", "half as long"}));
}

TEST_F(OwnTrainer, MayRecordHowOftenItAccumulatesInABatchThatHasAllMicroBatches) {
  trainer("trainer.sh", cat(R"(more=; [ $4 = 10 ] && more=',"accumulate":4'
say '{"event":"start","config":{"B":'$1',"T":'$2$more'}}'
)",
                            kSteps, kEnd));
  ASSERT_EQ(run("--rounds 1").code, 0);
  const Results measured = results();
  EXPECT_EQ(measured.runs[1].config["accumulate"], 4) << "it is recorded";
  EXPECT_DOUBLE_EQ(measured.runs[1].summary->tokens_per_second, 4 * 32 / 0.010);
  EXPECT_DOUBLE_EQ(json()["variants"][1]["speedup_previous"]["ratio"].get<double>(), 2.0);
  expect_contract(folder_ / "r.json");
  replace_last(folder_ / "own/trainer.sh", "$((9 - i))", "$((9 - i + ($4 == 10)))");
  EXPECT_EQ(run("--rounds 1 --overwrite").code, 5);
  EXPECT_EQ(results().runs[1].status, Status::diverged) << "its losses are compared all the same";
}

TEST_F(OwnTrainer, CannotDriveTheTerminalByWhatItsFilesHold) {
  const std::string hostile = "\xc2\x9b[31m\xe2\x80\xae\xd8\x9c";  // CSI, and marks of text direction
  std::string text = read_file(folder_ / "own/ladder.json");
  const auto put = [&](const std::string& before, const std::string& added) {
    text.insert(text.find(before) + before.size(), added);
  };
  put("\"workload\": {", cat("\"model\": \"m", hostile, "\", "));
  put("half as long", hostile);
  put("{steps}\", \"10", hostile);
  write_file(folder_ / "own/ladder.json", text);
  trainer("trainer.sh", cat(kStart, kSteps, "# a\t", hostile, "\x1b]0;title\x07\n", kEnd));
  trainer("other.sh", cat(kStart, kSteps, "# b\t", hostile, "\x1b]0;title\x07\n", kEnd));
  write_file(folder_ / "kind.json", cat(R"({"schema": 2, "kind": "K)", hostile, "\"}"));
  std::string shown = text;
  shown.replace(shown.rfind("\"source\": \"trainer.sh"), 21, "\"source\": \"other.sh");
  write_file(folder_ / "own/shown.json", shown);
  run("--rounds 1");
  for (const char* command :
       {"run --ladder own/ladder.json --backend cpu --rounds 1 --out again.json",
        "diff 00 01 --ladder own/ladder.json", "diff 01 01 --ladder own/ladder.json",
        "diff 00 01 --ladder own/shown.json", "list --ladder own/ladder.json",
        "report r.json kind.json --out page", "compare r.json r.json", "plan-run r.json --tokens 1e9"}) {
    const Outcome outcome = stepladder(command);
    const std::string all = outcome.out + outcome.err;
    EXPECT_EQ(without_controls(all, "\n\t"), all) << command;
    EXPECT_EQ(all.find("\xd8\x9c"), std::string::npos) << command << ": U+061C turns the text too";
  }
}

TEST_F(OwnTrainer, MayNestItsConfigAndItsFileIsStillRead) {
  trainer("trainer.sh", cat(start_with(R"("mesh":[[0,1],[2,3]],"layers":[{"h":1}],"deep":{"a":{"b":1}},)"
                                       R"("threads":2,"world_size":null,"hash":-1234567890123456789)"),
                            kSteps, kEnd));
  EXPECT_EQ(stepladder("check-trainer --ladder own/ladder.json --rungs 00").code, 0);
  ASSERT_TRUE(ended(run("--rounds 1"), 0));
  EXPECT_EQ(results().runs[0].config["mesh"], Json({{0, 1}, {2, 3}}));
  expect_contract(folder_ / "r.json");
}

TEST_F(OwnTrainer, WhoseRanksSayThatTheyAreIndependentDoesNotVanish) {
  trainer("trainer.sh", cat(start_with(R"("independent_ranks":true)"), kSteps, kEnd));
  EXPECT_TRUE(ended(run("--rounds 1"), 5, {"00_slow", "01_fast", "independent_ranks"}));
  EXPECT_EQ(json()["variants"].size(), 2U);
  expect_contract(folder_ / "r.json");
}

TEST_F(OwnTrainer, IsToldNothingOfAnotherMeasurement) {
  trainer("trainer.sh", cat("env >told.txt\n", kStart, kSteps, kEnd));
  EXPECT_TRUE(ended(run("--rungs 00 --rounds 1",
                        "export STEPLADDER_UNTIL_LOSS=4 STEPLADDER_EVAL_EVERY=2 STEPLADDER_EVAL_SKIP=1 "
                        "STEPLADDER_EVENTS_0=/gone;"),
                    0));
  const std::string told = read_file(folder_ / "own/told.txt");
  EXPECT_TRUE(says(told, {"STEPLADDER_EVENTS=3", "STEPLADDER_STEPS=5"}));
  for (const char* other :
       {"STEPLADDER_UNTIL_LOSS", "STEPLADDER_EVAL_EVERY", "STEPLADDER_EVAL_SKIP", "STEPLADDER_EVENTS_0"})
    EXPECT_FALSE(says(told, {other})) << told;
}

TEST_F(OwnTrainer, IsFoundByItsWholeNameBeforeAnothersShortOne) {
  const auto called = [this](const std::string& first, const std::string& second) {
    std::string text = read_file(folder_ / "own/ladder.json");
    for (const auto& [from, to] :
         {std::pair("\"00_slow\"", first), {"\"00_slow\"", first}, {"\"01_fast\"", second}})
      if (const size_t at = text.find(from); at != std::string::npos)
        text.replace(at, std::string(from).size(), cat('"', to, '"'));
    write_file(folder_ / "own/ladder.json", text);
  };
  called("01_x", "x");
  EXPECT_EQ(run("--rungs x --rounds 1").code, 0);
  EXPECT_EQ(results().runs.at(0).variant, "x");
  ladder();
  called("01_a", "01_b");
  EXPECT_TRUE(is_refused(run("--rungs 01"), {"'01'", "01_a or 01_b"}));
}

TEST_F(OwnTrainer, CalledLikeOneOfAPeerIsRefused) {
  std::filesystem::copy(folder_ / "own/ladder.json", folder_ / "own/peer.json");
  replace_last(folder_ / "own/peer.json", "mine", "00_slow");
  EXPECT_TRUE(is_refused(run("--peer own/peer.json --overwrite"), {"two rungs", "00_slow", "rename"}));
}

TEST_F(OwnTrainer, ThatWritesAFileOfItsCommandHasChanged) {
  trainer("trainer.sh", cat("echo $i >>own.log\n", kStart, kSteps, kEnd));
  edit_ladder(R"("20"])", R"("20", "own.log"])");
  write_file(folder_ / "own/own.log", "");
  EXPECT_TRUE(ended(run("--rungs 00"), kExitNotComparable, {}, {"00_slow", "changed", "--overwrite"}));
}

TEST_F(OwnTrainer, WhoseVersionIsPrintedWithoutAnEndIsRefused) {
  ladder(R"(, "version": ["yes"])");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_refused(run(), {"01_fast", "version", "yes"}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(OwnTrainer, LearnsWhatTheFirstRungDoesOrIsNotOk) {
  const char* step = R"(sleep 0.01; say '{"event":"step","step":'$i',"step_ms":10,"loss":8.5}')";
  trainer("other.sh", cat(kStart, loop(step), kEnd));
  edit_ladder(R"(trainer.sh", "{batch})", R"(other.sh", "{batch})");
  EXPECT_EQ(run().code, 5);
  EXPECT_TRUE(ended(results().runs[1], Status::diverged, {"00_slow", "8.5"}));
  for (int seed = 0; seed < 4; ++seed) {  // orders with the first rung before and after 01
    EXPECT_EQ(run(cat("--rounds 1 --overwrite --order shuffled --order-seed ", seed)).code, 5) << seed;
    ASSERT_EQ(results().runs.size(), 2U);
    EXPECT_EQ(results().find({"01_fast", results().runs[0].workload()}, 0)->status, Status::diverged) << seed;
  }
}

TEST_F(OwnTrainer, ThatFailsInEveryRungIsTriedInNoFurtherRound) {
  trainer("trainer.sh", "exit 7\n");
  EXPECT_TRUE(ended(run("--rounds 3"), kExitFailed, {}, {"--retry-failed"}));
  EXPECT_EQ(results().runs.size(), 2U) << "of the first round";
}

TEST_F(OwnTrainer, ThatWasMendedIsRunAgainByTheCommandThatItsFailureNames) {
  trainer("trainer.sh", "exit 7\n");
  const std::string again = "resume r.json --retry-failed --ladder own/ladder.json";
  ASSERT_TRUE(ended(run(), kExitFailed, {}, {again}));
  trainer("trainer.sh", cat(kStart, kSteps, kEnd));
  EXPECT_TRUE(ended(run("--resume"), kExitNotComparable, {}, {"the sources of 00_slow", "--retry-failed"}));
  ASSERT_EQ(stepladder(again).code, 0);
  EXPECT_EQ(results().runs.size(), 4U);
  trainer("trainer.sh", cat("# otherwise\n", kStart, kSteps, kEnd));
  EXPECT_TRUE(ended(stepladder(again), kExitNotComparable, {}, {"the sources of 00_slow", "--overwrite"}));
}

TEST_F(OwnTrainer, OfFewRoundsIsToldWhichCommandMeasuresAnInterval) {
  const std::string more = "`stepladder resume r.json --rounds 6 --ladder own/ladder.json`";
  ASSERT_TRUE(ended(run(), 0, {"4 rounds more", more + "\n"}));
  const Outcome outcome = stepladder(more.substr(12, more.size() - 13));
  ASSERT_TRUE(ended(outcome, 0, {"95 %"}));
  EXPECT_FALSE(says(outcome.out, {"rounds more"})) << outcome.out;
}

TEST_F(OwnTrainer, IsGoneOnWithInTheFolderWhereItsLadderIs) {
  ASSERT_EQ(run("--rounds 1").code, 0);
  const std::string ladder = " --ladder own/ladder.json";
  EXPECT_TRUE(ended(stepladder(cat("resume ../r.json --rounds 2", ladder), "cd own;"), 2, {},
                    {"r.json", "own/ladder.json", "folder"}));
  EXPECT_EQ(stepladder("resume r.json --rounds 2" + ladder).code, 0);
  ASSERT_EQ(run("--rounds 1 --overwrite=true").code, 0);
  EXPECT_EQ(stepladder("resume r.json --rounds 2" + ladder).code, 0) << "and doesn't begin again";
}

TEST_F(OwnTrainer, IsStartedByNoFileOfResultsAlone) {
  ASSERT_EQ(stepladder("run --ladder=own/ladder.json --backend cpu --out other.json --rounds 1").code, 0);
  EXPECT_TRUE(
      ended(stepladder("resume other.json --rounds 2"), 2, {}, {"other.json", "--ladder own/ladder.json"}));
  EXPECT_EQ(load_results(folder_ / "other.json").runs.size(), 2U);
  const std::string text = read_file(folder_ / "other.json");
  for (const std::string& more : {std::string("--launcher ./evil --devices 2"),
                                  std::string("--python ./evil"), std::string("--python=./evil"),
                                  std::string("--peer llmc=./evil"), std::string("--peer own/ladder.json")}) {
    std::string other = text;
    other.replace(other.find(" --ladder="), 1, cat(" ", more, " "));
    write_file(folder_ / "other.json", other);
    EXPECT_TRUE(ended(stepladder("resume other.json --rounds 2 --ladder own/ladder.json"), 2, {},
                      {"other.json", more.substr(0, more.find_first_of(" ="))}))
        << more;
  }
}

TEST_F(OwnTrainer, IsNotGoneOnWithOnceItsSourceHasChanged) {
  ASSERT_EQ(run("--rounds 1").code, 0);
  EXPECT_EQ(run("--rounds 2 --resume").code, 0);
  // The command names the source file, so it is hashed even without "source".
  for (int rung = 0; rung < 2; ++rung) edit_ladder(R"("source": "trainer.sh",)", "");
  EXPECT_EQ(run("--rounds 2 --resume").code, 0);
  trainer("trainer.sh", cat("# otherwise\n", kStart, kSteps, kEnd));
  EXPECT_EQ(run("--rounds 3 --resume").code, 4);
}

TEST_F(OwnTrainer, IsTheSameInWhateverOrderItsVariablesStand) {
  edit_ladder(R"("10"])", R"("10"], "environment": {"B": "1", "A": "2"})");
  ASSERT_EQ(run("--rungs 01 --rounds 1").code, 0);
  edit_ladder(R"("B": "1", "A": "2")", R"("A": "2", "B": "1")");
  EXPECT_EQ(run("--rungs 01 --rounds 2 --resume").code, 0);
}

TEST_F(OwnTrainer, IsToldWhatItIsAskedFor) {
  trainer("trainer.sh",
          cat(R"(printf '%s ' "$5" "$6" "$STEPLADDER_STEPS" "$GREETING" "${PYTHONPATH%%:*}" >told.txt
)",
              kStart, kSteps, kEnd));
  edit_ladder(R"("10"])", R"("10", "{seed}", "{model}"], "environment": {"GREETING": "batch {batch}"})");
  ASSERT_EQ(run("--rungs 01 --rounds 1 --seed 3 --model gpt2-mini").code, 0);
  EXPECT_EQ(read_file(folder_ / "own/told.txt"),
            cat("3 gpt2-mini 5 batch 4 ", STEPLADDER_SOURCE_DIR, "/python/trainer "));
  EXPECT_EQ(results().runs[0].config["model"], "gpt2-mini");
  ASSERT_EQ(run("--rungs 01 --rounds 1 --seed 3 --model 'a{seed}' --overwrite").code, 0);
  EXPECT_TRUE(says(read_file(folder_ / "own/told.txt"), {"3 a{seed} 5"})) << "as it is, braces and all";
}

TEST_F(OwnTrainer, OptionsThatNoCommandTakesAreRefused) {
  for (const char* option : {"--data x.bin", "--lr 1e-3", "--model gpt2", "--seed 3"})
    EXPECT_TRUE(ended(run(option), 2, {}, {std::string(option).substr(0, 4)})) << option;
  const auto refused = [&](const std::string& command, const std::string& option) {
    EXPECT_TRUE(
        is_refused(stepladder(command + " " + option), {option.substr(0, option.find(' ')), "no command of"}))
        << command << " " << option;
  };
  const std::string run = "run --ladder own/ladder.json --backend cpu --out r.json";
  refused(run + " --until-loss 8 --eval-every 2", "--eval-batches 4");
  refused(run, "--cache kept");
  for (const char* command :
       {"gate own own --ladder ladder.json --backend cpu", "calibrate --ladder own/ladder.json"})
    refused(command, "--cache kept");
  for (const char* option : {"--model gpt2", "--data x.bin"}) {
    for (const auto& [before, after] :
         {std::pair("--ladder own/ladder.json", ""), std::pair("", " sh own/trainer.sh 4 64 3 10")})
      EXPECT_TRUE(is_refused(stepladder(cat("check-trainer ", before, " ", option, after)),
                             {std::string(option).substr(0, 6)}))
          << option;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "r.json"));
}

TEST_F(OwnTrainer, ThatTakesAllArgumentsTakesHowManyBatchesAnEvaluationHas) {
  trainer("trainer.sh", cat("echo \"$@\" >told.txt\nset -- 4 32 5 10\n", kStart, kSteps, kEnd));
  edit_ladder(R"("{batch}", "{seq}", "{steps}", "10"])", R"("{arguments}"])");
  write_token_file(folder_ / "data.bin", std::vector<uint16_t>(2000, 7));
  run("--rungs 01 --rounds 1 --model gpt2-tiny --data data.bin --until-loss 8 --eval-every 2 --eval-batches "
      "4");
  EXPECT_TRUE(says(read_file(folder_ / "own/told.txt"), {"--eval-batches 4"}));
}

TEST_F(OwnTrainer, StandsBesideOursAndOursBesideIt) {
  std::filesystem::create_directory(folder_ / "ours");
  FakeRung{}.write(folder_);
  std::filesystem::rename(folder_ / "00_fp32_baseline", folder_ / "ours/00_fp32_baseline");
  write_token_file(folder_ / "data.bin", std::vector<uint16_t>(2000, 7));
  const std::string workload = " --model gpt2-tiny --data data.bin --overwrite --rounds 1";
  ASSERT_TRUE(ended(run("--peer stepladder --rungs all,stepladder/00" + workload), 0));
  EXPECT_EQ(json()["plan"]["peers"], Json({"stepladder/00_fp32_baseline"}));
  EXPECT_EQ(json()["variants"][2]["peer"], "stepladder");
  ASSERT_TRUE(ended(stepladder("run --backend cpu --batch 4 --seq 32 --steps 5 --warmup 1 --out r.json "
                               "--rungs 00 --peer own/ladder.json" +
                               workload),
                    0));
  EXPECT_EQ(json()["plan"]["peers"], Json({"mine/00_slow", "mine/01_fast"}));
  expect_contract(folder_ / "r.json");
}

TEST_F(OwnTrainer, CalledLikeItsLadderIsNamedOnce) {
  write_file(folder_ / "own/solo.json",
             R"({"name": "solo", "workload": {"model": "mine"}, "rungs": [{"name": "other", "changes": "",
 "command": ["false"]}, {"name": "solo", "changes": "",
 "command": ["sh", "trainer.sh", "{batch}", "{seq}", "{steps}", "5"]}]})");
  ASSERT_TRUE(ended(run("--peer own/solo.json --rungs 00,solo --rounds 1"), 0));
  EXPECT_EQ(json()["plan"]["peers"], Json({"solo"}));
  EXPECT_EQ(run("--rungs 00,solo --overwrite").code, 2);
}

TEST_F(OwnTrainer, OfAnotherModelThanItsPeersIsRefusedByName) {
  write_file(folder_ / "own/ladder.json",
             R"({"name": "mine", "workload": {"model": "regression"}, "rungs": [{"name": "a", "changes": "",
 "command": ["sh", "trainer.sh", "4", "32", "5", "1"]}]})");
  for (const std::string peer : {"pytorch", "stepladder"})
    EXPECT_TRUE(ended(run("--peer " + peer), 2, {}, {peer + "/", "mine", "regression", "--model"}));
  write_file(folder_ / "own/ladder.json",
             R"({"name": "mine", "workload": {"model": "regression"}, "rungs": [{"name": "a", "changes": "",
 "command": ["sh", "trainer.sh", "{arguments}"]}]})");
  EXPECT_TRUE(ended(run(), 2, {}, {"a is ", "GPT-2", "regression"}));
}

TEST_F(OwnTrainer, OfALadderFileThatIsWrongIsRefusedByName) {
  const auto refused = [&](const std::string& text, std::vector<std::string> parts) {
    write_file(folder_ / "own/ladder.json", text);
    parts.emplace_back("own/ladder.json");
    EXPECT_TRUE(is_refused(run(), parts)) << text;
  };
  const auto rung = [](const std::string& fields) {
    return cat(R"({"name": "mine", "rungs": [{"name": "a", "changes": "", )", fields, "}]}");
  };
  refused("", {"empty"});
  refused("[1, 2]", {"list", "ladder file"});
  refused(R"({"name": "mine", "rungs": []})", {"no rungs"});
  refused(R"({"schema": 2, "plan": {}, "runs": []})", {"results file of schema 2"});
  refused(R"({"schema": 2, "kind": "noise"})", {"noise file"});
  refused("{\"line\":\"session\"}\n{\"line\":\"end\"}\n", {"results file"});
  refused(R"({"name": "a/b", "rungs": [{}]})", {"a/b"});
  refused(R"({"rungs": [{}]})", {"name"});
  refused(rung(R"("command": [])"), {"rungs[0]", "command"});
  refused(rung(R"("command": "sh")"), {"rungs[0]", "command"});
  refused(rung(R"("command": ["sh"], "batch": "larget")"), {"batch", "larget"});
  refused(rung(R"("command": ["sh"], "environment": {"A=B": "1"})"), {"environment", "A=B"});
  refused(rung(R"("command": ["sh"], "environment": {"A": 1})"), {"environment"});
  refused(rung(R"("command": ["sh"], "tolerance": "0.1")"), {"tolerance"});
  refused(rung(R"("command": ["sh"], "enviroment": {})"), {"enviroment", "did you mean environment?"});
  refused(rung(R"("command": ["sh"], "args": [])"), {"'args': known are name", "arguments"});
  refused(rung(R"("command": ["sh", "{btch}"])"), {"{btch}", "{batch}"});
  refused(rung(R"("command": ["sh", "x{arguments}"])"), {"{arguments}"});
  refused(rung(R"("command": ["sh"], "source": "nowhere.py")"), {"nowhere.py"});
  refused(rung(R"("command": ["sh"], "tolerance": -1)"), {"tolerance"});
  refused(rung(R"("command": ["sh"], "math": "fp7")"), {"fp7", "half"});
  refused(rung(R"("command": ["sh"], "parent": "b")"), {"parent", "b"});
  for (const char* number : {"-1", "0", "1.5", "1025", "1e4", "18446744073709551615", "1e300", "true", "[2]"})
    for (const char* key : {"devices", "compute_capability"})
      if (number != std::string("0") || key == std::string("devices"))
        refused(rung(cat(R"("command": ["sh"], "requires": {")", key, "\": ", number, "}")),
                {"rungs[0]", key});
  refused(rung(R"("command": ["sh"], "tolerance": true)"), {"rungs[0]", "tolerance"});
  const auto workload = [](const std::string& fields) {
    return cat(R"({"name": "mine", "workload": {)", fields,
               R"(}, "rungs": [{"name": "a", "changes": "", "command": ["sh"]}]})");
  };
  for (const char* key : {"seq", "steps", "warmup", "rounds"})
    for (const char* number : {"-1", "2.5", "1000001", "18446744073709551615", "true"})
      refused(workload(cat('"', key, "\": ", number)), {"workload", key});
  refused(workload(R"("steps": 0)"), {"workload"});
  refused(workload(R"("steps": 5, "warmup": 5)"), {"workload", "warmup 5", "steps 5"});
  refused(workload(R"("batch": [16.5])"), {"workload", "batch"});
  refused(R"({"name": "mine", "rungs": [{"name": "a", "changes": "", "command": ["sh"]},
                                        {"name": "a", "changes": "", "command": ["sh"]}]})",
          {"twice"});
  EXPECT_TRUE(ended(stepladder("run --ladder nowhere.json"), 2, {}, {"nowhere.json"}));
  EXPECT_TRUE(is_refused(stepladder("run own/ladder.json"), {"'own/ladder.json'", "--ladder"}));
}

TEST_F(OwnTrainer, ResultsWithALadderThatMakesNoSenseAreRefusedByName) {
  ASSERT_EQ(run("--rounds 1").code, 0);
  Results file = results();
  for (const Json& ladder : {Json(7), Json::object(), Json({{"name", "x"}, {"rungs", {7}}})}) {
    file.plan["ladder"] = ladder;
    write_file(folder_ / "bad.json", file_text(file));
    for (const char* command :
         {"report bad.json", "compare r.json bad.json", "plan-run bad.json --tokens 1e9",
          "diff 00 01 --ladder own/ladder.json --results bad.json"})
      EXPECT_TRUE(ended(stepladder(command), 2, {}, {"bad.json", "plan.ladder"})) << command << ": ";
  }
}

TEST_F(OwnTrainer, LeavesNoProcessBehindThatLeftItsGroup) {
  trainer("trainer.sh", cat("setsid sh -c 'echo $$ >daemon.pid; exec sleep 300' &\n",
                            "while [ ! -s daemon.pid ]; do sleep 0.01; done\n", kStart, kSteps, kEnd));
  ASSERT_EQ(run("--rungs 00 --rounds 1").code, 0);
  EXPECT_TRUE(ends(std::stoi(read_file(folder_ / "own/daemon.pid"))));
}

TEST_F(OwnTrainer, EndsOnlyWhatItStartedItself) {
  run("--rounds 4", "(sleep 0.2; sleep 300 & echo $! >bystander) & exec");
  ASSERT_EQ(results().runs.size(), 8U);
  const pid_t bystander = std::stoi(read_file(folder_ / "bystander"));
  EXPECT_EQ(::kill(bystander, SIGTERM), 0) << "which was there to the end";
}

TEST_F(OwnTrainer, ThatTellsWhyAndThenAbortsFailedForWhatItTold) {
  trainer("trainer.sh", cat(kStart, R"(say '{"event":"error","status":"oom","reason":"wants 90 GiB"}'
kill -ABRT $$
)"));
  EXPECT_EQ(run("--rungs 00 --rounds 1").code, 5);
  EXPECT_EQ(results().runs[0].status, Status::oom) << results().runs[0].reason;
}

TEST_F(OwnTrainer, RanksAreStartedByTheHarnessOrByItsCommand) {
  const std::string rank_0 =
      cat("if [ $RANK = 0 ]; then loss=5; else loss=null; fi\n", kRankStarts, kRankSteps);
  trainer("rank.sh", cat(rank_0, kEnd));
  write_file(
      folder_ / "own/launched.sh",
      cat("eval 'exec 3>\"$STEPLADDER_EVENTS_'$RANK'\"'; STEPLADDER_EVENTS=3\n", script(rank_0), kEnd));
  write_file(folder_ / "own/launch.sh", R"(ranks= WORLD_SIZE=$1; export WORLD_SIZE
for RANK in $(seq 0 $(($1 - 1))); do export RANK; sh launched.sh & ranks="$ranks $!"; done
for rank in $ranks; do wait $rank || exit 1; done
)");
  ladder_of(cat(kRanks, ",", kStartsRanks,
                R"(, {"name": "alone", "changes": "", "command": ["sh", "launch.sh", "{devices}"]})"));
  ASSERT_TRUE(ended(run("--devices 3"), 0));
  for (const stepladder::Run& one : results().runs) {
    const bool alone = one.variant == "alone";
    EXPECT_EQ(one.ranks.size(), alone ? 0U : 3U) << one.variant;
    EXPECT_EQ(one.config["world_size"], alone ? 1 : 3) << one.variant;
  }
  EXPECT_EQ(run("--devices 3 --overwrite --scaling strong").code, 2) << "they can't share 4 sequences";
  write_file(folder_ / "own/launched.sh", "[ $RANK = 0 ] && exit 7; sleep 100");
  EXPECT_EQ(run("--devices 3 --overwrite --rungs itself").code, 5);
}

TEST_F(OwnTrainer, RanksHaveNoEventsOfTheHarness) {
  trainer("rank.sh", cat(R"(loss=null; [ $RANK = 0 ] && loss=5
say '{"event":"exit","status":7}'
)",
                         kRankStarts, kRankSteps, R"(say '{"event":"measured","energy_j":1}'
say '{"event":"energy","unknown":"forged"}'
)",
                         kEnd));
  ladder_of(kRanks);
  EXPECT_EQ(run("--devices 2").code, 0) << results().runs.at(0).reason;
}

TEST_F(OwnTrainer, RanksThatTrainDifferentlyAreNoRun) {
  trainer("rank.sh", cat(R"(loss=null; dtype=fp8; [ $RANK = 0 ] && loss=5 && dtype=bf16
say '{"event":"start","rank":'$RANK',"config":{"B":4,"T":32,"world_size":2,"dtype":"'$dtype'","local":'$RANK'}}'
)",
                         kRankSteps, kEnd));
  ladder_of(kRanks);
  EXPECT_EQ(run("--devices 2").code, kExitFailed);
  EXPECT_TRUE(ended(results().runs.at(0), Status::crash, {"dtype", "bf16", "fp8", "rank 1"}));
  trainer("rank.sh", read_file(folder_ / "own/rank.sh")
                         .replace(read_file(folder_ / "own/rank.sh").find("dtype=fp8"), 9, "dtype=bf16"));
  EXPECT_EQ(run("--devices 2 --overwrite").code, 0) << "what else a rank records is its own";
}

TEST_F(OwnTrainer, RanksThatStopAtDifferentStepsAreNoRun) {
  trainer("rank.sh", cat("loss=null; steps=4; [ $RANK = 0 ] && loss=5 && steps=40\n", kRankStarts,
                         R"(i=0; while [ $i -lt $steps ]; do sleep 0.01
say '{"event":"step","step":'$i',"step_ms":'$((1 + 8 / (i + 1)))',"loss":'$loss'}'; i=$((i + 1))
done
say '{"event":"eval","step":'$i',"val_loss":2}'
)",
                         kEnd));
  ladder_of(kRanks);
  EXPECT_EQ(run("--devices 2 --until-loss 3 --max-steps 100 --eval-every 40").code, kExitFailed);
  EXPECT_TRUE(ended(results().runs.at(0), Status::crash, {"rank 0 40", "rank 1 4"}));
}

TEST_F(OwnTrainer, WhoseCommandStartsItsRanksTakesNoLauncher) {
  ladder_of(kStartsRanks);
  EXPECT_TRUE(
      ended(run("--devices 2 --interface lo --launcher false"), kExitUsage, {}, {"--launcher", "{devices}"}));
}

TEST_F(OwnTrainer, RanksOfACommandAreToBlameForWhatTheyTell) {
  write_file(folder_ / "own/launch.sh", R"(WORLD_SIZE=$1; export WORLD_SIZE
for RANK in $(seq 0 $(($1 - 1))); do export RANK; sh rank.sh & done
wait; exit 3
)");
  ladder_of(kStartsRanks);
  const std::string begins = cat("\n", kRankStarts);
  const auto run_ranks = [&](const std::string& body, const std::string& more = "") {
    write_file(folder_ / "own/rank.sh",
               cat("eval 'exec 3>\"$STEPLADDER_EVENTS_'$RANK'\"'; STEPLADDER_EVENTS=3\n", script(body)));
    EXPECT_EQ(run("--devices 2 --overwrite " + more).code, 5);
    return results().runs[0];
  };
  stepladder::Run one = run_ranks(
      cat(begins, R"([ $RANK = 1 ] && say '{"event":"error","status":"oom","reason":"no room on 1"}')"));
  EXPECT_EQ(one.status, Status::oom);
  EXPECT_EQ(one.reason, "rank 1: no room on 1");

  one = run_ranks(cat(begins, "[ $RANK = 1 ] && exit 7\n", kEnd));
  EXPECT_TRUE(says(one.reason, {"rank 1 ", "command", "exit status 3"}));

  one = run_ranks("[ $RANK = 1 ] && sleep 0.1 && exit 0" + begins + kEnd);
  EXPECT_TRUE(says(one.reason, {"rank 1"}));

  const std::string step = R"(say '{"event":"step","step":0,"step_ms":1,"loss":1}'
)";
  one = run_ranks(cat(begins, "[ $RANK = 1 ] && sleep 300\n", step, "sleep 300\n"), "--timeout 2");
  EXPECT_TRUE(ended(one, Status::timeout, {"rank 1: ", "2 s", "step 0"}));
}

// ---- gate

TEST_F(OwnTrainer, RenamedIsARowThatTheGateSkips) {
  std::filesystem::copy(folder_ / "own", folder_ / "new");
  replace_last(folder_ / "new/ladder.json", "01_fast", "01_last");
  const Outcome outcome = stepladder(
      "gate own new --ladder ladder.json --backend cpu --pairs 3 --max-pairs 3 --format github --out v.xml");
  EXPECT_TRUE(says(outcome.out, {"01_fast", "SKIPPED: only in BASE", "01_last", "SKIPPED: only in NEW"}));
  EXPECT_TRUE(says(read_file(folder_ / "v.xml"), {"tests=\"3\"", "skipped=\"2\""}));
}

TEST_F(OwnTrainer, IsAskedForItsVersionInEachFolderOfAGate) {
  ladder(R"(, "version": ["cat", "version"])");
  std::filesystem::copy(folder_ / "own", folder_ / "new");
  write_file(folder_ / "own/version", "1\n");
  write_file(folder_ / "new/version", "2\n");
  const std::string gate =
      "gate own new --ladder ladder.json --rungs 01 --backend cpu --pairs 3 --max-pairs 3 --format json ";
  EXPECT_EQ(parse_json(stepladder(gate).out)["rows"][0]["same_sources"], false);
  write_file(folder_ / "new/version", "1\n");
  EXPECT_EQ(parse_json(stepladder(gate).out)["rows"][0]["same_sources"], true);
  std::filesystem::remove(folder_ / "new/version");
  EXPECT_EQ(stepladder(gate).code, 2);
}

TEST_F(OwnTrainer, OfOtherSourcesDoesNotJoinACampaign) {
  write_file(folder_ / "plan.json", R"([{"name": "a", "about": "", "command": "run --rungs 00 --rounds 1"},
 {"name": "b", "about": "", "command": "run --rungs 01 --rounds 1"}])");
  const std::string campaign =
      "campaign --plan plan.json --ladder own/ladder.json --backend cpu --out c.json";
  ASSERT_EQ(stepladder(campaign + " --parts a").code, 0);
  trainer("trainer.sh", cat(kStart, kSteps, "# changed\n", kEnd));
  EXPECT_TRUE(ended(stepladder(campaign), 4, {}, {"sources of 00_slow", "--overwrite"}));
}

TEST_F(OwnTrainer, ThatIsToldAModelTrainsIt) {
  edit_ladder(R"("{steps}", "10")", R"("{steps}", "10", "{model}")");
  trainer("trainer.sh", cat(start_with(R"("model":"other")"), kSteps, kEnd));
  EXPECT_EQ(run("--rungs 01 --rounds 1").code, 5);
  EXPECT_TRUE(says(results().runs[0].reason, {"trains other", "gpt2-tiny"}));
}

TEST_F(OwnTrainer, MadeSlowerIsFoundByTheGate) {
  std::filesystem::copy(folder_ / "own", folder_ / "slower");
  for (const auto& [was, is] : {std::pair(R"("20"])", R"("21"])"), std::pair(R"("10"])", R"("11"])")})
    replace_last(folder_ / "slower/ladder.json", was, is);
  EXPECT_TRUE(ended(
      stepladder("gate own slower --ladder ladder.json --backend cpu --out v.xml --out v.md --out v.json"),
      1));
  EXPECT_EQ(parse_json(read_file(folder_ / "v.json"))["verdict"], "REGRESSION");
  EXPECT_TRUE(says(read_file(folder_ / "v.xml"), {"<testsuite ", "tests=\"2\" failures=\"2\"",
                                                  "name=\"01_fast\"", "<failure type=\"REGRESSION\""}));
  EXPECT_TRUE(says(read_file(folder_ / "v.md"), {"## Stepladder: REGRESSION"}));

  EXPECT_TRUE(
      ended(stepladder("gate own/ladder.json own/ladder.json --backend cpu --format github --out v.xml"), 0,
            {"::notice title=00_slow"}));
  EXPECT_TRUE(says(read_file(folder_ / "v.xml"), {"failures=\"0\""}));
  EXPECT_EQ(stepladder("gate own ours --ladder ladder.json").code, 2) << "no such folder";
  EXPECT_EQ(stepladder(cat("gate own slower --ladder ", folder_ / "own/ladder.json")).code, 2)
      << "one file for both";
  EXPECT_EQ(stepladder(cat("gate own/ladder.json ", STEPLADDER_BIN)).code, 4);
}

TEST_F(OwnTrainer, WhoseLadderAsksForAnotherBatchIsTrainedOnBasesAsTheGateSays) {
  ladder("", "own");
  std::filesystem::copy(folder_ / "own", folder_ / "new");
  const std::string gate =
      "gate own new --ladder ladder.json --backend cpu --rungs 01 --pairs 3 --max-pairs 3 --format json";
  const auto notes = [&] { return dump(parse_json(stepladder(gate).out)["notes"]); };
  EXPECT_FALSE(says(notes(), {"another workload"}));
  ladder(R"(, "batch": "largest")", "new");
  EXPECT_TRUE(says(notes(), {"another workload or batch"}));
}

TEST_F(OwnTrainer, WhoseAllocatorJittersIsNoRegressionAndOneThatIsExactIsToTheByte) {
  std::filesystem::copy(folder_ / "own", folder_ / "new");
  const auto trainers = [&](const std::string& base, const std::string& next) {
    for (const auto& [folder, memory] : {std::pair("own", base), std::pair("new", next)})
      write_file(folder_ / cat(folder, "/trainer.sh"),
                 script(cat(kStart, kSteps, "say '{\"event\":\"end\",\"memory_bytes\":{", memory, "}}'\n")));
    return stepladder(
        "gate own new --ladder ladder.json --backend cpu --rungs 01 --steps 3 --threshold 5 --format json");
  };
  const std::string jitters = R"("live_peak":'$((1000000000 + $$ * 7919 % 100003))')";
  Outcome outcome = trainers(jitters, jitters);
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_TRUE(parse_json(outcome.out)["rows"][0]["live_bytes"].contains("ratio"));
  outcome = trainers(R"("live_peak":1000000,"exact":true)", R"("live_peak":1000001,"exact":true)");
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  EXPECT_TRUE(
      says(parse_json(outcome.out)["rows"][0]["reason"].get<std::string>(), {"live memory grew by 1 B"}));
  for (const char* side : {"base", "new"}) expect_contract(folder_ / cat("reports/gate/", side, ".jsonl"));
  EXPECT_EQ(trainers(R"("live_peak":1,"exact":"yes")", jitters).code, 5) << "which is neither";
}

TEST_F(OwnTrainer, ThatRecordsSomethingElseIsRefusedAfterOnePair) {
  std::filesystem::copy(folder_ / "own", folder_ / "other");
  write_file(folder_ / "other/trainer.sh", script(cat(start_with(R"("dtype":"bf16")"), kSteps, kEnd)));
  trainer("trainer.sh", cat(start_with(R"("dtype":"fp32")"), kSteps, kEnd));
  EXPECT_TRUE(ended(stepladder("gate own other --ladder ladder.json --backend cpu --rungs 00 --results kept"),
                    4, {}, {"config.dtype", "fp32 / bf16"}));
  EXPECT_EQ(load_results(folder_ / "kept/base.jsonl").runs.size(), 1U);
}

TEST_F(OwnTrainer, ThatTurnsToOtherNumbersAtTheThirdPairPassesNoGate) {
  std::filesystem::copy(folder_ / "own", folder_ / "other");
  trainer("trainer.sh", cat(start_with(R"("dtype":"bf16")"), kSteps, kEnd));
  write_file(folder_ / "other/trainer.sh",
             script(cat(R"(echo . >>../count; dtype=bf16; [ $(wc -l <../count) -gt 2 ] && dtype=fp8
say '{"event":"start","config":{"B":'$1',"T":'$2',"dtype":"'$dtype'"}}'
)",
                        kSteps, kEnd)));
  EXPECT_TRUE(ended(
      stepladder("gate own other --ladder ladder.json --backend cpu --rungs 01 --pairs 5 --results kept"), 4,
      {}, {"01_fast", "config.dtype", "bf16", "fp8"}));
  EXPECT_EQ(load_results(folder_ / "kept/new.jsonl").runs.size(), 2U) << "those that are alike";
}

TEST_F(OwnTrainer, WhoseRecordedKeywordChangesBetweenRoundsIsRefusedByName) {
  trainer("trainer.sh", cat(R"(echo . >>../count
say '{"event":"start","config":{"B":'$1',"T":'$2',"hidden":'$(($(wc -l <../count) / 3))'}}'
)",
                            kSteps, kEnd));
  EXPECT_TRUE(ended(run("--rounds 3 --order forward"), 4, {}, {"00_slow", "config.hidden 0 / 1"}));
  EXPECT_EQ(results().runs.size(), 2U) << "the round before is kept";
}

TEST_F(OwnTrainer, IsNotGoneOnWithUnderOtherThreads) {
  ASSERT_EQ(run("--rounds 1", "OMP_NUM_THREADS=2").code, 0);
  const std::string before = read_file(folder_ / "r.json");
  for (const char* other :
       {"OMP_NUM_THREADS=1", "OMP_PROC_BIND=close OMP_NUM_THREADS=2", "env -u OMP_NUM_THREADS"})
    EXPECT_TRUE(ended(stepladder("resume r.json --rounds 3 --ladder own/ladder.json", other), 4, {},
                      {"environment", "OMP_"}))
        << other;
  EXPECT_EQ(read_file(folder_ / "r.json"), before) << "nothing was measured";
  EXPECT_EQ(stepladder("resume r.json --rounds 2 --ladder own/ladder.json", "OMP_NUM_THREADS=2").code, 0);
  ASSERT_EQ(run("--out other.json", "OMP_NUM_THREADS=1").code, 0);
  EXPECT_EQ(stepladder("compare r.json other.json").code, 4);
}

TEST_F(OwnTrainer, InAFileThatMixesConfigurationsIsNobodysRow) {
  ASSERT_EQ(run().code, 0);
  ASSERT_EQ(run("--out good.json").code, 0);
  Results file = results();
  for (stepladder::Run& one : file.runs) one.config["threads"] = one.round == 1 ? 1 : 2;
  for (const bool complete : {true, false}) {
    file.complete = complete;
    write_file(folder_ / "r.json", file_text(file));
    for (const char* command :
         {"report r.json --out p", "compare r.json good.json", "compare good.json r.json",
          "resume r.json --rounds 3 --ladder own/ladder.json", "export r.json --format csv",
          "plan-run r.json", "run --ladder own/ladder.json --backend cpu --out r.json --resume"})
      EXPECT_TRUE(ended(stepladder(command), 4, {}, {"r.json", "config.threads 2 / 1"})) << command;
    EXPECT_TRUE(ended(stepladder("history . --format markdown"), 0, {"skipped ./r.json", "config.threads"}));
  }
}

TEST_F(OwnTrainer, OfAnotherLadderWithTheSameRungsIsAnotherRow) {
  ASSERT_EQ(run("--model gpt2 --out a.json").code, 2) << "which no command takes";
  edit_ladder(R"("workload": {)", R"("workload": {"model": "same", )");
  ASSERT_EQ(run("--out a.json").code, 0);
  std::filesystem::copy(folder_ / "own", folder_ / "other");
  replace_last(folder_ / "other/ladder.json", "mine", "yours");
  ASSERT_EQ(stepladder("run --ladder other/ladder.json --backend cpu --out b.json").code, 0);
  EXPECT_TRUE(ended(stepladder("compare a.json b.json"), 4, {}, {"ladder mine / yours"}));
  EXPECT_TRUE(
      ended(stepladder("gate own/ladder.json other/ladder.json --backend cpu"), 4, {}, {"mine", "yours"}));
  const Json history = parse_json(stepladder("history . --format json").out);
  EXPECT_EQ(history["series"].size(), 4U);
  EXPECT_EQ(history["series"][0]["settings"], "ladder mine");

  ASSERT_EQ(
      stepladder("calibrate --ladder own/ladder.json --backend cpu --rungs 01 --pairs 3 --out n.json").code,
      0);
  expect_contract(folder_ / "n.json");
  EXPECT_EQ(stepladder("compare a.json a.json --noise n.json").code, 3);
  EXPECT_TRUE(ended(stepladder("compare b.json b.json --noise n.json"), 4, {},
                    {"n.json", "plan.ladder", "mine", "yours"}));
}

TEST_F(OwnTrainer, ThatChangesLateLosesNoPairOfACalibration) {
  trainer("trainer.sh", cat("echo . >>../count; [ $(wc -l <../count) = 9 ] && echo '#' >>trainer.sh\n",
                            kStart, kSteps, kEnd));
  EXPECT_TRUE(
      ended(stepladder("calibrate --ladder own/ladder.json --backend cpu --rungs 01 --out noise.json"), 4, {},
            {"01_fast", "changed"}));
  EXPECT_EQ(parse_json(read_file(folder_ / "noise.json"))["variants"][0]["log_ratios"].size(), 4U);
}

TEST_F(OwnTrainer, ThatChangesInTheSecondGateLosesNoVerdictOfTheFirst) {
  trainer("trainer.sh", cat("echo . >>../count; [ $(wc -l <../count) = 8 ] && echo '#' >>trainer.sh\n",
                            kStart, kSteps, kEnd));
  EXPECT_TRUE(ended(stepladder("gate own own --ladder ladder.json --backend cpu --rungs 01 --pairs 3 "
                               "--max-pairs 3 --repeat 2 --out v.json"),
                    4, {"01_fast", "1 of 2"}));
  EXPECT_EQ(parse_json(read_file(folder_ / "v.json"))["rows"].size(), 1U);
}

TEST_F(OwnTrainer, IsMeasuredToItsEndWhoeverStopsReading) {
  run("; echo $? >code; } 2>&1 | head -n 1", "{ ");
  EXPECT_EQ(read_file(folder_ / "code"), "0\n");
  EXPECT_EQ(results().runs.size(), 4U);
  EXPECT_TRUE(results().complete);
}

TEST_F(OwnTrainer, IsFoundAlongThePathOfItsEnvironment) {
  std::filesystem::create_directory(folder_ / "own/tools");
  write_file(folder_ / "own/tools/mytool", "#!/bin/sh\nexec sh trainer.sh \"$@\"\n");
  std::filesystem::permissions(folder_ / "own/tools/mytool", std::filesystem::perms::owner_all);
  edit_ladder(
      R"("sh", "trainer.sh", "{batch}", "{seq}", "{steps}", "10"])",
      R"("mytool", "{batch}", "{seq}", "{steps}", "10"], "environment": {"PATH": "tools:/usr/bin:/bin"})");
  EXPECT_EQ(run("--rungs 01 --rounds 1").code, 0) << results().runs[0].reason;
}

TEST_F(OwnTrainer, MayBeAskedForLongerSequencesThanOurs) {
  EXPECT_EQ(run("--rungs 00 --rounds 1 --seq 65536 --batch 20000").code, 0);
  EXPECT_EQ(results().runs[0].config["T"], 65536);
  for (const char* option : {"--seq 65536", "--batch 20000"})
    EXPECT_TRUE(is_refused(stepladder(cat("run --backend cpu --rungs 00 --out ours.json ", option)),
                           {std::string(option).substr(0, 5), "range"}));
}

TEST_F(OwnTrainer, OfAnotherLadderInTheSameFolderIsNotWhatDiffShows) {
  ASSERT_EQ(stepladder("run --ladder own/ladder.json --backend cpu").code, 0);
  EXPECT_TRUE(says(stepladder("diff 00 01 --ladder own/ladder.json").out, {"2.00"}));
  edit_ladder(R"("10"])", R"("15"])");
  const Outcome outcome = stepladder("diff 00 01 --ladder own/ladder.json");
  EXPECT_TRUE(says(outcome.out, {"+ ", " 15", "Not measured"}));
  EXPECT_EQ(stepladder("diff 00 01 --ladder own/ladder.json --results reports/latest/results.jsonl").code, 2);
}

TEST_F(OwnTrainer, CommitIsThatOfItsFolderInAHookToo) {
  const std::string git = "git -c user.name=a -c user.email=a@b ";
  ASSERT_EQ(run_in(folder_, cat("cd own && git init -q . && git add . && ", git, "commit -qm x")).code, 0);
  ASSERT_EQ(run_in(folder_, cat("git init -q outer && cd outer && ", git, "commit -qm y --allow-empty")).code,
            0);
  ASSERT_EQ(run("--rungs 00 --rounds 1", cat("export GIT_DIR=", folder_ / "outer/.git", ";")).code, 0);
  const std::string commit = run_in(folder_, "git -C own rev-parse HEAD").out;
  EXPECT_EQ(text_at(results().context, "commit") + "\n", commit);
}

TEST_F(OwnTrainer, ThatLearnsOtherwiseIsFoundByTheFirstPairOfAGate) {
  std::filesystem::create_directories(folder_ / "other");
  ladder("", "other");
  write_file(folder_ / "other/trainer.sh", script(cat(kStart, kSteps, kEnd)));
  replace_last(folder_ / "other/trainer.sh", "$((9 - i))", "$((9 - i / 2))");
  EXPECT_TRUE(ended(stepladder("gate own other --ladder ladder.json --rungs 01 --results kept"), kExitFailed,
                    {"diverged", "% apart", "rung failed"}));
  EXPECT_EQ(load_results(folder_ / "kept/new.jsonl").runs.size(), 1U);
  EXPECT_TRUE(says(stepladder("gate own nowhere --ladder ladder.json").err, {"nowhere", "BASE and NEW"}));
}

TEST_F(OwnTrainer, IsGatedByTheWorkflowToCopy) {
  const std::string step = command_of_gate("/examples/gate.yml");
  for (const char* side : {"base", "new"}) {
    std::filesystem::create_directories(folder_ / cat(side, "/my"));
    write_file(folder_ / cat(side, "/my/trainer.sh"), read_file(folder_ / "own/trainer.sh"));
    ladder("", cat(side, "/my"));
  }
  EXPECT_TRUE(ended(stepladder(step), kExitOk, {"::notice", "01_fast"}));
  write_file(folder_ / "new/my/trainer.sh", "exit 1\n");
  EXPECT_TRUE(ended(stepladder(step), kExitFailed, {"::error"}));
  EXPECT_TRUE(says(read_file(folder_ / "verdict.md"), {"| 01_fast |"}));
  EXPECT_TRUE(says(read_file(folder_ / "verdict.xml"), {"errors=\"2\""}));
  // The rest is as in the workflow for Stepladder's rungs, without its step that builds them.
  const auto jobs = [](const std::string& file) {
    const std::string text = read_file(STEPLADDER_SOURCE_DIR + file);
    std::vector<std::string> steps;
    for (size_t at = text.find("\njobs:"); at != std::string::npos;) {
      const size_t end = text.find("\n      - ", at + 1);
      const std::string one = text.substr(at, end - at);
      if (!one.starts_with("\n      - name: build") && !one.starts_with("\n      - name: gate"))
        steps.push_back(one);
      at = end;
    }
    return steps;
  };
  EXPECT_GT(jobs("/examples/gate.yml").size(), 5U);
  EXPECT_EQ(jobs("/examples/gate.yml"), jobs("/.github/workflows/gate.yml"));
}

// ---- check-trainer

TEST_F(OwnTrainer, ThatIsFitPassesItsCheck) {
  EXPECT_TRUE(ended(stepladder("check-trainer sh own/trainer.sh {batch} {seq} {steps} 10"), 0,
                    {"4, 64", "9 to 7", "memory"}));
  Outcome outcome = stepladder("check-trainer --ladder own/ladder.json --rungs 01");
  EXPECT_TRUE(ended(outcome, 0, {"01_fast", "4, 32"}));
  EXPECT_FALSE(says(outcome.out, {"00_slow"}));
  outcome = stepladder("check-trainer --ladder own/ladder.json --batch 8 --seq 16 --rungs 01");
  EXPECT_TRUE(says(outcome.out, {"8, 16"})) << outcome.err;
  for (const auto& [wrong, name] :
       {std::pair("--ladder own/ladder.json 01", "--rungs"),
        std::pair("--rungs 00 sh own/trainer.sh", "--ladder"),
        std::pair("--ladder own/ladder.json --batsch 4", "--batsch"), std::pair("", "--ladder"),
        std::pair("own/ladder.json", "own/ladder.json: a ladder file is given by --ladder")})
    EXPECT_TRUE(is_refused(stepladder(cat("check-trainer ", wrong)), {name})) << wrong;
  for (const char* options : {"--", "--timeout 9 --", "--timeout=9 --batch 4 --"})
    EXPECT_EQ(stepladder(cat("check-trainer ", options, " sh own/trainer.sh {batch} {seq} {steps} 10")).code,
              0)
        << options;
}

TEST_F(OwnTrainer, WhoseRungsLearnOtherwiseThanTheFirstFailsItsCheckAsItWouldFailARun) {
  trainer(
      "other.sh",
      cat(kStart, loop(R"(sleep 0.01; say '{"event":"step","step":'$i',"step_ms":10,"loss":'$((19 - i))'}')"),
          kEnd));
  edit_ladder(R"("sh", "trainer.sh")", R"("sh", "other.sh")");
  const std::string check = "check-trainer --ladder own/ladder.json";
  EXPECT_TRUE(ended(stepladder(check), kExitFailed, {"wrong (diverged)", "loss 19", "tolerance"}));
  EXPECT_EQ(run("--rounds 1").code, kExitFailed);
  EXPECT_EQ(stepladder(check + " --rungs 01").code, 0) << "nothing to hold it against";
  edit_ladder(R"("tolerance": 0.01,)", "");
  EXPECT_EQ(stepladder(check).code, 0) << "losses are meant to differ";
}

TEST_F(OwnTrainer, IsToldWhatItIsReadyForAndWhatToAddForTheRest) {
  const std::string check = "check-trainer --ladder own/ladder.json --rungs ";
  EXPECT_TRUE(says(stepladder(check + "00").out, {"\"tolerance\"", "run.evaluated", "\"switches\""}));
  EXPECT_FALSE(says(stepladder(check + "01").out, {"\"tolerance\""}));
  const std::string end = R"(say '{"event":"end")";
  replace_last(folder_ / "own/trainer.sh", end, R"(say '{"event":"eval","step":'$3',"val_loss":4.5}'
[ "$3" != "$STEPLADDER_EVAL_EVERY" ] && exit 9
)" + end);
  const std::string said = stepladder(check + "00").out;
  EXPECT_FALSE(says(said, {"run.evaluated"})) << said;
  EXPECT_TRUE(says(said, {"{seed}", "{lr} and {steps}"}));
  std::string text = read_file(folder_ / "own/ladder.json");
  text.insert(text.find("\"rungs\""),
              R"("command": ["sh", "trainer.sh", "{batch}", "{seq}", "{steps}", "10", "{seed}", "{switches}"],
    "switches": [{"name": "faster", "on": ["x"]}], )");
  text.erase(text.find("\"rungs\""));
  text.erase(text.rfind(','));
  write_file(folder_ / "own/ladder.json", text + "}");
  EXPECT_TRUE(says(stepladder(check + "all").out, {"the same to the bit from two seeds"}));
  replace_last(folder_ / "own/trainer.sh", "$((9 - i))", "$((9 - i)).1${5:-0}");
  const std::string all = stepladder(check + "all").out;
  EXPECT_FALSE(says(all, {"{seed}", "two seeds"})) << all;
  EXPECT_TRUE(says(all, {"yes: switches faster"}));
}

TEST_F(OwnTrainer, WhosePythonLacksAModuleIsToldOfTheOptionThatNamesAnother) {
  write_file(folder_ / "own/train.py", "import no_such_module\n");
  for (int rung = 0; rung < 2; ++rung) edit_ladder(R"("sh", "trainer.sh")", R"("{python}", "train.py")");
  for (const char* command :
       {"check-trainer --ladder own/ladder.json", "gate own own --ladder ladder.json --pairs 3"})
    EXPECT_TRUE(ended(stepladder(command), kExitFailed, {"'no_such_module'", "--python"}));
  const Outcome outcome = stepladder("check-trainer python3 own/train.py");
  EXPECT_FALSE(says(outcome.out, {"--python"})) << "which it doesn't ask" << outcome.out;
  write_file(folder_ / "own/train.py", "import stepladder\n");
  const std::string isolated = stepladder("check-trainer python3 -I own/train.py").out;
  EXPECT_TRUE(says(isolated, {"'stepladder'", "PYTHONPATH"})) << isolated;
}

TEST_F(OwnTrainer, WhoseCommandTakesNoDataNeedsNone) {
  const std::string doctor = "doctor --ladder own/ladder.json";
  EXPECT_FALSE(says(stepladder(doctor).out, {"vocabulary"}));
  edit_ladder(R"("{steps}", "10"])", R"("{steps}", "10", "{data}"])");
  EXPECT_TRUE(says(stepladder(doctor).out, {"vocabulary"}));
}

TEST_F(OwnTrainer, WithoutAValidationLossIsNotTrainedFromFurtherSeeds) {
  EXPECT_TRUE(ended(stepladder("run --ladder own/ladder.json --backend cpu --out r.json --rungs 00 --seeds 4 "
                               "--steps 5 --certify-loss 5"),
                    kExitFailed, {}, {"00_slow", "validation loss", "run.evaluated"}));
  EXPECT_EQ(results().runs.size(), 1U);
  EXPECT_TRUE(says(stepladder("report r.json").out, {"Refused: a mean loss of 5"}))
      << "and not 'Not certified'";
}

TEST_F(OwnTrainer, ThatImportsACopyOfTheModuleIsTold) {
  const std::string start = cat("import stepladder\n", "run = stepladder.start(batch=4, seq=64)\n"),
                    steps = "while True:\n  with run.step() as step:\n    step.loss = 9.0 - run.done\n";
  write_file(folder_ / "own/train.py", start + steps);
  const auto check = [&] { return stepladder("check-trainer python3 own/train.py").out; };
  EXPECT_FALSE(says(check(), {"own/stepladder.py"})) << check();
  std::filesystem::copy(cat(STEPLADDER_SOURCE_DIR, "/python/trainer/stepladder.py"), folder_ / "own");
  EXPECT_TRUE(says(check(), {"note: ", "own/stepladder.py", "/python/trainer", "ok"}));
  write_file(folder_ / "own/stepladder.py", "");
  EXPECT_TRUE(says(check(), {"wrong", "note: ", "own/stepladder.py"}));
  std::filesystem::remove(folder_ / "own/stepladder.py");
  std::filesystem::create_symlink(cat(STEPLADDER_SOURCE_DIR, "/python/trainer/stepladder.py"),
                                  folder_ / "own/stepladder.py");
  EXPECT_FALSE(says(check(), {"own/stepladder.py"})) << "which is ours";
}

TEST_F(OwnTrainer, WhoseDtypeContradictsItsMathIsNoted) {
  const auto notes = [&](const std::string& math, const std::string& dtype) {
    trainer("trainer.sh", cat(start_with(cat(R"("dtype":")", dtype, "\"")), kSteps, kEnd));
    ladder(math);
    const std::string check = stepladder("check-trainer --ladder own/ladder.json --rungs 01").out;
    EXPECT_EQ(run("--rungs 01 --rounds 1 --overwrite").code, 0);
    const std::string report = stepladder("report r.json").out;
    EXPECT_EQ(says(check, {"its dtype " + dtype}), says(report, {"its dtype " + dtype})) << check << report;
    return says(check, {"note: ", "\"math\"", "its dtype " + dtype});
  };
  for (const auto& [math, dtype] :
       {std::pair("tf32", "bf16"), std::pair("half", "torch.float32"), std::pair("fp8", "float32")})
    EXPECT_TRUE(notes(cat(R"(, "math": ")", math, "\""), dtype)) << math << " " << dtype;
  for (const auto& [math, dtype] :
       {std::pair("half", "bfloat16"), std::pair("fp8", "bf16"), std::pair("half", "mine")})
    EXPECT_FALSE(notes(cat(R"(, "math": ")", math, "\""), dtype)) << math << " " << dtype;
  EXPECT_FALSE(notes("", "bf16")) << "which contradicts nothing";
}

TEST_F(OwnTrainer, WhoseLadderNamesItsModelIsToldThatMfuNeedsItsMathToo) {
  edit_ladder(R"("workload": {)", R"("workload": {"model": "gpt2", )");
  EXPECT_TRUE(says(stepladder("check-trainer --ladder own/ladder.json --rungs 01").out,
                   {"note: ", "\"math\"", "MFU"}));
  ASSERT_EQ(run("--rounds 1").code, 0);
  const Json measured = json();
  for (const Json& rung : measured["plan"]["ladder"]["rungs"]) EXPECT_TRUE(rung["math"].is_null());
  EXPECT_EQ(stepladder("report r.json").code, 0) << "and its file is read again";
  ladder(R"(, "math": "half")");
  EXPECT_FALSE(says(stepladder("check-trainer --ladder own/ladder.json --rungs 01").out, {"MFU"}));
}

TEST_F(OwnTrainer, MayHaveARungOfAnotherBatchWhoseSpeedIsComparedPerToken) {
  ladder(R"(, "batch": 8)");
  ASSERT_EQ(run("--rounds 1").code, 0);
  const Results measured = results();
  EXPECT_EQ(measured.runs[0].config["B"], 4);
  EXPECT_EQ(measured.runs[1].config["B"], 8);
  EXPECT_EQ(json()["plan"]["own_batch"]["01_fast"], 8);
  const Json rows = json()["variants"];
  EXPECT_DOUBLE_EQ(rows[1]["speedup_previous"]["ratio"], 4.0) << "half the time for twice the tokens";
  EXPECT_EQ(stepladder("resume r.json --rounds 2 --ladder own/ladder.json").code, 0);
  ASSERT_EQ(run("--rounds 1 --batch 2 --overwrite").code, 0);
  EXPECT_EQ(results().runs[1].config["B"], 2) << "as asked for";
  for (const char* wrong : {R"("half")", "0", "1.5", "[4]"}) {
    ladder(cat(R"(, "batch": )", wrong));
    EXPECT_TRUE(ended(run("--overwrite"), kExitUsage, {}, {"rungs[1]", "batch"})) << wrong;
  }
}

/// A ladder with a trainer of two switches: a step takes 20 ms, 10 with --fast, 16 with --faster, 6 with
/// both.
class Switches : public OwnTrainer {
 protected:
  Switches() {
    trainer("train.sh", R"(say() { printf '%s\n' "$1" >&$STEPLADDER_EVENTS; }
batch=$1 seq=$2 fast='' faster=''
for word; do
  case $word in --fast) fast=1 ;; --faster) faster=1 ;; --breaks) exit 7 ;; esac
done
case $fast$faster in 11) ms=6 ;; 1) ms=${fast:+10} ;; *) ms=20 ;; esac
[ -z "$faster" ] || [ -n "$fast" ] || ms=16
say '{"event":"start","config":{"B":'$batch',"T":'$seq'}}'
for i in $(seq 0 $(($STEPLADDER_STEPS - 1))); do
  sleep $(printf 0.0%02d $ms)
  say '{"event":"step","step":'$i',"step_ms":'$ms',"loss":'$((9 - i))'}'
done
say '{"event":"end"}'
)");
    switched(
        R"([{"name": "fast", "on": ["--fast"]}, {"name": "faster", "on": ["--faster"], "off": ["--usual"]}])");
  }
  void switched(const std::string& switches, const std::string& more = "") {
    write_file(folder_ / "own/ladder.json", cat(R"({"name": "mine",
 "workload": {"batch": [4], "seq": 32, "steps": 4, "warmup": 1, "rounds": 2},
 "command": ["sh", "train.sh", "{batch}", "{seq}", "{switches}"], "switches": )",
                                                switches, more, "}\n"));
  }
  Outcome ablate(const std::string& more = "") {
    return stepladder("ablate --ladder own/ladder.json --backend cpu --out r.json --overwrite " + more);
  }
  /// The ratio of each kind of gain of a switch, by kind.
  std::map<std::string, double> gains_of(const std::string& name) const {
    std::map<std::string, double> gains;
    for (const Json& row : Json(json()["ablations"]))
      for (const char* kind : {"without", "only"})
        if (row["rung"] == name && row.contains(kind)) gains[kind] = row[kind]["ratio"];
    return gains;
  }
};

TEST_F(Switches, AreLeftOutAndTakenAlone) {
  ASSERT_TRUE(ended(ablate(), 0));
  EXPECT_EQ(gains_of("fast"), (std::map<std::string, double>{{"without", 16.0 / 6}, {"only", 2.0}}));
  EXPECT_EQ(gains_of("faster"), (std::map<std::string, double>{{"without", 10.0 / 6}, {"only", 1.25}}));
  EXPECT_FALSE(json().contains("interactions"));
  EXPECT_EQ(json()["plan"]["ladder"]["switches"].size(), 2U);
}

TEST_F(Switches, InPairsTellHowTheyInteract) {
  ASSERT_EQ(ablate("--pairs --rounds 1").code, 0);
  const Json rows = json()["interactions"];
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["switches"], Json({"fast", "faster"}));
  EXPECT_DOUBLE_EQ(rows[0]["both"]["ratio"], 20.0 / 6);
  EXPECT_DOUBLE_EQ(rows[0]["interaction"]["value"], 20.0 / 6 / (2.0 * 1.25));
  const std::string report = stepladder("report r.json").out;
  EXPECT_TRUE(says(report, {"fast, faster", "3.333", "1.333", "interaction", "all_off"}));
  EXPECT_FALSE(says(report, {"ladder gain"})) << "switches have no place in a ladder";
}

TEST_F(Switches, UntilALossAreJudgedByStepsByTimeAndByBoth) {
  std::string text = read_file(folder_ / "own/train.sh");
  // --fast learns half as fast: a loss of 2 takes 28 steps in place of 14.
  text.insert(text.find("\ndone\nsay") + 1, R"(  left=$((900 - (i + 1) * ${rate:=$((fast ? 25 : 50))}))
  say '{"event":"eval","step":'$((i + 1))',"val_loss":'$((left / 100)).$(printf %02d $((left % 100)))'}'
  [ $left -gt 200 ] || break
)");
  write_file(folder_ / "own/train.sh", text);
  ASSERT_EQ(ablate("--pairs --rounds 1 --until-loss 2 --max-steps 40 --eval-every 1").code, 0);
  const Json file = json(), fast = file["ablations"][0], both = file["interactions"][0];
  EXPECT_NEAR(fast["only"]["to_loss"]["steps"]["value"].get<double>(), 0.5, 1e-9);
  EXPECT_NEAR(fast["only"]["to_loss"]["step_ms"]["value"].get<double>(), 2.0, 1e-9);
  EXPECT_NEAR(fast["only"]["to_loss"]["seconds"]["value"].get<double>(), 1.0, 1e-9);
  EXPECT_NEAR(both["seconds"]["value"].get<double>(), 20.0 / 6 / (2.0 * 1.25), 1e-9);
  EXPECT_NEAR(both["steps"]["value"].get<double>(), 1.0, 1e-9);
  const std::string report = stepladder("report r.json").out;
  EXPECT_TRUE(says(report, {"leave-one-out", "x steps", "0.50", "x seconds", "1.00", "of steps"}));
  EXPECT_LT(report.find("leave-one-out"), report.find("median ms")) << "what was asked for comes first";
}

TEST_F(Switches, AreGoneOnWithAndChosen) {
  ASSERT_EQ(ablate("--rungs faster --rounds 1").code, 0);
  EXPECT_EQ(gains_of("faster"), (std::map<std::string, double>{{"without", 1.25}, {"only", 1.25}}));
  EXPECT_TRUE(gains_of("fast").empty()) << "which stays off";
  EXPECT_EQ(stepladder("resume r.json --rounds 2 --ladder own/ladder.json").code, 0);
  EXPECT_EQ(results().rounds_begun(), 2);
}

TEST_F(Switches, AreAPartOfACampaign) {
  write_file(folder_ / "plan.json", R"([{"name": "one", "command": "ablate --rounds 1"}])");
  EXPECT_TRUE(
      ended(stepladder("campaign --ladder own/ladder.json --plan plan.json --backend cpu --out r.json"), 0));
  EXPECT_EQ(gains_of("fast").size(), 2U);
}

TEST_F(Switches, ThatBreakTheTrainerLeaveTheOthersTheirRows) {
  switched(R"([{"name": "fast", "on": ["--fast"]}, {"name": "broken", "on": ["--breaks"]}])");
  EXPECT_EQ(ablate("--rounds 1").code, kExitFailed);
  const Json rows = json()["ablations"];
  EXPECT_EQ(rows[0]["only"]["ratio"], 2.0);
  EXPECT_EQ(rows[1]["only"]["status"], "crash");
}

TEST_F(Switches, AreCheckedAloneAndLeftOutAsTheyAreAblated) {
  const std::string check = "check-trainer --ladder own/ladder.json";
  EXPECT_TRUE(ended(stepladder(check), 0, {"only/fast: sh train.sh 4 32 --fast --usual"}));
  switched(R"([{"name": "fast", "on": ["--fast"]}, {"name": "broken", "on": ["--breaks"]}])");
  const Outcome outcome = stepladder(check);
  EXPECT_TRUE(ended(outcome, kExitFailed, {"broken breaks it"}));
  EXPECT_FALSE(says(outcome.out, {"fast breaks it"})) << outcome.out;

  std::string text = read_file(folder_ / "own/train.sh");
  write_file(folder_ / "own/train.sh",
             text.insert(text.find("batch="), R"(case "$*" in *--x*) ;; *--y*--z*) exit 7 ;; esac
)"));
  const std::string three =
      R"([{"name": "x", "on": ["--x"]}, {"name": "y", "on": ["--y"]}, {"name": "z", "on": ["--z"])";
  switched(three + "}]");
  EXPECT_TRUE(ended(stepladder(check), kExitFailed, {"y, z"}));
  EXPECT_EQ(stepladder(check + " --rungs all_on").code, 0) << "which alone was asked for";
  switched(three + R"(, "excludes": ["y"]}])");
  EXPECT_EQ(stepladder(check).code, 0) << "y and z are never on at once";
}

TEST_F(Switches, MakeALadderOfAllOffAndAllOn) {
  ASSERT_EQ(run("--rounds 1").code, 0);
  ASSERT_EQ(results().runs.size(), 2U);
  EXPECT_EQ(results().runs[0].variant, "all_off");
  EXPECT_EQ(results().runs[1].summary->median_step_ms, 6.0);
  switched(R"([{"name": "fast", "on": ["--fast"]}])", R"(, "rungs": [{"name": "00", "changes": ""},
    {"name": "01", "changes": "", "switches": ["fast"]}, {"name": "02", "changes": "", "arguments": ["--faster"]}])");
  ASSERT_EQ(run("--rounds 1 --overwrite").code, 0);
  const Results all = results();
  std::vector<double> ms;
  for (const stepladder::Run& measured : all.runs) ms.push_back(measured.summary->median_step_ms);
  EXPECT_EQ(ms, (std::vector<double>{20, 10, 16}));
}

TEST_F(Switches, ThatMakeNoSenseAreRefused) {
  const auto refused = [&](const std::string& switches, const std::vector<std::string>& words,
                           const std::string& more = "") {
    switched(switches, more);
    EXPECT_TRUE(ended(ablate(), kExitUsage, {}, words)) << switches;
  };
  refused(R"([{"name": "a", "on": ["x"], "off": ["x"]}])", {"ladder.json", "a changes nothing"});
  refused(R"([{"name": "a", "on": ["x"]}, {"name": "a", "on": ["y"]}])", {"a is there twice"});
  refused(R"([{"name": "a", "on": ["x"], "excludes": ["b"]}])", {"a excludes b"});
  refused(R"([{"name": "a", "on": "x"}])", {"switches[0]", "on"});
  refused(R"([{"name": "a", "onn": ["x"]}])", {"'onn'", "did you mean on?"});
  refused(R"([{"name": "a", "on": ["x"]}])", {"no switch", "b"},
          R"(, "rungs": [{"name": "00", "changes": "", "switches": ["b"]}])");
  refused(R"([{"name": "a", "on": ["x"], "excludes": ["b"]}, {"name": "b", "on": ["y"]}])",
          {"a and b exclude each other", "--rungs"});
  std::string many;
  for (int i = 0; i < 13; ++i) many += cat(i == 0 ? "[" : ", ", R"({"name": "s)", i, R"(", "on": ["x"]})");
  refused(many + "]", {"13", "12"});
  ladder();
  EXPECT_TRUE(says(ablate().err, {"own/ladder.json", "\"switches\""}));
  EXPECT_TRUE(says(stepladder("ablate --pairs").err, {"--pairs", "--ladder"}));
  switched(R"([{"name": "a", "on": ["x"]}])");
  EXPECT_TRUE(says(ablate("--rungs b").err, {"--rungs", "b"}));
  for (const char* kind : {"without", "only", "both"}) {
    const std::string named = cat(R"({"name": ")", kind, "\"");
    std::string text = read_file(folder_ / "own/ladder.json");
    write_file(folder_ / "own/ladder.json", named + text.substr(text.find(',')));
    EXPECT_TRUE(says(ablate().err, {kind, "ablations"}));
  }
}

TEST_F(OwnTrainer, ThatTheDocsHaveForAShellPassesItsCheck) {
  const std::string page = read_file(cat(STEPLADDER_SOURCE_DIR, "/docs/trainer-reference.md"));
  const size_t begin = page.find("say() {");
  ASSERT_NE(begin, std::string::npos);
  write_file(folder_ / "own/docs.sh", page.substr(begin, page.find("```", begin) - begin));
  EXPECT_TRUE(ended(stepladder("check-trainer sh own/docs.sh"), 0));
}

TEST_F(OwnTrainer, WithoutALadderFileIsToldOfNoneOfIts) {
  const Outcome outcome =
      stepladder("check-trainer --model gpt2 sh own/trainer.sh {batch} {seq} {steps} 10 {model}");
  EXPECT_TRUE(ended(outcome, 0, {"\"tolerance\"", "\"switches\"", "\"math\""}));
  EXPECT_FALSE(says(outcome.out, {"its ladder file"})) << outcome.out;
}

TEST_F(OwnTrainer, WithABatchBuiltInIsCheckedAsItIsRun) {
  edit_ladder("{batch}", "8");
  EXPECT_EQ(run("--rungs 01").code, kExitFailed);
  EXPECT_TRUE(says(results().runs.at(0).reason, {"B=8", "4"})) << results().runs[0].reason;
  EXPECT_TRUE(ended(stepladder("check-trainer --ladder own/ladder.json --rungs 01"), kExitFailed,
                    {results().runs[0].reason}));
  EXPECT_EQ(stepladder("check-trainer sh own/trainer.sh 8 {seq} {steps} 10").code, 0)
      << "alone it has the batch that it has";
  EXPECT_TRUE(ended(stepladder("check-trainer --batch 4 sh own/trainer.sh 8 {seq} {steps} 10"), kExitFailed,
                    {"B=8", "4"}))
      << "but not another one that was asked for";
}

TEST_F(OwnTrainer, ThatIsBrokenIsToldWhatIsWrong) {
  const auto step = [](const std::string& fields) {
    return cat("say '{\"event\":\"step\",", fields, "}'\n");
  };
  const std::string first = step(R"("step":0,"step_ms":10,"loss":5)");
  struct Case {
    const char* name;
    std::string body;
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {"tells nothing", "echo training\n", {"STEPLADDER_EVENTS"}},
      {"writes what is no number as C does",
       cat(kStart, step(R"("step":0,"step_ms":102.51234567,"device_ms":102.41234567,"loss":nan)")),
       {"\"loss\":nan", "null"}},
      {"ends no line", "printf '%s' '{\"event\":\"start\"}' >&$STEPLADDER_EVENTS\n", {"newline"}},
      {"has no B", "say '{\"event\":\"start\",\"config\":{\"T\":64}}'\n", {"B"}},
      {"has no loss", cat(kStart, step(R"("step":0,"step_ms":10)")), {"step 0", "loss"}},
      {"diverges",
       cat(kStart, step(R"("step":0,"step_ms":0.1,"loss":5)"), step(R"("step":1,"step_ms":0.1,"loss":null)"),
           step(R"("step":2,"step_ms":0.1,"loss":5)"), kEnd),
       {"diverged", "step 1"}},
      {"evaluates after steps to come",
       cat(kStart, first, "say '{\"event\":\"eval\",\"step\":9,\"val_loss\":1}'\n", kEnd),
       {"9 steps", "1 are done"}},
      {"fails", cat(kStart, "echo 'no such file: x.bin' >&2; exit 3\n"), {"3", "x.bin"}},
      {"hangs", cat(kStart, "sleep 100\n"), {"timeout"}},
      {"tells too much of what nobody knows",
       cat(kStart, "yes '{\"event\":\"note\",\"text\":\"", std::string(9000, 'x'),
           "\"}' >&$STEPLADDER_EVENTS\n"),
       {"floods", "note"}},
      {"speaks another version",
       "say '{\"event\":\"start\",\"protocol\":2,\"config\":{}}'\n",
       {"protocol", "2"}},
  };
  for (const Case& c : cases) {
    trainer("broken.sh", c.body);
    const Outcome outcome =
        stepladder(cat("check-trainer --timeout ", c.name == std::string("hangs") ? 2 : 60,
                       " sh own/broken.sh {batch} {seq} {steps} 1"));
    EXPECT_TRUE(ended(outcome, 5, {"wrong"})) << c.name;
    EXPECT_EQ(says(outcome.out, {"last words"}), c.name == std::string("fails")) << outcome.out;
    for (const std::string& part : c.says) EXPECT_TRUE(says(outcome.out, {part})) << c.name;
  }
  EXPECT_TRUE(ended(stepladder("check-trainer nowhere/trainer"), 5, {"wrong", "nowhere/trainer"}));
  EXPECT_TRUE(ended(stepladder("check-trainer --stepz 3 sh own/trainer.sh"), 2, {}, {"--stepz"}));
  EXPECT_TRUE(ended(stepladder("check-trainer --steps 0 sh own/trainer.sh"), 2, {}, {"steps"}));
}

TEST_F(OwnTrainer, WhoseProgressBarComesBeforeItsErrorIsTheErrorThatCounts) {
  trainer("trainer.sh", "printf '1/2\\r2/2\\r \\033[31mno data\\033[0m\\n\\t' >&2; exit 1\n");
  EXPECT_EQ(run("--rungs 00 --rounds 1").code, 5);
  EXPECT_EQ(results().runs[0].reason, "exit status 1 (no data)");
}

TEST_F(OwnTrainer, MayTellNullWhatIsNotRequiredAndWhatNobodyKnows) {
  trainer("trainer.sh", R"(say() { printf '%s\n' "$1" >&$STEPLADDER_EVENTS; }
say '{"event":"start","protocol":null,"backend":null,"rank":null,"host":null,"device":null,"startup_ms":null,"memory_by_name":null,"config":{"B":'$1',"T":'$2'}}'
say '{"event":"exit","status":1}'
say '{"event":"profile","profile":3}'
for i in $(seq 0 $(($3 - 1))); do
  sleep 0.01
  say '{"event":"step","step":'$i',"step_ms":10,"loss":'$((9 - i))',"device_ms":null,"grad_norm":null,"power_w":"x","temperature_c":40.5}'
done
say '{"event":"end","memory_bytes":{"live_peak":null},"skipped_steps":"none","compile":3}'
)");
  EXPECT_TRUE(ended(stepladder("check-trainer sh own/trainer.sh {batch} {seq} {steps}"), 0));
}

TEST_F(OwnTrainer, TakesOptionsThroughItsEnvironment) {
  trainer("trainer.sh", "set -- $BATCH $SEQ $3 $4\n" + read_file(folder_ / "own/trainer.sh"));
  write_file(folder_ / "own/ladder.json", R"({"name": "mine", "rungs": [{"name": "00_slow", "changes": "none",
    "environment": {"BATCH": "{batch}", "SEQ": "{seq}", "RATE": "{lr}"}, "command": ["sh", "trainer.sh", "", "", "{steps}", "10"]}]})");
  EXPECT_EQ(run("--lr 1e-3 --batch 8 --rounds 1").code, 0);
  EXPECT_EQ(results().runs[0].config["B"], 8);
  EXPECT_FALSE(says(stepladder("check-trainer --ladder own/ladder.json").out, {"{batch}"}));
  for (const char* option :
       {"--seed 3", "--deterministic", "--shuffle", "--val-data x.txt", "--loss-scale 3"})
    EXPECT_TRUE(ended(run(cat("--overwrite ", option)), 2, {}, {"mine"})) << option;
}

TEST_F(OwnTrainer, WhoseStepsFillLittleOfItsTimeIsWarnedOf) {
  const char* in_seconds =
      R"(sleep 0.03; say '{"event":"step","step":'$i',"step_ms":0.03,"loss":'$((9 - i))'}')";
  trainer("trainer.sh", cat(kStart, loop(in_seconds), kEnd));
  EXPECT_TRUE(
      says(stepladder("check-trainer --ladder own/ladder.json --rungs 00").out, {"note", "milliseconds"}));
  EXPECT_TRUE(ended(run("--rungs 00"), 0, {"milliseconds"}));
  expect_contract(folder_ / "r.json");
}

TEST_F(OwnTrainer, MayEvaluateForLongBetweenSteps) {
  const char* evaluates = R"(say '{"event":"step","step":'$i',"step_ms":0.03,"loss":9}'; sleep 0.03
say '{"event":"eval","step":'$((i + 1))',"val_loss":'$((8 - i))'}')";
  trainer("trainer.sh", cat(kStart, loop(evaluates), kEnd));
  const Outcome outcome = run("--rungs 00 --until-loss 1 --eval-every 1 --max-steps 3 --rounds 1");
  EXPECT_EQ(results().runs[0].status, Status::ok) << results().runs[0].reason;
  EXPECT_FALSE(says(outcome.out, {"milliseconds"})) << outcome.out;
}

TEST_F(OwnTrainer, ThatHasToldItsEndAndStaysIsEndedAndKept) {
  trainer("trainer.sh", cat(kStart, kSteps, kEnd, "sleep 300\n"));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(ended(run("--rungs 00 --rounds 1 --timeout 3 --quiet"), 0, {}, {"00_slow", "10 s"}))
      << "which it has kept to"
      << "what took so long: ";
  EXPECT_EQ(results().runs[0].status, Status::ok);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST_F(OwnTrainer, ThatNeverEvaluatesEndsSoonWhereALossIsToBeReached) {
  EXPECT_EQ(run("--rungs 00 --until-loss 2 --eval-every 2 --max-steps 100 --rounds 1").code, 5);
  EXPECT_TRUE(ended(results().runs[0], Status::crash, {"validation loss", "run.evaluated"}));
}

TEST_F(OwnTrainer, WhoseValidationLossIsNotFiniteHasDiverged) {
  trainer("trainer.sh", cat(kStart, kSteps, R"(say '{"event":"eval","step":'$i',"val_loss":null}'
)",
                            kEnd));
  EXPECT_EQ(run("--rungs 00 --until-loss 2 --eval-every 2 --max-steps 4 --rounds 1").code, kExitFailed);
  EXPECT_TRUE(ended(results().runs[0], Status::diverged, {"validation loss", "finite"}));
}

TEST_F(OwnTrainer, WithoutASeedIsSaidToTrainFromTheSameOne) {
  trainer("trainer.sh", cat(kStart, kSteps, R"(say '{"event":"eval","step":'$i',"val_loss":1}'
)",
                            kEnd));
  const std::string until = "--rungs 00 --until-loss 2 --eval-every 2 --max-steps 4 --rounds 1";
  EXPECT_TRUE(says(run(until).err, {"00_slow", "{seed}"}));
  const std::string report =
      run("--rungs 00 --until-loss 2 --eval-every 2 --max-steps 4 --rounds 2 --overwrite").out;
  EXPECT_TRUE(says(report, {"ignores its seed", "first evaluation in 2 of 2"}));
  edit_ladder(R"("20"])", R"("20", "{seed}"])");
  EXPECT_FALSE(says(run(until + " --overwrite").err, {"{seed}"}));
}

TEST_F(OwnTrainer, ThatReachesTheLossBeforeAStepIsTimedIsToldSo) {
  trainer("trainer.sh", cat(kStart, R"(sleep 0.01
say '{"event":"step","step":0,"step_ms":10,"loss":1}'
say '{"event":"eval","step":1,"val_loss":1}'
)",
                            kEnd));
  EXPECT_EQ(run("--rungs 00 --until-loss 2 --eval-every 2 --warmup 1 --rounds 1").code, 5);
  EXPECT_TRUE(ended(results().runs[0], Status::crash, {"1", "--warmup"}));
}

TEST_F(OwnTrainer, WhoseCommandIsNotThereIsARowBesideTheOthers) {
  write_file(folder_ / "own/ladder.json", R"({"name": "mine",
 "workload": {"batch": [4], "seq": 32, "steps": 3, "warmup": 1, "rounds": 1},
 "rungs": [{"name": "gone", "changes": "", "command": ["nowhere/trainer"]},
           {"name": "glued", "changes": "", "command": ["sh trainer.sh"]},
           {"name": "there", "changes": "", "command": ["sh", "trainer.sh", "{batch}", "{seq}", "{steps}", "10"]}]}
)");
  EXPECT_EQ(run().code, 5);
  ASSERT_EQ(results().runs.size(), 3U);
  EXPECT_TRUE(says(results().runs[0].reason, {"nowhere/trainer"}));
  EXPECT_TRUE(says(results().runs[1].reason, {"sh trainer.sh", "a list"}));
  EXPECT_EQ(results().runs[2].status, Status::ok);
}

TEST_F(OwnTrainer, OfAnotherModelIsNotComparedWithOurs) {
  for (const char* rungs : {"--rungs 00,stepladder/00", "--rungs 00,stepladder/00 --data x.bin"})
    EXPECT_TRUE(ended(run(cat("--peer stepladder ", rungs)), 2, {}, {"stepladder/00_fp32_baseline", "mine"}));
  EXPECT_TRUE(ended(stepladder("run --backend cpu --rungs 00 --peer own/ladder.json --out r.json"), 2, {},
                    {"mine/00_slow", "gpt2"}));
}

// ---- a ladder of four rungs in Python: run and reported

/// The path of a Python that can import `modules`; "" where none is found.
std::string python_with(const std::string& modules) {
  const char* const named = std::getenv("STEPLADDER_PYTHON");
  for (const std::string& python : {std::string(named ? named : ""),
                                    cat(STEPLADDER_SOURCE_DIR, "/.venv/bin/python"), std::string("python3")})
    if (!python.empty() && output_of({python, "-c", "import " + modules}, 60)) return python;
  return "";
}

TEST_F(OwnTrainer, OfTheSpeedrunReachesALossSoonerWithAllItsSwitchesOn) {
  const std::string python = python_with("torch; torch.nn.functional.rms_norm");
  if (python.empty()) GTEST_SKIP() << "no Python with PyTorch of 2.4 or newer";
  const Outcome outcome = stepladder(cat("run --ladder " STEPLADDER_SOURCE_DIR
                                         "/examples/speedrun/switches.json --data " STEPLADDER_SOURCE_DIR
                                         "/data/austen.txt --backend cpu --rounds 1 --until-loss 2.8 "
                                         "--max-steps 150 --eval-every 10 --out r.json --python ",
                                         python));
  ASSERT_TRUE(outcome.code == kExitOk || outcome.code == kExitInconclusive) << outcome.out << outcome.err;
  const Results measured = results();
  const auto &off = *measured.runs.at(0).summary->to_loss, &on = *measured.runs.at(1).summary->to_loss;
  EXPECT_TRUE(on.reached);
  EXPECT_LT(on.steps, off.steps);
}

/// The PyTorch ladder of examples/nanogpt, or without PyTorch a stand-in that sleeps and uses the same
/// stepladder module.
class PythonLadder : public OwnTrainer {
 protected:
  PythonLadder() : python_(python_with("torch; torch.compile")) {
    if (!python_.empty()) {
      std::filesystem::copy(STEPLADDER_SOURCE_DIR "/examples/nanogpt", folder_ / "base");
    } else {
      python_ = python_with("json");
      std::filesystem::create_directory(folder_ / "base");
      write_file(folder_ / "base/train.py", R"(import sys, time
import stepladder
batch, seq, ms = map(int, sys.argv[1:])
run = stepladder.start(batch, seq)
loss = 5.0
while True:
    with run.step() as step:
        time.sleep(ms / 1000)
        loss -= 0.125
        step.loss = loss
)");
      std::string rungs;
      for (int i = 0; i < 4; ++i)
        rungs += cat(i ? ",\n" : "", R"({"name": ")", i, R"(_rung", )",
                     i ? cat(R"("parent": ")", i - 1, "_rung\", ") : "",
                     R"("changes": "", "source": "train.py", "tolerance": 0.0,
 "command": ["{python}", "train.py", "{batch}", "{seq}", ")",
                     30 - 5 * i, "\"]}");
      write_file(
          folder_ / "base/ladder.json",
          cat(R"({"name": "stand-in", "workload": {"batch": [4], "seq": 64, "steps": 8, "warmup": 2}, "rungs": [)",
              rungs, "]}"));
    }
  }

  std::string python_;
};

TEST_F(PythonLadder, IsMeasuredRungByRungAndReported) {
  const std::string charts = python_with("matplotlib, jinja2");
  ASSERT_TRUE(ended(
      stepladder(cat("run --ladder base --backend cpu --rounds 2 --out r.json --python ", python_)), 0));
  const Json rows = json()["variants"];
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_GT(rows[3]["speedup_baseline"]["ratio"], 1.1);
  EXPECT_GT(rows[0]["memory_bytes"]["process_peak"], 1 << 20);
  expect_contract(folder_ / "r.json");
  if (charts.empty()) GTEST_SKIP() << "no Python with matplotlib and jinja2";
  EXPECT_TRUE(
      ended(stepladder("report r.json --out page", cat("export STEPLADDER_PYTHON=", charts, ";")), 0));
  EXPECT_TRUE(says(read_file(folder_ / "page/index.html"), {rows[3]["variant"]}));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "page/ladder.svg"));
}

}  // namespace
}  // namespace stepladder
