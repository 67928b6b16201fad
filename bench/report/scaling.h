// How training scales over devices: what was measured, and apart from it what a model predicts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/base/statistics.h"
#include "bench/results/json.h"
#include "bench/results/results.h"

namespace stepladder {

/// A rung or peer on several devices, compared with one device.
struct ScaledRun {
  std::string variant;
  std::string against;  // itself on one device, else the nearest rung below that ran on one
  Json config;          // B is each device's
  int64_t devices = 2, machines = 1;
  int64_t one_batch = 0;  // batch on one device: the same B (weak), or that of all devices (strong)
  Estimate tokens_per_second;
  Estimate speedup;     // tokens/s over those of one device, in the same round
  Estimate efficiency;  // speedup / devices
  /// In weak scaling, by how much a step is longer than on one device, where nothing is communicated, in the
  /// same round: communication that compute waits for, and the ranks' waiting for each other.
  std::optional<Estimate> exposed_ms;
  /// Where the devices also trained as independent ranks, each by itself with only the steps beginning
  /// together: the efficiency of those ranks, which the slowest device and shared resources (power, host)
  /// lower, and by how much a step that communicates is longer than their step in the same round.
  std::optional<Estimate> independent_efficiency, communication_ms;
};
template <class Archive>
void fields(Archive& a, Any<ScaledRun> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, variant, config, devices, machines, against, one_batch, tokens_per_second,
                  speedup, efficiency, exposed_ms, communication_ms)
  a("apart_efficiency", x.independent_efficiency);  // the field's name in files since the first version
}

/// A config on one device, with the sequences of all devices if `strong`.
Json on_one_device(Json config, bool strong);

/// Runs in the order measured; empty where nothing ran on several devices, or its run on one device is
/// missing.
std::vector<ScaledRun> scaling(const Results& results);

/// What the model of bench/report/scaling_model.h expects of a rung or peer that was measured on one device
/// and on several; only for a device whose links it knows.
struct PredictedRun {
  std::string variant;
  int64_t batch = 0;  // of each device: weak scaling
  int64_t devices = 2, machines = 1;
  double tokens_per_second = 0.0, efficiency = 0.0;
};
template <class Archive>
void fields(Archive& a, Any<PredictedRun> auto& x) {
  STEPLADDER_EACH(STEPLADDER_FIELD, variant, batch, devices, machines, tokens_per_second)
  a("efficiency", x.efficiency);
}
std::vector<PredictedRun> predicted_scaling(const Results& results);

}  // namespace stepladder
