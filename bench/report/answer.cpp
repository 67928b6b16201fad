#include "bench/report/answer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "bench/base/text.h"
#include "bench/plan/programs.h"
#include "bench/report/rows_table.h"
#include "model/error.h"

namespace stepladder {
namespace {

/// The row with the least median step, among those for which `among` holds: on the fewest devices, and there
/// on the workload with the most tokens a second. Null where there is none.
template <class Among>
const ResultRow* fastest(const std::vector<ResultRow>& rows, Among among) {
  const auto key = [](const ResultRow& v) {
    return std::pair(-world_size(v.config), v.numbers->tokens_per_second.value);
  };
  const ResultRow* best = nullptr;
  for (const ResultRow& v : rows)
    if (v.claimable() && among(v) && (!best || key(v) > key(*best))) best = &v;
  for (const ResultRow& v : rows)
    if (best && v.claimable() && among(v) && v.workload == best->workload &&
        v.numbers->median_step_ms.value < best->numbers->median_step_ms.value)
      best = &v;
  return best;
}

/// Whether rungs were measured at other batches too, so that tokens a second compare, not step times.
bool several_batches(const Findings& file, const ResultRow& best) {
  return std::ranges::any_of(file.rows, [&](const ResultRow& row) {
    return row.peer.empty() && row.config.at("B") != best.config.at("B");
  });
}

/// " on one device" where rows ran on more devices than `best`, else "".
std::string on_devices(const Findings& file, const ResultRow& best) {
  const int64_t devices = world_size(best.config);
  const bool more = std::ranges::any_of(
      file.rows, [&](const ResultRow& row) { return row.numbers && world_size(row.config) > devices; });
  return !more ? "" : devices == 1 ? " on one device" : cat(" on ", devices, " devices");
}

/// A sentence on how many other rungs learn as the first one does on every workload, of those that should; ""
/// where the rungs' speed says something, or none could be compared.
std::string learning(const Findings& file) {
  const std::string& first = file.ladder.rungs.front().name;
  if (!file.ladder.built_in() || std::ranges::none_of(file.rows, emulates)) return "";
  if (file.results().by_seeds() ||
      std::ranges::any_of(file.rows, [](const ResultRow& row) { return row.to_loss() != nullptr; }))
    return "";                       // losses of these runs aren't compared step by step
  std::map<std::string, bool> fine;  // by rung
  bool others = false;               // whether some rung's losses may differ from the first one's
  for (const ResultRow& row : file.rows) {
    if (!is_rung(row) || row.variant == first || !has_reference(row, file.rows, first)) continue;
    const Rung* rung = file.ladder.listed(row.variant);
    if (rung && std::isinf(rung->tolerance)) {
      others = true;
      continue;
    }
    if (row.status != Status::ok && row.status != Status::diverged) continue;
    const bool ok = row.status == Status::ok;
    if (const auto [at, is_new] = fine.emplace(row.variant, ok); !is_new) at->second &= ok;
  }
  const auto good = std::ranges::count(fine, true, &std::pair<const std::string, bool>::second);
  if (fine.empty())
    return others ? "Losses of these rungs are meant to differ. Their speeds on the CPU tell nothing." : "";
  return cat(good < std::ssize(fine) ? cat(good, " of ", counted(std::ssize(fine), "other rung"), " learn")
             : good == 1             ? "The other rung learns"
                                     : cat(good == 2 ? "Both" : cat("All ", good), " other rungs learn"),
             " as ", first, " does, within their tolerances. Their speeds on the CPU tell nothing.");
}

std::string math_of(const ResultRow& row) {
  return text_at(row.config, "math");
}

std::string peer_of(const Speedup& speedup) {
  return speedup.against.substr(0, speedup.against.find('/'));
}

std::string times(double ratio, int digits = 2) {
  return cat(fixed(ratio, digits), "x as fast");
}

/// Whether a rung reached its loss in any round.
bool reached_its_loss(const ResultRow& row) {
  return is_rung(row) && row.to_loss() && row.to_loss()->reached > 0;
}

/// The rung that reached its loss in the fewest seconds, of those that missed it in the fewest rounds;
/// null where none reached it.
const ResultRow* soonest(const std::vector<ResultRow>& rows, const ResultRow* but = nullptr) {
  const auto key = [](const ResultRow& row) {
    const TimeToLoss& took = *row.to_loss();
    return std::pair(std::ssize(row.runs) - took.reached, took.seconds.value);
  };
  const ResultRow* best = nullptr;
  for (const ResultRow& row : rows)
    if (row.claimable() && reached_its_loss(row) && &row != but && (!but || row.workload == but->workload) &&
        (!best || key(row) < key(*best)))
      best = &row;
  return best;
}

/// The fastest of the rungs over which the lead of `best` is within the noise; null where there is none.
const ResultRow* rival_of(const Findings& file, const ResultRow& best) {
  return fastest(file.rows, [&](const ResultRow& v) {
    if (!is_rung(v) || v.workload != best.workload || v.variant == best.variant) return false;
    const auto lead = speedup(v.runs, best.runs);
    return lead && lead->interval && lead->interval->lo <= 1.0;
  });
}

/// What headline and card say of the fastest rung: that it is `fastest`, has the most tokens a second, or is
/// no clear winner; and on how many devices.
std::string claim_of(const Findings& file, const ResultRow& best, const ResultRow* rival,
                     const char* fastest) {
  return cat(rival                         ? "No clear winner"
             : several_batches(file, best) ? "Most tokens a second"
                                           : fastest,
             on_devices(file, best));
}

/// The rung second soonest at the loss, where the lead of `best` is within the noise; else null.
const ResultRow* rival_to_loss(const Findings& file, const ResultRow& best) {
  const ResultRow* second = soonest(file.rows, &best);
  const auto lead = second ? sooner(second->runs, best.runs) : std::nullopt;
  return lead && lead->seconds.interval && lead->seconds.interval->lo <= 1.0 ? second : nullptr;
}

std::string in_brackets(const ResultRow* rival) {
  return rival ? cat(" (", rival->variant, " within the noise)") : "";
}

/// "1.93x sooner than all_off: 1.29x fewer steps, 1.27x less time a step"
std::string sooner_text(const Sooner& sooner) {
  const auto factor = [](const Estimate& of, const char* less, const char* more, const char* same) {
    const bool good = of.value >= 1;
    const std::string times = fixed(good ? of.value : 1 / of.value, 2);
    return times == "1.00" ? same : cat(times, "x ", good ? less : more);
  };
  return cat(factor(sooner.seconds, "sooner than ", "later than ", "as soon as "), sooner.against, ": ",
             factor(sooner.steps, "fewer steps", "more steps", "as many steps"), ", ",
             factor(sooner.step_ms, "less time a step", "the time a step", "as long ones"));
}

/// Says which rung reached the validation loss first, and why.
Answer answer_to_loss(const Findings& file, double loss, bool ratios_only) {
  Answer answer;
  const ResultRow* best = soonest(file.rows);
  if (!best) {
    const bool reached = std::ranges::any_of(file.rows, reached_its_loss);
    const std::string gist =
        cat(reached ? "No undisturbed run" : "No rung", " reached a validation loss of ", number_text(loss));
    return {gist, gist + "."};
  }
  const TimeToLoss& took = *best->to_loss();
  const ResultRow* rival = rival_to_loss(file, *best);
  answer.gist = printable(cat(rival ? "No clear winner" : "Soonest", " at a loss of ", number_text(loss),
                              ": ", best->variant, in_brackets(rival)),
                          400);
  answer.text = answer.gist;
  if (!ratios_only)
    answer.text += cat(", ", sized(took.seconds.value), " s of training, ", rounded(took.steps.value),
                       " steps of ", sized(took.step_ms.value), " ms");
  const bool apart =
      took.first && took.first->against != best->variant && !(rival && took.first->against == rival->variant);
  if (apart) answer.text += "; " + sooner_text(*took.first);
  answer.text += ".";
  return answer;
}

/// The texts that aren't empty, "a; b".
std::string joined(std::vector<std::string> texts) {
  std::erase(texts, "");
  return join(texts, "; ");
}

std::string between(const Estimate& estimate, std::optional<int> digits = {}) {
  return estimate.interval ? cat(interval_name(estimate.rounds), " ", interval_text(estimate, digits)) : "";
}

/// What the soonest rung took to its loss, factor by factor.
std::vector<Fact> facts_to_loss(const Findings& file, bool ratios_only) {
  const ResultRow* best = soonest(file.rows);
  if (!best) return {};
  const TimeToLoss& took = *best->to_loss();
  std::vector<Fact> facts;
  if (!ratios_only) {
    const std::string interval = between(took.seconds);
    facts.push_back({cat("To a loss of ", number_text(took.loss)), sized(took.seconds.value) + " s",
                     printable(cat(best->variant, in_brackets(rival_to_loss(file, *best)),
                                   interval.empty() ? "" : "; ", interval),
                               400)});
  }
  facts.push_back({"Steps", rounded(took.steps.value), between(took.steps, 0)});
  if (!ratios_only) {
    facts.push_back({"Time a step", sized(took.step_ms.value) + " ms", between(took.step_ms)});
    if (took.joules)
      facts.push_back(
          {"Energy", sized(took.joules->value * 1e-3) + " kJ", between(scaled(*took.joules, 1e-3))});
  }
  if (took.first && took.first->against != best->variant)
    facts.push_back(
        {cat("Against ", took.first->against), fixed(took.first->seconds.value, 2) + "x sooner",
         joined({between(took.first->seconds, 2), cat("steps ", text_of(took.first->steps, 2),
                                                      ", time a step ", text_of(took.first->step_ms, 2))})});
  return facts;
}

/// What is certified: "Certified: a mean loss of 2, 01_muon after 60 steps".
Answer answer_of(const std::vector<Certificate>& certificates) {
  std::vector<std::string> parts;
  for (const auto& [verdict, word] :
       {std::pair("CERTIFIED", "Certified"), std::pair("NOT CERTIFIED", "Not certified"),
        std::pair("REFUSED", "Refused")}) {
    std::vector<std::string> trainers;
    for (const Certificate& c : certificates)
      if (c.verdict() == verdict) trainers.push_back(cat(c.variant, " after ", counted(c.steps, "step")));
    const std::string of =
        parts.empty() ? cat("a mean loss of ", number_text(certificates[0].loss), ", ") : "";
    if (!trainers.empty()) parts.push_back(cat(word, ": ", of, join(trainers, ", ")));
  }
  const std::string gist = printable(join(parts, "; "), 400);
  std::vector<std::string> found;
  for (const Certificate& c : certificates) found.push_back(cat(c.variant, ": ", c.found()));
  return {gist, printable(cat(gist, "; ", join(found, ", ")), 400) + "."};
}

std::vector<Fact> facts_of(const std::vector<Certificate>& certificates) {
  std::vector<Fact> facts;
  for (const Certificate& c : certificates)
    facts.push_back({c.variant, c.verdict(), cat(c.found(), " after ", counted(c.steps, "step"))});
  return facts;
}

/// The trainer that a speed-up is against, its time, and the speed-up's interval.
std::string of_what(const Findings& file, const ResultRow& row, const Speedup& speedup, bool ratios_only) {
  const ResultRow* other = file.find(speedup.against, row.workload);
  std::string text = speedup.against;
  if (!ratios_only && other && other->numbers)
    text += cat(", ", sized(other->numbers->median_step_ms.value), " ms");
  return joined({text, between(speedup.ratio, 2)});
}

/// Text that names the files in which a rung diverged; "" for none.
std::string diverged_in(const std::string& rung, const std::vector<NamedFindings>& files) {
  std::vector<std::string> texts;
  for (const NamedFindings& other : files)
    if (std::ranges::any_of(other.file->rows, [&](const ResultRow& row) {
          return row.variant == rung && row.status == Status::diverged;
        }))
      texts.push_back(cat(rung, " diverged in ", other.called));
  return joined(texts);
}

/// A file's speed-up over a peer on a workload.
struct AgainstPeer {
  const NamedFindings* file;
  const ResultRow* row;
  Speedup speedup;
  double apart;  // how far the batch is from the one wanted, in powers of two
};

/// For each peer: the speed-up over it of the fastest rung in `like`'s math mode, at the batch nearest to
/// `like`'s.
std::vector<AgainstPeer> nearest_peers(const std::vector<NamedFindings>& files, const ResultRow& like) {
  const auto setting = [](const ResultRow& row) {
    return std::tuple(text_at(row.config, "model"), text_at(row.config, "T"), world_size(row.config));
  };
  const auto batch = [](const ResultRow& row) { return std::log2(row.config.at("B").get<double>()); };
  std::vector<AgainstPeer> all;
  for (const NamedFindings& named : files) {
    std::map<std::string, const ResultRow*> best;  // by workload
    std::vector<std::string> workloads;
    for (const ResultRow& row : named.file->rows) {
      if (!is_rung(row) || !row.claimable() || math_of(row) != math_of(like) || setting(row) != setting(like))
        continue;
      const ResultRow*& there = best[row.workload];
      if (!there) workloads.push_back(row.workload);
      if (!there || row.numbers->median_step_ms.value < there->numbers->median_step_ms.value) there = &row;
    }
    for (const std::string& workload : workloads) {
      const ResultRow* row = best[workload];
      const auto whole =
          row == fastest_rung(*named.file) ? against_peers(*named.file) : std::vector<Speedup>();
      for (const Speedup& speedup : whole.empty() ? row->numbers->peers : whole)
        all.push_back({&named, row, speedup, std::abs(batch(*row) - batch(like))});
    }
  }
  std::ranges::stable_sort(all, {}, &AgainstPeer::apart);
  std::vector<AgainstPeer> nearest;
  for (const AgainstPeer& one : all)
    if (std::ranges::none_of(nearest,
                             [&](const auto& n) { return peer_of(n.speedup) == peer_of(one.speedup); }))
      nearest.push_back(one);
  return nearest;
}

/// The fastest trainer beside the ladder on the workload of `best`, where it is faster than `best`.
std::optional<BesideLadder> fastest_beside(const std::vector<NamedFindings>& files, const ResultRow& best) {
  const std::vector<BesideLadder> all = beside_ladder(files, best.workload);
  const auto ms = [](const BesideLadder& beside) { return beside.row->numbers->median_step_ms.value; };
  const auto least = std::ranges::min_element(all, {}, ms);
  if (least == all.end() || ms(*least) >= best.numbers->median_step_ms.value) return std::nullopt;
  return *least;
}

/// The rung that reached a loss sooner than its file's first rung by the largest factor, in the files beside
/// the one that a page leads with.
std::optional<Fact> soonest_beside(const std::vector<NamedFindings>& files, bool ratios_only) {
  const NamedFindings* in = nullptr;
  const ResultRow* best = nullptr;
  const auto factor = [](const ResultRow& row) { return row.to_loss()->first->seconds.value; };
  for (const NamedFindings& named : files) {
    const ResultRow* row = loss_asked(*named.file) ? soonest(named.file->rows) : nullptr;
    if (!row || !row->to_loss()->first || row->to_loss()->first->against == row->variant) continue;
    if (!best || factor(*row) > factor(*best)) in = &named, best = row;
  }
  if (!best) return std::nullopt;
  const TimeToLoss& took = *best->to_loss();
  const std::string sooner = fixed(factor(*best), 2) + "x sooner";
  return Fact{
      cat("To a loss of ", number_text(took.loss), ": ", best->variant),
      ratios_only ? sooner : sized(took.seconds.value) + " s",
      cat(ratios_only ? "" : sooner + " ", "than ", took.first->against, "; measured in ", in->called)};
}

}  // namespace

std::optional<double> loss_asked(const Findings& file) {
  std::optional<double> loss;
  for (const ResultRow& row : file.rows) {
    if (!row.numbers || !row.peer.empty()) continue;
    if (!row.to_loss()) return std::nullopt;
    loss = row.to_loss()->loss;
  }
  return loss;
}

const ResultRow* fastest_rung(const Findings& file) {
  return fastest(file.rows, is_rung);
}

std::vector<BesideLadder> beside_ladder(const std::vector<NamedFindings>& files,
                                        const std::string& workload) {
  std::vector<BesideLadder> found;
  for (const NamedFindings& named : files)
    for (const ResultRow& row : named.file->rows) {
      const Rung* rung = is_rung(row) ? named.file->ladder.listed(row.variant) : nullptr;
      if (!rung || !rung->beside || !row.claimable() || row.workload != workload) continue;
      const auto there =
          std::ranges::find_if(found, [&](const auto& one) { return one.row->variant == row.variant; });
      if (there == found.end())
        found.push_back({&named, &row});
      else if (row.runs.size() > there->row->runs.size())
        *there = {&named, &row};
    }
  return found;
}

bool has_reference(const ResultRow& row, const std::vector<ResultRow>& rows, const std::string& first) {
  return std::ranges::any_of(rows, [&](const ResultRow& other) {
    return other.variant == first && other.numbers && same_task(other.config, row.config);
  });
}

std::vector<Speedup> against_peers(const Findings& file) {
  std::vector<Speedup> ratios;
  const ResultRow* best = fastest_rung(file);
  if (!best) return ratios;
  for (const std::string& peer : peers_of(file.rows)) {
    const ResultRow* other = fastest(
        file.rows, [&](const ResultRow& v) { return v.peer == peer && v.workload == best->workload; });
    if (!other) continue;
    if (const auto ratio = speedup(other->runs, best->runs)) ratios.push_back({other->variant, *ratio});
  }
  return ratios;
}

Answer answer_of(const Findings& file, bool ratios_only) {
  if (!file.certificates.empty()) return answer_of(file.certificates);
  if (const auto loss = loss_asked(file)) return answer_to_loss(file, *loss, ratios_only);
  if (const std::string said = learning(file); !said.empty()) return {said, said};
  const ResultRow* best = fastest_rung(file);
  if (!best) return {};
  const ResultRow::Numbers& n = *best->numbers;
  const bool batches = several_batches(file, *best);
  Answer answer;
  const ResultRow* rival = rival_of(file, *best);
  answer.gist =
      printable(cat(claim_of(file, *best, rival, "Fastest"),
                    best->numbers->median_step_ms.rounds < 2 ? " in one round: " : ": ", best->variant,
                    batches ? cat(" at B=", best->config["B"].dump()) : "", in_brackets(rival)),
                400);
  answer.text = answer.gist;
  if (!ratios_only)
    answer.text +=
        cat(", ", sized(n.median_step_ms.value), " ms a step, ", rounded(n.tokens_per_second.value), " tok/s",
            n.memory.live_peak > 0 ? cat(", ", gib_text(n.memory.live_peak), " GiB live") : "");
  std::vector<std::string> against;
  const auto compare = [&](const Speedup& speedup, const char* phrase) {
    if (rival && speedup.against == rival->variant) return;
    const double ratio = speedup.ratio.value;
    const auto& interval = speedup.ratio.interval;
    against.push_back(interval && interval->contains(1.0) ? cat("not told apart from ", speedup.against)
                      : ratio < 0.995                     ? cat(speedup.against, " is ", times(1 / ratio))
                                                          : cat(fixed(ratio, 2), phrase, speedup.against));
  };
  if (n.baseline) compare(*n.baseline, "x the speed of ");
  for (const Speedup& peer : against_peers(file)) compare(peer, "x that of ");
  answer.text = printable(answer.text + (against.empty() ? "" : "; " + join(against, ", ")), 400) + ".";
  return answer;
}

std::vector<Fact> facts_of(const NamedFindings& one, const std::vector<NamedFindings>& others,
                           bool ratios_only) {
  const Findings& file = *one.file;
  if (!file.certificates.empty()) return facts_of(file.certificates);
  if (loss_asked(file)) return facts_to_loss(file, ratios_only);
  const ResultRow* best = learning(file).empty() ? fastest_rung(file) : nullptr;
  if (!best) return {};
  const ResultRow::Numbers& n = *best->numbers;
  std::vector<NamedFindings> all = {one};
  append(all, others);
  std::vector<Fact> facts;
  if (!ratios_only) {
    const ResultRow* rival = rival_of(file, *best);
    const std::string rate = cat(rounded(n.tokens_per_second.value), " tokens/s"),
                      step = cat(sized(n.median_step_ms.value), " ms"),
                      claim = claim_of(file, *best, rival, "Fastest step"),
                      whose = printable(cat("; ", best->variant, in_brackets(rival)), 400);
    facts.push_back(several_batches(file, *best) ? Fact{claim, rate, step + " a step" + whose}
                                                 : Fact{claim, step, rate + whose});
  }
  if (n.baseline)
    facts.push_back(
        {"Against the baseline", times(n.baseline->ratio.value, 1),
         joined({of_what(file, *best, *n.baseline, ratios_only), diverged_in(best->variant, others)})});
  const std::vector<AgainstPeer> nearest = nearest_peers(all, *best);
  std::vector<std::string> peers;
  if (file.ladder.built_in()) peers = {"pytorch", "llmc"};
  for (const AgainstPeer& known : nearest) add_once(peers, peer_of(known.speedup));
  for (const std::string& peer : peers) {
    const auto known =
        std::ranges::find_if(nearest, [&](const auto& item) { return peer_of(item.speedup) == peer; });
    if (known == nearest.end()) {
      facts.push_back({"Against " + peer_title(peer), "not measured", "run with --peer " + peer});
      continue;
    }
    const auto& [named, row, speedup, apart] = *known;
    std::string more = of_what(*named->file, *row, speedup, ratios_only);
    if (row != best)
      more +=
          cat("; ", row->variant, " in ", named->called, apart > 0 ? " at B=" + row->config["B"].dump() : "",
              ratios_only ? "" : cat(", ", sized(row->numbers->median_step_ms.value), " ms"));
    facts.push_back({cat("Against ", peer_title(peer), "'s fastest"), times(speedup.ratio.value), more});
  }
  if (const auto beside = fastest_beside(all, *best)) {
    const auto& [named, row] = *beside;
    std::vector<std::string> ratios;
    for (const Speedup& speedup : row->numbers->peers)
      ratios.push_back(cat(times(speedup.ratio.value), " as ", speedup.against));
    if (const auto& previous = row->numbers->previous)
      ratios.push_back(cat(times(previous->ratio.value), " as ", previous->against));
    std::string head = ratios_only ? "faster" : cat(sized(row->numbers->median_step_ms.value), " ms");
    if (ratios_only && !ratios.empty()) head = ratios.front(), ratios.erase(ratios.begin());
    facts.push_back(
        {"Beside the ladder: " + row->variant, head,
         joined({join(ratios, ", "), named->file == one.file ? "" : "all measured in " + named->called,
                 diverged_in(row->variant, all)})});
  }
  if (const auto learned = soonest_beside(others, ratios_only)) facts.push_back(*learned);
  const ResultRow* lowest = n.baseline ? file.find(n.baseline->against, best->workload) : nullptr;
  const ResultRow* counterpart = file.find("pytorch/" + best->variant, best->workload);
  const auto live = [](const ResultRow* row) {
    return row && row->numbers ? row->numbers->memory.live_peak : 0;
  };
  if (live(best) == 0) return facts;
  if (!ratios_only) {
    std::vector<std::string> besides;
    for (const ResultRow* row : {lowest, counterpart})
      if (live(row) > 0) besides.push_back(cat(row->variant, " ", gib_text(live(row)), " GiB"));
    facts.push_back({"Live memory", gib_text(live(best)) + " GiB", join(besides, ", ")});
  } else if (live(lowest) > 0) {
    const double less = static_cast<double>(live(lowest)) / static_cast<double>(live(best));
    facts.push_back({"Memory", fixed(less, 1) + "x less", "than " + lowest->variant});
  }
  return facts;
}

}  // namespace stepladder
