#include "bench/verdict/noise.h"

#include <cmath>

#include "bench/base/json_fields.h"
#include "bench/results/file.h"
#include "bench/results/run_json.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr const char* kKind = "noise";

Noise noise_from(const Json& json) {
  const auto require = [](bool ok, const std::string& problem) {
    if (!ok) throw InputError(problem);
  };
  require(json.is_object() && json.value("kind", Json()) == kKind,
          "is no noise file; `stepladder calibrate` writes one");
  check_schema(json, 2);  // schema 2 had the same noise file
  require(json.contains("variants") && json["variants"].is_array(), "variants is not a list");
  const Json plan = field_at<Json>(json, "plan");
  Noise noise;
  noise.context = field_at<Json>(json, "context");
  noise.steps = field_at<int64_t>(plan, "steps");
  noise.warmup = field_at<int64_t>(plan, "warmup");
  noise.ladder = field_if<std::string>(plan, "ladder");
  for (const Json& item : json["variants"]) {
    LogRatios& row =
        noise.log_ratios[{field_at<std::string>(item, "variant"), field_at<std::string>(item, "workload")}];
    const auto read = [&](const std::string& key, std::vector<double>& values) {
      const auto ratios = item.find(key);
      if (ratios == item.end()) return;
      require(ratios->is_array(), cat(key, " is not a list"));
      for (const Json& ratio : *ratios) {
        require(ratio.is_number() && std::abs(ratio.get<double>()) < 100.0, cat(key, " holds no log ratio"));
        values.push_back(ratio.get<double>());
      }
    };
    read("log_ratios", row.time);
    read("cycles_log_ratios", row.cycles);
    read("joules_log_ratios", row.energy);
    require(!row.time.empty(), "a variant without log_ratios");
  }
  return noise;
}

}  // namespace

Json to_json(const Noise& noise) {
  Json json = {{"schema", kSchema},
               {"kind", kKind},
               {"context", noise.context},
               {"plan", {{"steps", noise.steps}, {"warmup", noise.warmup}}}};
  if (noise.ladder) json["plan"]["ladder"] = *noise.ladder;
  json["variants"] = Json::array();
  for (const auto& [key, ratios] : noise.log_ratios)
    json["variants"].push_back({{"variant", key.first},
                                {"workload", key.second},
                                {"log_ratios", ratios.time},
                                {"cycles_log_ratios", ratios.cycles},
                                {"joules_log_ratios", ratios.energy}});
  return json;
}

Noise load_noise(const std::string& path) {
  const Json json = load_json(path);
  check_ours(path, json);
  try {
    return noise_from(json);
  } catch (const InputError& e) {
    throw InputError(cat(path, ": ", e.what()));
  }
}

void require_valid(const Noise& noise, const std::string& path, const Json& context, const Json& plan) {
  const auto require = [&](const std::string& field, const Json& was, const Json& is) {
    require_same(path + " has expired", field, was, is, "run `stepladder calibrate` again");
  };
  const auto of = [](const Json& json, const char* key) {
    return json.is_object() ? json.value(key, Json()) : Json();
  };
  const Json was = of(noise.context, "device"), is = of(context, "device");
  for (const char* field :
       {"backend", "name", "compute_capability", "driver", "runtime", "blas", "attention"})
    require(cat("device.", field), of(was, field), of(is, field));
  for (const char* field : {"cpu", "cores", "build", "environment"})
    require(field, of(noise.context, field), of(context, field));
  if (of(is, "backend") == "cpu" && noise.context.contains("thread_environment"))
    require("thread_environment", noise.context["thread_environment"], of(context, "thread_environment"));
  if (noise.ladder) require("plan.ladder", *noise.ladder, whole_text_at(of(plan, "ladder"), "name"));
  require("plan.steps", noise.steps, of(plan, "steps"));
  require("plan.warmup", noise.warmup, of(plan, "warmup"));
}

}  // namespace stepladder
