#include "bench/verdict/certificate.h"

#include <algorithm>
#include <cmath>

#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/verdict/comparable.h"
#include "bench/verdict/learning.h"
#include "bench/verdict/paired.h"

namespace stepladder {
namespace {

int64_t steps_of(const Run& run) {
  return run.summary->to_loss ? run.summary->to_loss->steps : std::ssize(run.steps);
}

/// Why a run can't count for a certificate of `steps` steps; "" where it can.
std::string refusal(const Run& run, int64_t steps) {
  if (run.status != Status::ok) return run.outcome();
  if (run.summary->to_loss && run.summary->to_loss->reached)
    return cat("stopped where it reached a loss of ", number_text(run.summary->to_loss->loss),
               ", which is exploratory: train fresh seeds for fixed steps");
  if (steps_of(run) != steps) return cat("has ", steps_of(run), " steps, the first run ", steps);
  return run.summary->val_loss ? ""
                               : "has no validation loss after its last step: a rung takes --val-data, a "
                                 "trainer of one's own tells it "
                                 "where run.evaluation_due";
}

/// `planned`: how many seeds there are to be; 0 where that is unknown.
Certificate certificate(const RowKey& key, const Rounds& rounds, double loss, double planned) {
  Certificate all;
  all.variant = key.first, all.workload = key.second, all.loss = loss;
  for (const auto& [round, run] : rounds)
    if (all.steps == 0 && run->summary) all.steps = steps_of(*run);
  try {
    const auto seeds = by_seed(rounds);
    for (const auto& [seed, run] : seeds) {
      if (const std::string why = refusal(*run, all.steps); !why.empty())
        throw InputError(cat("seed ", seed, ": ", why));
      all.seeds.push_back(seed);
      all.losses.push_back(*run->summary->val_loss);
    }
    if (static_cast<double>(seeds.size()) < planned)
      throw InputError(cat(seeds.size(), " of ", planned, " seeds: `stepladder resume` trains the others"));
    if (ignores_seed(seeds)) throw InputError("it learns the same to the bit from several seeds");
    if (seeds.size() < kMinPairs)
      throw InputError(cat(counted(std::ssize(all.seeds), "seed"), ", ", kMinPairs, " are the least"));
    if (std::ranges::count(all.losses, all.losses.front()) == std::ssize(all.losses))
      throw InputError(cat("the loss is ", number_text(all.losses.front()),
                           " from every seed, without a spread: tell more of its digits"));
  } catch (const Error& e) {
    all.refusal = e.what();
    return all;
  }
  all.mean = mean_of(all.losses);
  all.p = p_below(all.mean, loss);
  return all;
}

std::string p_text(const Certificate& c) {
  return c.p < 1e-4 ? scientific(c.p) : fixed(c.p, 4);
}

Table table_of(const std::vector<Certificate>& certificates, const std::string& heading) {
  Columns<Certificate> columns;
  const auto add = [&](const std::string& header, const std::string& meaning,
                       std::function<std::string(const Certificate&)> cell) {
    columns.add({.title = header, .meaning = meaning},
                [cell](const Certificate& c) { return c.refusal.empty() ? cell(c) : kNone; });
  };
  const bool workloads = std::ranges::any_of(
      certificates, [&](const Certificate& c) { return c.workload != certificates[0].workload; });
  columns.add_text("trainer", [](const Certificate& c) { return c.variant; });
  columns.add({.title = "workload", .align = Align::left, .priority = workloads ? 0 : 1},
              [](const Certificate& c) { return c.workload; });
  columns.add_text_if_it_differs(certificates, "part", [](const Certificate& c) { return c.part; });
  add("steps", "", [](const Certificate& c) { return grouped(c.steps); });
  add("seeds", "", [](const Certificate& c) { return std::to_string(c.losses.size()); });
  add("mean loss", "on validation data after the last step, over seeds",
      [](const Certificate& c) { return fixed(c.mean.value, 4); });
  add("sd", "standard deviation of a seed's", [](const Certificate& c) { return fixed(c.deviation(), 4); });
  columns.add({"asked for"}, [](const Certificate& c) { return cat("<= ", number_text(c.loss)); });
  add("p", "the chance of so low a mean were the true mean the loss asked for (Student's t, one-sided)",
      p_text);
  columns.add({.title = "verdict", .align = Align::left, .reasons = true}, [](const Certificate& c) {
    return c.refusal.empty() ? c.verdict() : cat(c.verdict(), ": ", printable(c.refusal, 300));
  });
  return columns.table(certificates, heading);
}

}  // namespace

std::vector<Certificate> certificates(const Results& results, double loss, const std::string& part) {
  std::vector<Certificate> all;
  const double planned = results.by_seeds() ? number_at(results.plan, "rounds").value_or(0.0) : 0.0;
  const Rows rows(results);
  for (const RowKey& key : rows.order) {
    all.push_back(certificate(key, *rows.find(key), loss, planned));
    all.back().part = part;
  }
  return all;
}

double Certificate::deviation() const {
  return mean.error() * std::sqrt(static_cast<double>(losses.size()));
}

std::string Certificate::verdict() const {
  return !refusal.empty() ? "REFUSED" : holds() ? "CERTIFIED" : "NOT CERTIFIED";
}

std::string Certificate::found() const {
  if (!refusal.empty()) return printable(refusal, 300);
  return cat("mean loss ", fixed(mean.value, 4), " of ", losses.size(), " seeds, p ", p_text(*this));
}

Section section_of(const std::vector<Certificate>& certificates) {
  Section section;
  if (certificates.empty()) return section;
  section.tables.push_back(table_of(certificates, "Certificate"));
  section.notes.push_back({cat("Certified is p < ", number_text(Certificate::kLevel),
                               ". It holds for seeds and steps that were fixed before the runs, not for a "
                               "step found by looking.")});
  for (const Certificate& c : certificates) {
    if (!c.refusal.empty()) continue;
    std::vector<std::string> losses;
    for (size_t i = 0; i < c.seeds.size(); ++i)
      losses.push_back(cat(c.seeds[i], ": ", fixed(c.losses[i], 4)));
    section.notes.push_back({cat(c.variant, ", ", c.workload, ", validation loss after ", grouped(c.steps),
                                 " steps by seed: ", join(losses, ", "), ".")});
  }
  return section;
}

Section of_horizons(std::vector<Certificate> certificates) {
  const auto looked = [](const Certificate& c) { return c.part.starts_with(Certificate::kSearch); };
  std::ranges::stable_sort(certificates, {},
                           [&](const Certificate& c) { return std::pair(c.steps, !looked(c)); });
  Section section{.tables = {table_of(certificates, "How many steps the loss takes")}};
  if (std::ranges::any_of(certificates, looked))
    section.notes.push_back(
        {cat("What was found by looking (", Certificate::kSearch, "N) is exploratory; the seeds of ",
             Certificate::kFresh, "N took no part in that, so theirs are certificates.")});
  return section;
}

ExitCode exit_code(const std::vector<Certificate>& certificates) {
  if (std::ranges::any_of(certificates, [](const Certificate& c) { return !c.refusal.empty(); }))
    return kExitNotComparable;
  return std::ranges::all_of(certificates, &Certificate::holds) ? kExitOk : kExitInconclusive;
}

}  // namespace stepladder
