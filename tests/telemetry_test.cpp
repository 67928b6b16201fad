#include "bench/run/telemetry.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "bench/results/file.h"
#include "bench/results/run_json.h"
#include "bench/run/child.h"
#include "bench/run/energy.h"
#include "tests/contract.h"
#include "tests/files.h"
#include "tests/processes.h"
#include "tests/tokens.h"

namespace stepladder {
namespace {

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
  const Environment none("FAKE_NVML_MILLIWATTS", "0");
  EXPECT_EQ(Telemetry("GPU-1").sample().power_w, std::nullopt) << "no device draws nothing";
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
  EXPECT_TRUE(says(Telemetry("GPU-1").describe()["missing"], {"NVML", "Driver Not Loaded"}));
}

TEST(Telemetry, CountsTheProcessesThatKeepADeviceBusy) {
  const Environment library("STEPLADDER_NVML", STEPLADDER_FAKE_NVML);
  EXPECT_EQ(Telemetry("GPU-1").processes(), std::nullopt) << "a device that does not tell";
  const Environment processes("FAKE_NVML_PROCESSES", "2");
  EXPECT_EQ(Telemetry("GPU-1").processes(), 2) << "one that only holds memory is none";
}

/// A folder like /sys/class/powercap: two packages, one with a sub-zone, and the platform around both.
class Rapl {
 public:
  Rapl() {
    for (const auto& [zone, name] :
         {std::pair("intel-rapl:0", "package-0"), std::pair("intel-rapl:0:0", "core"),
          std::pair("intel-rapl:1", "package-1"), std::pair("intel-rapl:2", "psys")}) {
      energy_counter(folder_, zone, name, "1000000000");
      count(zone, 100e6);
    }
  }
  void count(const std::string& zone, double microjoules) {
    write_file(folder_ / cat(zone, "/energy_uj"), cat(std::llround(microjoules), "\n"));
  }
  std::string path() const { return folder_ / ""; }

 private:
  TempFolder folder_;
};

TEST(Telemetry, EnergyOfTheCpuIsThatOfAllPackagesAlsoWhenACounterBeginsAgain) {
  Rapl rapl;
  const Environment folder("STEPLADDER_RAPL", rapl.path());
  Telemetry telemetry("");
  const double before = telemetry.joules().value();
  rapl.count("intel-rapl:0", 990e6);
  rapl.count("intel-rapl:0:0", 990e6);  // is part of package 0's count
  rapl.count("intel-rapl:1", 107e6);
  EXPECT_NEAR(telemetry.joules().value() - before, 890 + 7, 1e-6);
  rapl.count("intel-rapl:0", 5e6);
  EXPECT_NEAR(telemetry.joules().value() - before, 890 + 7 + 15, 1e-6);
}

TEST(Telemetry, EnergyOfTheCpuIsNotThatOfThePlatformAroundIt) {
  Rapl rapl;
  const Environment folder("STEPLADDER_RAPL", rapl.path());
  Telemetry telemetry("");
  const double before = telemetry.joules().value();
  rapl.count("intel-rapl:0", 107e6);
  rapl.count("intel-rapl:2", 140e6);  // includes package 0's count
  EXPECT_NEAR(telemetry.joules().value() - before, 7, 1e-6);
}

TEST(Telemetry, ACounterThatBeginsAgainOutsideItsRangeIsUnknown) {
  const TempFolder folder;
  const Environment named("STEPLADDER_RAPL", folder / "");
  const std::string zone = folder / "intel-rapl:0";
  for (const char* range : {"", "100"}) {
    energy_counter(folder, "intel-rapl:0", "package-0", range);
    write_file(zone + "/energy_uj", "500");
    Telemetry telemetry("");
    EXPECT_EQ(telemetry.joules(), 0.0);
    write_file(zone + "/energy_uj", "5");
    EXPECT_EQ(telemetry.joules(), std::nullopt) << range;
    EXPECT_NE(telemetry.energy_unknown().find(zone), std::string::npos) << telemetry.energy_unknown();
  }
}

TEST(Telemetry, ACounterThatIsAPipeIsNotWaitedFor) {
  const TempFolder folder;
  const Environment named("STEPLADDER_RAPL", folder / "");
  const std::string zone = folder / "intel-rapl:0";
  std::filesystem::create_directory(zone);
  write_file(zone + "/name", "package-0\n");
  ASSERT_EQ(::mkfifo((zone + "/energy_uj").c_str(), 0600), 0);
  Telemetry telemetry("");
  EXPECT_EQ(telemetry.joules(), std::nullopt);
  EXPECT_NE(telemetry.energy_unknown().find(zone), std::string::npos) << telemetry.energy_unknown();
}

TEST(Telemetry, EnergyThatCannotBeReadIsUnknownAndSaysWhy) {
  const TempFolder empty;
  const Environment folder("STEPLADDER_RAPL", empty / "");
  Telemetry cpu("");
  EXPECT_EQ(cpu.joules(), std::nullopt);
  EXPECT_NE(cpu.energy_unknown().find(empty / ""), std::string::npos) << cpu.energy_unknown();
  const Environment library("STEPLADDER_NVML", STEPLADDER_FAKE_NVML), old("FAKE_NVML_POWERLESS", "1");
  Telemetry device("GPU-1");
  EXPECT_EQ(device.joules(), std::nullopt);
  EXPECT_NE(device.energy_unknown(), "");
}

/// An energy meter of a device whose counter reads these joules, one after the other.
struct Metered {
  explicit Metered(const char* joules) : counter("FAKE_NVML_JOULES", joules) {}
  const Environment library{"STEPLADDER_NVML", STEPLADDER_FAKE_NVML}, counter;
  Telemetry telemetry{"GPU-1"};
  EnergyMeter meter{telemetry};
};

TEST(EnergyMeter, ReadsTenTimesASecondAtMostUnlessAReadingIsDue) {
  Metered metered("100,100,103,109");
  EnergyMeter& meter = metered.meter;
  EXPECT_EQ(meter.after_step(false), 0.0);
  EXPECT_EQ(meter.after_step(false), std::nullopt);
  EXPECT_EQ(meter.after_step(true), 3.0);
}

TEST(EnergyMeter, LeavesOutWhatEvaluationsUse) {
  Metered metered("90,100,110,150,160,200,205");
  EnergyMeter& meter = metered.meter;
  meter.after_evaluation();
  EXPECT_EQ(meter.after_step(true), 10.0);
  meter.after_evaluation();
  EXPECT_EQ(meter.after_step(true), 20.0);
  meter.after_evaluation();
  EXPECT_EQ(meter.after_step(true), 25.0);
}

TEST(EnergyMeter, KnowsNothingOnceAnEvaluationComesWhereNoneIsDue) {
  Metered metered("90,100,110,150,160,200,205");
  EnergyMeter& meter = metered.meter;
  EXPECT_EQ(meter.after_step(true), 10.0);
  EXPECT_EQ(meter.unknown(), "");
  meter.after_step(false);
  meter.after_evaluation();
  EXPECT_EQ(meter.after_step(true), std::nullopt);
  EXPECT_NE(meter.unknown(), "");
}

TEST(EnergyMeter, KnowsNothingOnceAReadingBesideAnEvaluationFails) {
  for (const auto& [joules, steps] : {std::pair("90,100,x,150,160", 2), std::pair("90,100,x,160", 1)}) {
    Metered metered(joules);
    for (int i = 0; i < steps; ++i) metered.meter.after_step(true);
    metered.meter.after_evaluation();
    EXPECT_EQ(metered.meter.after_step(true), std::nullopt) << joules;
    EXPECT_NE(metered.meter.unknown(), "") << joules;
  }
}

/// Steps of `ms` with these energy readings, which some steps lack.
std::vector<Step> steps_of(double ms, const std::vector<std::optional<double>>& energy_j) {
  std::vector<Step> steps;
  for (const auto& joules : energy_j) {
    Step& step = steps.emplace_back();
    step.step_ms = ms;
    step.energy_j = joules;
  }
  return steps;
}

TEST(EnergyOfAStep, IsTheMeanBetweenTheFirstAndTheLastReadingAfterWarmUp) {
  const auto steps = steps_of(1000, {0.0, 900.0, {}, 1300.0, {}, 2000.0, 2600.0, {}});
  EXPECT_DOUBLE_EQ(energy_of(steps, 3).joules.value(), 1300.0 / 3) << "after step 4, and after step 7";
  EXPECT_DOUBLE_EQ(energy_of(steps, 2).joules.value(), 1700.0 / 5) << "from the end of warm-up";
  EXPECT_DOUBLE_EQ(energy_of(steps, 0).joules.value(), 2600.0 / 6);
}

TEST(EnergyMeter, KnowsNothingOnceTheCounterGoesBack) {
  Metered metered("90,100,95,130");
  EnergyMeter& meter = metered.meter;
  EXPECT_EQ(meter.after_step(true), 10.0);
  EXPECT_EQ(meter.after_step(true), std::nullopt);
  EXPECT_NE(meter.unknown(), "");
  EXPECT_EQ(meter.after_step(true), std::nullopt) << "how much it lost is not known";
}

TEST(EnergyOfAStep, IsUnknownWhereTheCounterStandsStillOrWentBack) {
  for (const std::vector<std::optional<double>>& counter :
       {std::vector<std::optional<double>>{0.0, 0.0, 0.0, 0.0},
        {5.0, 900.0, 900.0, 900.0},
        {9.0, 8.0, 7.0, 6.0}}) {
    const StepEnergy energy = energy_of(steps_of(1000, counter), 2);
    EXPECT_FALSE(energy.joules) << *energy.joules;
    EXPECT_NE(energy.unknown, "");
  }
}

TEST(EnergyOfAStep, IsUnknownWhereTheCounterHadNoTimeToMove) {
  EXPECT_TRUE(energy_of(steps_of(700, {0.0, 400.0, 900.0, 1300.0}), 1).joules) << "2.1 s";
  EXPECT_FALSE(energy_of(steps_of(600, {0.0, 400.0, 900.0, 1300.0}), 1).joules) << "1.8 s";
  EXPECT_NE(energy_of(steps_of(600, {0.0, 400.0, 900.0, 1300.0}), 1).unknown, "");
  EXPECT_FALSE(energy_of(steps_of(6000, {{}, {}}), 0).joules);
}

TEST(Telemetry, TheCpuHasNoneAndMissesNothing) {
  const Telemetry telemetry("");
  EXPECT_TRUE(telemetry.describe().is_null());
  EXPECT_EQ(telemetry.sample().sm_mhz, std::nullopt);
}

/// Results of a real rung measured by the real harness.
Results measured(const TempFolder& folder) {
  const std::string out = folder / "results.json";
  write_random_tokens(folder / "data.bin");
  const auto text = output_of(
      {"sh", "-c",
       cat(STEPLADDER_BIN "/stepladder run --backend cpu --rungs 00 --model gpt2-tiny --batch 1 --seq 8 "
                          "--steps 5 --warmup 0 --rounds 1 --data ",
           folder / "data.bin", " --out ", out)},
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
