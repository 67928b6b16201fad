#include "model/config.h"

#include "model/error.h"
#include "model/nearest.h"

namespace stepladder {
namespace {

struct Named {
  const char* name;
  int64_t L, NH, C, max_T;
};

// Radford et al. 2019, table 2; mini and tiny are ours, for tests and CPUs.
constexpr Named kModels[] = {
    {"gpt2", 12, 12, 768, 1024},     {"gpt2-medium", 24, 16, 1024, 1024}, {"gpt2-large", 36, 20, 1280, 1024},
    {"gpt2-xl", 48, 25, 1600, 1024}, {"gpt2-mini", 6, 6, 384, 256},       {"gpt2-tiny", 4, 4, 128, 256},
};

}  // namespace

void Config::validate() const {
  const auto positive = [](const char* field, int64_t value) {
    if (value <= 0) throw InputError(cat(field, " is ", value, ": it must be positive"));
  };
  positive("B (batch)", B);
  positive("T (sequence length)", T);
  positive("V (vocabulary)", V);
  positive("L (layers)", L);
  positive("NH (heads)", NH);
  positive("C (channels)", C);
  if (C % NH != 0) throw InputError(cat("C=", C, " channels do not divide into NH=", NH, " heads"));
  if (T > max_T) throw InputError(cat("T=", T, " is longer than the model's ", max_T, " positions"));
}

Config Config::named(const std::string& model) {
  for (const Named& m : kModels) {
    if (model != m.name) continue;
    Config config;
    config.model = m.name;
    config.L = m.L;
    config.NH = m.NH;
    config.C = m.C;
    config.max_T = config.T = m.max_T;
    return config;
  }
  std::string all;
  for (const std::string& name : names()) all += (all.empty() ? "there are " : ", ") + name;
  throw InputError(cat("unknown model '", model, "'", suggestion(model, names(), all)));
}

const std::vector<std::string>& Config::names() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const Named& m : kModels) names.emplace_back(m.name);
    return names;
  }();
  return all;
}

}  // namespace stepladder
