// The ladder table: which rungs there are, in order, what each changes and what it needs.
#pragma once

#include <string>
#include <vector>

#include "model/flops.h"
#include "model/gpt2.h"
#include "model/ops.h"

namespace stepladder {

/// One row of variants/ladder.json.
struct Rung {
  std::string name;    // "01_causal_mask": the variant's file and its executable
  std::string parent;  // the rung before; "" for the first
  std::string changes;
  int compute_capability = 0;  // least one that it needs, 80 for sm_80; 0: any device
  MathMode math = MathMode::fp32;
  double tolerance = 0.0;  // relative, of a step's loss against the first rung's
  BatchSize batch = BatchSize::usual;
  int diff_budget = 0;  // changed lines against the parent's file

  /// "sm_80", or "" when any device will do.
  std::string requirement() const;
};

/// A table like variants/ladder.json. Throws InputError with what is wrong.
std::vector<Rung> ladder_from(const std::string& json);

/// All rungs, lowest first. The table is compiled in.
const std::vector<Rung>& ladder();

/// By "02", "tf32" or "02_tf32". Throws InputError with the nearest name for an unknown one.
const Rung& find_rung(const std::string& name);

/// Why `device` cannot run the rung: "needs sm_80, this is sm_75 (Tesla T4)"; "" when it can. The CPU backend
/// runs every rung, reduced precisions emulated.
std::string unsupported_reason(const Rung& rung, const DeviceInfo& device);

/// "fp32", "tf32", "half", "fp8".
const char* name_of(MathMode mode);

}  // namespace stepladder
