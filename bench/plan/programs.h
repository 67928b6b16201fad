// Which programs can be measured: our rungs and ablations, and those of ladder files.
#pragma once

#include <string>
#include <vector>

#include "bench/plan/ladder.h"
#include "bench/run/machine.h"
#include "bench/run/program.h"

namespace stepladder {

/// Programs of the rungs of `ladder` that `names` names (see Ladder::chosen()), each followed by the peers'
/// rungs of that name; the peers' other rungs come last. A peer is another ladder: "pytorch", "llmc=PATH"
/// with the path of llm.c's train_gpt2cu, "stepladder" for ours, or a ladder file. `names` may say which
/// rungs of a peer: "pytorch/02_tf32"; else they are the rungs of the chosen names and the rung that is
/// called like its ladder, or all rungs where the two ladders have no name in common. `python` is what
/// {python} stands for, and our executables are in `bin`. Throws InputError for an unknown rung or peer.
std::vector<Program> programs(const Ladder& ladder, const std::vector<std::string>& names,
                              const std::vector<std::string>& peers = {},
                              const std::string& python = "python3", const std::string& bin = bin_dir());

/// The program of a rung of ours, whose executable is in bin_dir(), and of an ablation, in
/// bin_dir()/ablations.
Program program_of(const Rung& rung);
Program program_of(const Ablation& ablation);

/// Whether the executable of a rung of ours is in `folder`.
bool is_built(const Rung& rung, const std::string& folder = bin_dir());

/// Options that make a rung look for its largest batch where no plan names a batch; empty for a rung that
/// takes the usual batch.
std::vector<std::string> own_batch_arguments(const Rung& rung);

/// Why a rung can't run on the devices here; "" when it can.
std::string why_not_here(const Rung& rung, const DeviceProbe& probe);

/// A peer's name in texts: "PyTorch" for "pytorch", "llm.c" for "llmc"; others unchanged.
std::string peer_title(const std::string& peer);

}  // namespace stepladder
