#include "bench/run/energy.h"

#include <cmath>

#include "bench/base/text.h"
#include "bench/results/writer.h"
#include "model/error.h"

namespace stepladder {

std::optional<double> EnergyMeter::after_step(bool due) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  const auto now = Clock::now();
  was_due_ = due;
  if (!due && now - read_ < kPause) return std::nullopt;
  look_for_others(now);
  read_ = now;
  const auto joules = used();
  if (!joules) was_due_ = due && !first_;
  if (!joules || mixed_) return std::nullopt;
  last_ = *joules - evaluations_;
  return last_;
}

std::optional<double> EnergyMeter::used() {
  const auto joules = telemetry_.joules();
  if (!joules || !first_) return std::nullopt;
  went_back_ |= *joules - *first_ < used_;
  used_ = *joules - *first_;
  return went_back_ ? std::nullopt : std::optional(used_);
}

void EnergyMeter::after_evaluation() {
  const auto joules = used();
  mixed_ |= !was_due_ || (first_ && !joules);
  if (joules) evaluations_ = *joules - last_;
}

std::string EnergyMeter::unknown() const {
  return went_back_ ? kStill : mixed_ ? kMixed : telemetry_.energy_unknown();
}

void EnergyMeter::look_for_others(Clock::time_point now) {
  constexpr auto kPause = std::chrono::seconds(1);  // a utilization sample covers a second
  const bool begins = looked_ == Clock::time_point();
  if (!begins && now - looked_ < kPause) return;
  looked_ = now;
  const auto processes = telemetry_.processes();
  if (begins || !processes) return;  // ignore processes from before the first step
  shared_ = shared_.value_or(false) || *processes > 1;
}

void RankMeter::add_to(nlohmann::json& event) {
  const std::string kind = event["event"];
  if (kind == "start" && !telemetry_) start(event);
  if (kind == "eval" && meter_) meter_->after_evaluation();
  if (kind != "step") return;
  event.erase("energy_j");  // only the harness's reading counts
  if (asked_.clocks) event.update(Writer::write(telemetry_ ? telemetry_->sample() : DeviceState()));
  ++steps_;
  const auto joules = meter_ ? meter_->after_step(asked_.due.after(steps_)) : std::nullopt;
  // Energy counters count microjoules at best.
  if (joules) event["energy_j"] = std::round(*joules * 1e6) / 1e6;
}

void RankMeter::start(const nlohmann::json& event) {
  const auto text = [](const nlohmann::json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const std::string backend = text(event, "backend"),
                    told = event.contains("device") ? text(event["device"], "uuid") : "";
  const bool cpu = (backend.empty() ? asked_.backend : backend) == "cpu";
  const std::string uuid = cpu ? "" : told.empty() ? asked_.device : told;
  telemetry_ = &devices_.try_emplace(uuid, uuid).first->second;
  if (cpu || !told.empty() || (asked_.only && !uuid.empty()))
    meter_.emplace(*telemetry_);
  else
    unknown_ = "the trainer did not tell the uuid of its device";
}

RankMeter::Energy RankMeter::energy() const {
  return meter_ ? Energy{meter_->shared(), meter_->unknown()} : Energy{{}, unknown_};
}

StepEnergy energy_of(std::span<const Step> steps, size_t warmup) {
  const Step *first = nullptr, *last = nullptr;
  double ms = 0.0;  // between first and last
  double since = 0.0;
  for (size_t i = warmup > 0 ? warmup - 1 : 0; i < steps.size(); ++i) {
    if (first) since += steps[i].step_ms;
    if (!steps[i].energy_j) continue;
    if (!first) first = &steps[i];
    last = &steps[i];
    ms = since;
  }
  if (!first) return {{}, "the device's energy was not read"};
  if (ms < kLeastEnergyMs)
    return {{}, cat("its timed steps took less than ", fixed(kLeastEnergyMs * 1e-3, 0), " s")};
  if (*last->energy_j <= *first->energy_j) return {{}, kStill};
  return {(*last->energy_j - *first->energy_j) / static_cast<double>(last - first), ""};
}

}  // namespace stepladder
