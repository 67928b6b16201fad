#include "bench/cli/verdict_options.h"

#include <filesystem>
#include <iostream>

#include "bench/base/text.h"
#include "bench/results/file.h"
#include "bench/verdict/comparison_report.h"
#include "bench/verdict/noise.h"
#include "model/atomic_file.h"

namespace stepladder {

std::vector<Option> VerdictOptions::options() {
  return {
      {"threshold", &threshold, "PERCENT",
       cat("less more time or cycles is no slowdown; default: ", number_text(kMinLimit * 100), " of time, ",
           number_text(cycles_limit * 100), " of cycles, ", number_text(kMinCyclesLimitOtherAlgorithms * 100),
           " where BASE and NEW run different GEMM algorithms; of mean time ",
           number_text(kMinMeanTimeLimit * 100), " at least"),
       kVerdict, Allowed{0, 1000}},
      {"energy-threshold", &energy_threshold, "PERCENT", "the same of joules", kVerdict, {0, 1000}},
      {"noise", &noise, "FILE",
       "what `stepladder calibrate` wrote on this machine: raises the threshold "
       "to the noise of a rung where that is larger",
       kVerdict},
      {"format", &format, "NAME", "of the report", kVerdict, {"text", "markdown", "json", "github", "junit"}},
      {"out", &out, "FILE",
       "the report: .md is Markdown, .json JSON, .xml JUnit, another in --format; stdout then gets text, "
       "or what GitHub annotates with",
       kVerdict},
      {"undecided", &undecided, "NAME",
       "exit status of a verdict that more pairs might decide: fail with 3, or pass with 0", kVerdict,
       Allowed{"fail", "pass"}},
      wide_option(wide, kVerdict)};
}

std::string VerdictOptions::format_of(const std::string& file) const {
  for (const auto& [ending, name] :
       {std::pair(".md", "markdown"), std::pair(".json", "json"), std::pair(".xml", "junit")})
    if (file.ends_with(ending)) return name;
  return format;
}

void VerdictOptions::check_files() const {
  for (const std::string& file : out) {
    check_same_kind(file, format_of(file) == "json" ? "comparison" : "text");
    AtomicFile writable(file);
  }
}

void VerdictOptions::check_apart(const std::string& file) const {
  std::error_code none;
  for (const std::string& report : out)
    if (std::filesystem::weakly_canonical(report, none) == std::filesystem::weakly_canonical(file, none))
      throw InputError(cat("--out ", report, " is where the runs are kept: name another file"));
}

Limits VerdictOptions::limits(std::optional<double> until_loss, const Json& context, const Json& plan) const {
  if (until_loss && (threshold || !noise.empty() || energy_threshold != VerdictOptions().energy_threshold))
    throw InputError(
        "--threshold, --energy-threshold and --noise are of the time of a step; the seconds to a loss have "
        "no limit: leave them out");
  Limits limits;
  limits.until_loss = until_loss;
  limits.threshold = threshold ? *threshold / 100 : kMinLimit;
  limits.cycles = threshold ? *threshold / 100 : cycles_limit;
  limits.cycles_other_algorithms = threshold ? *threshold / 100 : kMinCyclesLimitOtherAlgorithms;
  limits.energy = energy_threshold / 100;
  if (noise.empty()) return limits;
  Noise known = load_noise(noise);
  require_valid(known, noise, context, plan);
  limits.noise = std::move(known.log_ratios);
  return limits;
}

int VerdictOptions::deliver(Comparison comparison, const Limits& limits) const {
  comparison.undecided_passes = undecided == "pass";
  if (limits.until_loss) {
    // Verdicts on runs until a loss don't use noise.
  } else if (noise.empty()) {
    comparison.notes.emplace_back(
        "Without --noise the limits know nothing of this machine's own: `stepladder calibrate` measures it.");
  } else {
    for (const ComparedRow& row : comparison.rows)
      if (row.numbers && !limits.noise.contains({row.variant, row.workload}))
        comparison.notes.push_back(cat(noise, " knows nothing of ", row.variant, ", ", row.workload, "."));
  }
  std::cout << report_in(out.empty() || format == "github" ? format : "text", comparison, wide);
  std::vector<std::string> failures;
  for (const std::string& file : out) {
    try {
      write_atomically(file, report_in(format_of(file), comparison));
      std::cout << "wrote " << printable(file, kMaxMessage) << "\n";
    } catch (const Error& e) {  // the verdict is printed, and the other files are written
      failures.emplace_back(e.what());
    }
  }
  std::cout << std::flush;
  if (!failures.empty()) throw Error(join(failures, "; "));
  return exit_code(comparison.rows, comparison.undecided_passes);
}

}  // namespace stepladder
