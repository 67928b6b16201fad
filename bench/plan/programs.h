// Which programs can be measured: our rungs and ablations, and those of ladder files.
#pragma once

#include <string>
#include <vector>

#include "bench/plan/ladder.h"
#include "bench/run/machine.h"
#include "bench/run/program.h"

namespace stepladder {

/// The rungs of `ladder` that `names` names (see Ladder::chosen()), each followed by the rungs of that name
/// of the peers, and last what else of the peers is measured. A peer is another ladder: "pytorch",
/// "llmc=PATH" with the path of llm.c's train_gpt2cu, "stepladder" for ours, or a ladder file. `names` may
/// say which of its rungs: "pytorch/02_tf32"; else they are those of the chosen names and one that is called
/// like its ladder, or all, where the two ladders have no name in common. `python` is what {python} stands
/// for, and our executables are in `bin`. Throws InputError for an unknown rung or peer.
std::vector<Program> programs(const Ladder& ladder, const std::vector<std::string>& names,
                              const std::vector<std::string>& peers = {},
                              const std::string& python = "python3", const std::string& bin = bin_dir());

/// A rung of ours as the executable in bin_dir(), and an ablation in its folder ablations/.
Program program_of(const Rung& rung);
Program program_of(const Ablation& ablation);

/// Whether the executable of a rung of ours is in `folder`.
bool is_built(const Rung& rung, const std::string& folder = bin_dir());

/// What makes a rung that chooses its batch look for the largest where no plan names one; else nothing.
std::vector<std::string> own_batch_arguments(const Rung& rung);

/// Why a rung can't run on the devices here; "" when it can.
std::string why_not_here(const Rung& rung, const DeviceProbe& probe);

/// "PyTorch" for "pytorch"; a name that is not known as it is.
std::string peer_title(const std::string& peer);

}  // namespace stepladder
