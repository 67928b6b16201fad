// What a results file answers: which rung is the fastest, by how much, in how much memory and against whom.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/base/section.h"
#include "bench/report/speedups.h"

namespace stepladder {

/// A trainer beside the ladder, and the file that measured it.
struct BesideLadder {
  const NamedFindings* file;
  const ResultRow* row;
};
/// The trainers beside the ladder that are ok on a workload, each with its row of the most rounds.
std::vector<BesideLadder> beside_ladder(const std::vector<NamedFindings>& files, const std::string& workload);

/// The validation loss that all rungs were to reach; nothing where they had none to reach.
std::optional<double> loss_asked(const Findings& file);

/// The fastest rung that is ok and undisturbed, of those on the fewest devices; null where there is none.
const ResultRow* fastest_rung(const Findings& file);

/// Whether the losses of `row` could be compared with those of `first`.
bool has_reference(const ResultRow& row, const std::vector<ResultRow>& rows, const std::string& first);

/// How many times faster the fastest rung is than each peer's fastest rung on the same workload, compared
/// round by round. Throttled rows don't count, and rungs on several devices only where there are no others.
std::vector<Speedup> against_peers(const Findings& file);

struct Answer {
  std::string gist;  // "Fastest: 13_cuda_graphs"; "" where there is none
  std::string text;  // the gist with its numbers
};
/// The fastest rung, in how much memory, and against whom; of rungs on the CPU, whose speed says nothing, how
/// many learn as the first one does. For runs until a loss: the rung that reached it soonest, and why. For
/// certificates: which rungs are certified. `ratios_only` leaves out milliseconds, tokens and bytes.
Answer answer_of(const Findings& file, bool ratios_only);

/// The answer in numbers, each with a title. A speed-up over a peer that `one` lacks on the workload is taken
/// from `others`, files of the same device, at the nearest batch. Empty where speed says nothing.
std::vector<Fact> facts_of(const NamedFindings& one, const std::vector<NamedFindings>& others,
                           bool ratios_only);

}  // namespace stepladder
