// Which programs can be measured: our rungs and ablations, and peers.
#pragma once

#include <string>
#include <vector>

#include "bench/plan/ladder.h"
#include "bench/run/machine.h"
#include "bench/run/program.h"

namespace stepladder {

/// `rungs` in bin_dir(), each followed by its counterparts among `peers`, and last the peers without rungs. A
/// peer is "pytorch", or "llmc=PATH" with the path of llm.c's train_gpt2cu; `python` runs their scripts.
/// Throws InputError for any other.
std::vector<Program> programs(const std::vector<Rung>& rungs, const std::vector<std::string>& peers,
                              const std::string& python);

/// A rung as the executable in `folder`, and an ablation in the folder ablations/ of bin_dir().
Program program_of(const Rung& rung, const std::string& folder = bin_dir());
Program program_of(const Ablation& ablation);

/// "PyTorch" for "pytorch"; a name that is not known as it is.
std::string peer_title(const std::string& peer);

}  // namespace stepladder
