// What can be measured: our rungs, and peers, which are other implementations of the same training.
#pragma once

#include <string>
#include <vector>

#include "bench/plan/ladder.h"
#include "bench/run/machine.h"

namespace stepladder {

/// A program that takes a rung's options and speaks its event protocol.
struct Program {
  std::string variant;               // "05_mixed_precision", "pytorch/05_mixed_precision", "llmc"
  std::string peer;                  // "pytorch" or "llmc"; "" for a rung of ours
  std::vector<std::string> command;  // that its options follow
  MathMode math = MathMode::fp32;    // of its GEMMs: picks the peak of MFU
  double tolerance = 0.0;  // relative, of a rung's loss against the first rung's; peers aren't compared
  BatchSize batch = BatchSize::usual;
  int64_t devices = 1;            // least number that it is for
  std::string calls_itself = {};  // in its events, where that is not `variant`

  /// What it was built from; it says so after "source" in its --version. Throws Error when it does not,
  /// InputError for a peer.
  std::string source_hash() const;
  /// Whether its ranks talk through MPI: those of our rungs on the CPU.
  bool through_mpi(const std::string& backend) const { return peer.empty() && backend == "cpu"; }
};

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
