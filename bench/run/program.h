// The program of a run: the executable of one of our rungs, or a trainer that a ladder file names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/device.h"
#include "model/error.h"
#include "model/flops.h"

namespace stepladder {

/// Which micro-batch a program trains on when none is asked for: the default, the largest power of two that
/// fits into the device's memory, or what its ladder file says of this rung.
enum class BatchSize { usual, largest, own };

/// Why `device` can't run a program that needs a GPU of `compute_capability`: "needs sm_80, this is sm_75
/// (Tesla T4)"; "" when it can. The CPU backend runs everything, reduced precisions emulated.
inline std::string unsupported_reason(int compute_capability, const DeviceInfo& device) {
  if (device.backend == "cpu" || device.compute_capability >= compute_capability) return "";
  return cat("needs sm_", compute_capability, ", this is sm_", device.compute_capability, " (", device.name,
             ")");
}

/// What a rung says of its trainer, and the program of a run has from it.
struct TrainerSpec {
  std::vector<std::string> command = {};          // with placeholders: "{batch}", "{arguments}"
  std::vector<std::string> environment = {};      // "NAME=value", with placeholders
  std::vector<std::string> sources = {};          // files that it is made of, in its folder
  std::vector<std::string> version = {};          // a command whose output counts as a source
  std::optional<MathMode> math = MathMode::fp32;  // of its GEMMs: picks the peak of MFU; none: unknown
  /// Most relative difference of a step's loss from the first rung's; infinite: any. Not for peers.
  double tolerance = 0.0;
  BatchSize batch = BatchSize::usual;
  int64_t own_batch = 0;       // the micro-batch of BatchSize::own
  int64_t devices = 1;         // least number of devices
  int compute_capability = 0;  // least that a GPU needs, 80 for sm_80; 0: any
  /// Whether the trainer is built on bench/rung: it then takes all of a rung's options, names its source hash
  /// in --version and in each start, and tells its device's clocks and its memory.
  bool native = false;
};

/// A program that speaks the event protocol (bench/run/events.h).
struct Program : TrainerSpec {
  std::string variant = {};       // "05_mixed_precision", "pytorch/05_mixed_precision", "llmc"
  std::string peer = {};          // a peer's ladder, measured beside another; "" for that ladder's rungs
  std::string folder = {};        // working directory; "" for the current one
  std::string model = {};         // the model it trains, if its command isn't told one; "" if unknown
  bool takes_python = false;      // whether --python says which Python runs it
  std::string calls_itself = {};  // a native program's variant in its events; "" for `variant`

  /// A hash of what the program was built from: for a native program, the one that --version names after
  /// "source"; for others, the FNV-1a hash of command, environment, sources and the answer to `version`.
  /// Throws Error where a native program does not answer, InputError where another's sources or `version`
  /// can't be read.
  std::string source_hash() const;
  /// Whether the ranks communicate through MPI, as those of native programs on the CPU do.
  bool through_mpi(const std::string& backend) const { return native && backend == "cpu"; }
  /// Whether the command starts all ranks itself, as torchrun does: it has {devices}.
  bool starts_ranks() const;
};

}  // namespace stepladder
