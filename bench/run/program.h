// What a run runs: a rung's executable, or a peer, which is another implementation of the same training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/flops.h"

namespace stepladder {

/// Which micro-batch a program trains on when none is asked for: the default, or the largest power of two
/// that fits into the device's memory.
enum class BatchSize { usual, largest };

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

}  // namespace stepladder
