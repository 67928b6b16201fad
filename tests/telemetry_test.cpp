#include "bench/run/telemetry.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/results/file.h"
#include "bench/results/json.h"
#include "bench/run/child.h"
#include "tests/contract.h"
#include "tests/files.h"

namespace stepladder {
namespace {

/// An environment variable for as long as this lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Environment() { ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

DeviceState state_for(std::vector<std::string> reasons) {
  DeviceState state;
  state.throttle = std::move(reasons);
  return state;
}

TEST(DeviceState, HeatAndHardwareThrottleAFullPowerBudgetDoesNot) {
  for (const char* reason : {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"}) {
    EXPECT_EQ(state_for({reason}).throttled(), true) << reason;
    EXPECT_EQ(state_for({"sw_power_cap", reason}).throttled(), true) << reason;
  }
  for (const char* reason :
       {"gpu_idle", "applications_clocks", "sw_power_cap", "sync_boost", "display_clocks"})
    EXPECT_EQ(state_for({reason}).throttled(), false) << reason;
  EXPECT_EQ(state_for({}).throttled(), false);
  EXPECT_EQ(DeviceState().throttled(), std::nullopt) << "what is unknown is not claimed either way";
}

TEST(Telemetry, ReadsEveryQuantityInItsUnit) {
  const Environment library("STEPLADDER_NVML", STEPLADDER_FAKE_NVML);
  const Environment reasons("FAKE_NVML_REASONS", "0x24,0x400");
  const Telemetry telemetry("GPU-1");
  const DeviceState state = telemetry.sample();
  EXPECT_EQ(state.sm_mhz, 1755);
  EXPECT_EQ(state.memory_mhz, 2619);
  EXPECT_DOUBLE_EQ(state.power_w.value(), 698.5);
  EXPECT_EQ(state.temperature_c, 61);
  EXPECT_EQ(state.throttle, (std::vector<std::string>{"sw_power_cap", "sw_thermal_slowdown"}));
  EXPECT_EQ(telemetry.sample().throttle, std::vector<std::string>{"unknown_0x400"});
  EXPECT_EQ(telemetry.describe(),
            nlohmann::ordered_json::parse(R"({"library": "NVML 1.2.3", "power_limit_w": 700.0,
    "max_sm_mhz": 1980.0, "max_memory_mhz": 2619.0})"));
}

TEST(Telemetry, WhatTheDeviceDoesNotTellIsUnknownAndTheRestIsThere) {
  const Environment library("STEPLADDER_NVML", STEPLADDER_FAKE_NVML);
  const Environment powerless("FAKE_NVML_POWERLESS", "1");
  const DeviceState state = Telemetry("GPU-1").sample();
  EXPECT_EQ(state.power_w, std::nullopt);
  EXPECT_EQ(state.sm_mhz, 1755);
}

TEST(Telemetry, ALibraryThatIsMissingDamagedOrRefusesIsNamedAndTellsNothing) {
  const TempFolder folder;
  write_file(folder / "text.so", "no library");
  for (const std::string& path : {folder / "nowhere.so", folder / "text.so", std::string("libc.so.6")}) {
    const Environment library("STEPLADDER_NVML", path);
    const Telemetry telemetry("GPU-1");
    EXPECT_NE(telemetry.describe()["missing"].get<std::string>().find(path), std::string::npos);
    EXPECT_EQ(telemetry.sample().throttle, std::nullopt);
  }
  const Environment library("STEPLADDER_NVML", STEPLADDER_FAKE_NVML), error("FAKE_NVML_ERROR", "9");
  EXPECT_EQ(Telemetry("GPU-1").describe()["missing"], "NVML does not start: Driver Not Loaded");
}

TEST(Telemetry, TheCpuHasNoneAndMissesNothing) {
  const Telemetry telemetry("");
  EXPECT_TRUE(telemetry.describe().is_null());
  EXPECT_EQ(telemetry.sample().sm_mhz, std::nullopt);
}

/// What a real rung under the real harness leaves in its results.
Results measured(const TempFolder& folder) {
  const std::string out = folder / "results.json";
  const auto text = output_of({STEPLADDER_BIN "/stepladder",
                               "run",
                               "--backend",
                               "cpu",
                               "--rungs",
                               "00",
                               "--model",
                               "gpt2-tiny",
                               "--batch",
                               "1",
                               "--seq",
                               "8",
                               "--steps",
                               "5",
                               "--warmup",
                               "0",
                               "--rounds",
                               "1",
                               "--out",
                               out},
                              120);
  EXPECT_TRUE(text);
  expect_contract(out);
  return load_results(out);
}

TEST(Telemetry, EveryStepOfARunCarriesItAndThrottledOnesAreCounted) {
  const TempFolder folder;
  const Environment library("STEPLADDER_NVML", STEPLADDER_FAKE_NVML);
  const Environment reasons("FAKE_NVML_REASONS", "0x4,0x4,0x44,0x44,0x40");
  const Results results = measured(folder);
  ASSERT_EQ(results.runs.size(), 1U);
  const stepladder::Run& run = results.runs[0];
  ASSERT_EQ(run.steps.size(), 5U);
  for (const Step& step : run.steps) {
    EXPECT_EQ(step.device.sm_mhz, 1755);
    EXPECT_EQ(step.device.throttled(), step.step >= 2);
  }
  EXPECT_EQ(run.status, Status::ok) << "a throttled run is no failure";
  EXPECT_EQ(run.summary->throttled_steps, 3);
  EXPECT_EQ(run.summary->throttled, true);
  EXPECT_EQ(results.context["telemetry"]["library"], "NVML 1.2.3");
}

TEST(Telemetry, ARunWithoutNvmlHasNoColumnsOfItAndIsSaidToOnce) {
  const TempFolder folder;
  const Environment library("STEPLADDER_NVML", folder / "nowhere.so");
  const Results results = measured(folder);
  const Json run = to_json(results.runs.at(0));
  for (const char* field : {"sm_mhz", "memory_mhz", "power_w", "temperature_c", "throttle"})
    EXPECT_FALSE(run["steps"].contains(field)) << field;
  EXPECT_TRUE(run["summary"].at("throttled").is_null());
  EXPECT_NE(results.context["telemetry"]["missing"].get<std::string>().find("nowhere.so"), std::string::npos);
}

}  // namespace
}  // namespace stepladder
