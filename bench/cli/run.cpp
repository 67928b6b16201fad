#include <cmath>
#include <iostream>

#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/cli/measure.h"
#include "bench/plan/ladder_file.h"
#include "bench/report/trials.h"
#include "bench/run/placeholders.h"
#include "bench/verdict/certificate.h"

namespace stepladder {
namespace {

struct RunOptions {
  std::vector<std::string> peers;
  std::string scaling = "weak";
  bool independent_ranks = false;
  std::optional<int64_t> horizons;
  std::string tuned;
  MeasureOptions measure;

  std::vector<Option> options() {
    constexpr const char *kPlan = MeasureOptions::kPlan, *kLoss = MeasureOptions::kLoss;
    return measure.options(
        measure.ladder_options() + std::vector<Option>{peer_option(peers)} + measure.device_options() +
        std::vector<Option>{
            {"seeds", &measure.seeds, "N",
             "train for --steps from each of so many seeds, in place of --rounds, and evaluate what was "
             "learnt",
             kLoss, Allowed{1, 1e6}},
            {"certify-loss", &measure.certify_loss, "LOSS",
             "with --seeds: whether their mean validation loss is at most that, as `stepladder certify` says "
             "it",
             kLoss, Allowed{0, 1000}},
            {"horizons", &horizons, "N",
             "with --certify-loss: the fewest steps, from --steps on by 5 % up to N, that are certified; "
             "their "
             "learning rate decays until then, or as --decay-steps says",
             kLoss, Allowed{1, 1e9}},
            {"tuned", &tuned, "FILE",
             "give each trainer the schedule of its best trial in a file of `stepladder tune`", kLoss},
            {"scaling", &scaling, "NAME", "--batch is each device's, or shared by all of them", kPlan,
             Allowed{"weak", "strong"}},
            {"independent-ranks", &independent_ranks, "",
             "also each of several devices by itself at the same time: tells slow devices from communication",
             kPlan},
        });
  }
};

/// The table of a file's certificates of the loss, for each number of steps.
Section horizons_in(const std::string& file, double loss) {
  std::vector<Certificate> all;
  for (const Part& part : load_measured_parts(file)) append(all, certificates(part.results, loss, part.name));
  return of_horizons(std::move(all));
}

/// Finds the fewest steps on a grid of 5 % that certify the loss: by bisection, then certified by seeds that
/// have not taken part in the search, since a search favours lucky seeds. Each number of steps is a part of
/// the results file.
int find_horizon(const MeasureOptions& asked, const Plan& plan, int64_t last) {
  constexpr double kGrid = 1.05;
  if (!asked.certify_loss || !asked.steps || plan.programs.size() != 1)
    throw InputError(
        "--horizons asks for the fewest steps of one rung: give --certify-loss, --seeds, --steps and "
        "--rungs of one");
  if (!asked.part.empty() && !asked.part.starts_with(Certificate::kSearch) &&
      !asked.part.starts_with(Certificate::kFresh))
    throw InputError("--horizons names its parts itself: leave --part out");
  std::vector<int64_t> grid;
  for (double steps = static_cast<double>(*asked.steps); std::llround(steps) <= last;
       steps = std::max(steps + 1.0, steps * kGrid))
    grid.push_back(std::llround(steps));
  if (grid.empty()) throw InputError(cat("--horizons ", last, " is less than --steps ", *asked.steps));
  const bool takes_arguments = uses(plan.programs[0], "arguments");
  const auto exit_of = [&](int64_t steps, bool fresh) {
    MeasureOptions one = asked;
    one.steps = steps;
    one.part = cat(fresh ? Certificate::kFresh : Certificate::kSearch, steps);
    one.brief = true;
    if (one.rung.decay_steps == 0 && takes_arguments) one.rung.decay_steps = steps;
    if (fresh) one.rung.seed += static_cast<uint64_t>(asked.seeds.value_or(0));
    return measure(one, plan);
  };
  size_t least = 0, most = grid.size();
  while (least < most) {
    const size_t middle = least + (most - least) / 2;
    const int code = exit_of(grid[middle], /*fresh=*/false);
    if (code != kExitOk && code != kExitInconclusive) return code;
    (code == kExitOk ? most : least) = code == kExitOk ? middle : middle + 1;
  }
  for (size_t i = least; i < grid.size(); ++i) {
    const int code = exit_of(grid[i], /*fresh=*/true);
    if (code == kExitInconclusive) continue;
    if (code == kExitOk)
      std::cout << horizons_in(asked.out, *asked.certify_loss).terminal(asked.wide)
                << "The fewest steps on a grid of 5 % that certify a loss of "
                << number_text(*asked.certify_loss) << ": " << grid[i] << ", as parts of "
                << printable(asked.out, kMaxMessage) << " show.\n"
                << std::flush;
    return code;
  }
  std::cout << horizons_in(asked.out, *asked.certify_loss).terminal(asked.wide) << std::flush;
  notice(cat("up to ", grid.back(), " steps certify no loss of ", number_text(*asked.certify_loss),
             ": raise --horizons or the loss"));
  return kExitInconclusive;
}

/// The schedule of each program's best trial in a file of `stepladder tune`: to the loss asked for, or of the
/// steps. Throws InputError where a program has none.
std::map<std::string, Tuned> tuned_in(const std::string& file, const std::string& ladder,
                                      const std::vector<Program>& programs, const MeasureOptions& asked) {
  if (asked.max_steps || (!asked.until_loss && !asked.seeds))
    throw InputError(
        "--tuned says how each trainer is trained: give --until-loss without --max-steps, or --seeds and "
        "--steps");
  if (!asked.until_loss && !asked.steps)
    throw InputError("--tuned with --seeds: give --steps, those of its trials");
  const RungSettings usual;
  const RungSettings& s = asked.rung;
  if (std::tie(s.lr, s.min_lr, s.warmup_lr_steps, s.decay_steps) !=
      std::tie(usual.lr, usual.min_lr, usual.warmup_lr_steps, usual.decay_steps))
    throw InputError(
        "--tuned has each trainer's learning rate and schedule: leave --lr, --min-lr, --warmup-lr-steps and "
        "--decay-steps out");
  const std::vector<Trial> best = best_of(trials_of(load_measured_parts(file)));
  std::map<std::string, Tuned> tuned;
  for (const Program& program : programs) {
    const auto fits = [&](const Trial& t) {
      return t.ladder == ladder && t.trainer == program.variant && t.until == asked.until_loss &&
             (t.until || t.steps == asked.steps);
    };
    const auto trial = std::ranges::find_if(best, fits);
    if (std::ranges::count_if(best, fits) > 1)
      throw InputError(cat("--tuned ", file, ": the trials of ", program.variant,
                           " are of several workloads or data, such as ", trial->workload, " on ",
                           trial->judged, ": tune each into a file of its own"));
    if (trial == best.end())
      throw InputError(cat("--tuned ", file, ": no trial of ", program.variant, " of the ladder ", ladder,
                           " there ",
                           asked.until_loss ? cat("reached a loss of ", number_text(*asked.until_loss))
                                            : cat("is of ", asked.steps.value_or(0), " steps"),
                           ": `stepladder tune` adds some"));
    if (trial->at_first)
      notice(cat("--tuned: ", program.variant,
                 "'s best trial had reached the loss by its first evaluation, so others may be as good: tune "
                 "again with a smaller --eval-every"));
    Tuned& one = tuned[program.variant];
    one.workload = trial->workload, one.lr = static_cast<float>(trial->lr), one.steps = trial->steps,
    one.warmup_lr_steps = trial->warmup;
    if (trial->min_lr) one.min_lr = static_cast<float>(*trial->min_lr);
  }
  return tuned;
}

int run(RunOptions& options) {
  Plan plan;
  plan.scaling = options.scaling;
  plan.independent_ranks = options.independent_ranks;
  const MeasureOptions& asked = options.measure;
  plan.ladder = asked.ladder_asked();
  plan.programs = programs(plan.ladder, asked.rungs, options.peers, asked.python);
  if (options.horizons && !options.tuned.empty())
    throw InputError("--horizons and --tuned both say how long a schedule is: give one");
  if (!options.tuned.empty())
    plan.tuned = tuned_in(here_or_shared(options.tuned), plan.ladder.name, plan.programs, asked);
  return options.horizons ? find_horizon(asked, plan, *options.horizons) : measure(asked, std::move(plan));
}

}  // namespace

Command run_command() {
  return command<RunOptions>("run", "climb the ladder and measure each rung", run, kUsualOptions);
}

}  // namespace stepladder
