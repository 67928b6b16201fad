// What `stepladder compare` and `stepladder gate` have in common: limits, and how a verdict is output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/base/options.h"
#include "bench/verdict/comparison.h"

namespace stepladder {

struct VerdictOptions {
  static constexpr const char* kVerdict = "Verdict";

  /// `cycles`, a ratio less 1, is the limit of cycles where no --threshold is given.
  explicit VerdictOptions(double cycles = kMinLimit) : cycles_limit(cycles) {}

  double cycles_limit;
  std::optional<double> threshold;                  // percent
  double energy_threshold = kMinEnergyLimit * 100;  // percent
  std::string noise, format = "text", undecided = "fail";
  std::vector<std::string> out;
  bool wide = false;

  std::vector<Option> options();

  /// Limits for results of `context` and `plan`, or for runs until a loss. Throws InputError for a damaged
  /// noise file, and for a limit on the time of a step where runs are until a loss; Error with
  /// kExitNotComparable for a noise file that has expired.
  Limits limits(std::optional<double> until_loss, const Json& context, const Json& plan) const;

  /// Checks the files of --out. Throws InputError if one can't be written, or is of another kind.
  void check_files() const;
  /// Throws InputError if --out names `file`, which is to hold results.
  void check_apart(const std::string& file) const;
  /// Prints the comparison by `limits`, and writes it to the files of --out. Adds notes on rows that the
  /// noise file lacks. Returns the exit code.
  int deliver(Comparison comparison, const Limits& limits) const;

 private:
  std::string format_of(const std::string& file) const;
};

}  // namespace stepladder
