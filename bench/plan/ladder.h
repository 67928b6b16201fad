// Ladders: which rungs there are, in order, what each changes and what it needs. Ours are compiled in;
// others are files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/results/results.h"
#include "bench/run/program.h"
#include "model/flops.h"
#include "model/ops.h"

namespace stepladder {

/// One row of a ladder file.
struct Rung {
  std::string name;  // "01_causal_mask"
  /// Whose executable it runs: its own, or that of a rung which differs by the batch alone.
  std::string trainer;
  std::string parent;  // the rung that it changes; "" for the first
  std::string group;   // "fused kernels": rungs that published tables have as one; "" for none
  std::string changes;
  int compute_capability = 0;                     // least one that it needs, 80 for sm_80; 0: any device
  int devices = 1;                                // least number that it is for
  std::optional<MathMode> math = MathMode::fp32;  // none where a ladder file leaves it out
  double tolerance = 0.0;  // relative, of a step's loss against the first rung's; infinite: not compared
  BatchSize batch = BatchSize::usual;
  int64_t own_batch = 0;  // of BatchSize::own
  /// It stands beside the ladder, without a number: no rung builds on it, and none is ablated from it.
  bool beside = false;
  /// Its optimizer state is cut into equal parts, one for each device.
  bool sharded = false;
  int diff_budget = 0;  // changed lines against the parent's file
  /// The rung that it can't do without: alone, it stands on that one; left out, that one goes with it. "" if
  /// none.
  std::string needs;
  /// The later rung that takes its place: leaving this one out of the last rung changes nothing. "" if none.
  std::string subsumed_by;

  /// What starts its trainer, in the ladder's folder, with placeholders: "{batch}", "{steps}", ...
  std::vector<std::string> command;
  bool native = false;  // see Program
  std::string shown;    // the file that `stepladder diff` shows, from the ladder's folder; "" for none

  // A ladder file's rungs alone have these.

  std::vector<std::string> environment;  // "NAME=value"
  /// Files that it is made of, `shown` and those that its command names among them: a change is noticed.
  std::vector<std::string> sources;
  std::vector<std::string> version;  // a command whose answer is part of what it is made of

  /// Whether its source is merged out of the tuned rung, and alone into the first. Not those that differ by
  /// their batch or their devices.
  bool ablated() const { return batch == BatchSize::usual && devices == 1 && !beside && !parent.empty(); }
  /// Whether its weights, gradients and activations take 16 bits.
  bool in_16_bits() const { return math == MathMode::half || math == MathMode::fp8; }
  /// "sm_80", "2 devices", or "" when any device will do.
  std::string requirement() const;
};

/// What a ladder is measured on where nobody says otherwise; the device's preset fills in what it leaves out.
struct WorkloadDefaults {
  std::optional<std::string> model;
  std::vector<int64_t> batch;
  std::optional<int64_t> seq, steps, warmup, rounds;

  bool operator==(const WorkloadDefaults&) const = default;
};

/// The most sequences or tokens that a trainer may be asked for.
inline constexpr int64_t kMaxWorkload = 1'000'000;
/// The most devices, and so processes, of a run.
inline constexpr int64_t kMaxDevices = 1024;

/// An option of a trainer that can be on or off, whatever the others are.
struct Switch {
  std::string name, changes;
  std::vector<std::string> on, off;   // the words of a command that stand for either
  std::vector<std::string> excludes;  // switches that can't be on beside it

  bool operator==(const Switch&) const = default;
};
inline constexpr size_t kMaxSwitches = 12;
/// What a ladder's trainer is called with all its switches off, and with all on.
inline constexpr const char *kAllOff = "all_off", *kAllOn = "all_on";

struct Ladder {
  std::string name;    // what its rungs are called by beside another ladder's: "pytorch/02_tf32"
  std::string folder;  // of its file, where its commands run; "" for ours
  WorkloadDefaults workload;
  std::vector<Rung> rungs;  // lowest first
  std::vector<Switch> switches = {};
  std::optional<Rung> switched = {};  // what the file says of all rungs; {switches} is still in its command

  bool built_in() const { return folder.empty(); }
  /// Whether it is the one that is meant where none is named.
  bool usual() const;
  /// By "02", "tf32" or "02_tf32". Throws InputError with the nearest name for an unknown one.
  const Rung& find(const std::string& asked) const;
  /// Null for one that it does not list.
  const Rung* listed(const std::string& asked) const;
  /// Place in the ladder; past its end for a rung that it does not list.
  size_t height(const std::string& asked) const;
  /// The rungs below one, nearest first; none for one that it does not list.
  std::vector<std::string> ancestors(const std::string& asked) const;
  /// The rungs named, ranges ("00-03") among them, or all of them, in the ladder's order. Throws InputError
  /// for an unknown one.
  std::vector<Rung> chosen(const std::vector<std::string>& names) const;

  std::vector<std::string> switch_names() const;
  /// The trainer with these switches on and the others off. Needs `switched`.
  Rung with(const std::string& rung, const std::vector<std::string>& switches_on) const;

  /// What a results file keeps of it.
  Json json() const;
};

/// Ours, which are compiled in: that of time, "stepladder", first, then that of learning, "learning". No two
/// of their rungs have one name.
const std::vector<Ladder>& our_ladders();
/// The ladder of time.
const Ladder& ladder();
/// By its name; null for what is no ladder of ours.
const Ladder* our_ladder(const std::string& name);
/// A rung of either; null for one that they do not list.
const Rung* our_rung(const std::string& name);
/// A rung of either by its whole name, or of that of time as Ladder::find() has it.
const Rung& find_rung(const std::string& asked);

/// Reads a table like variants/ladder.json, whose trainers lie in `sources`, or with a `folder`, where the
/// file lies, one whose rungs have commands. Throws InputError with what is wrong.
Ladder ladder_from(const Json& table, const std::string& folder = "",
                   const std::string& sources = "variants");

/// What one rung is worth where others are there, or are not.
struct Ablation {
  std::string name;  // "without/03_fused_adamw", built as ablations/without_03_fused_adamw beside the rungs
  std::string kind;  // "without": the last rung but for `rung`; "only": the first with nothing but `rung`
  Rung rung;
  /// What it is measured against: for "without" the last of the rungs that are ablated(), else the first; or
  /// an ablation: "only" what `rung` needs, "without" what needs `rung` and is left out with it.
  Rung reference;
  /// "merge", or the path of the written file, from the root of the sources. "": nothing is built, since
  /// without `rung` the reference would be what it is.
  std::string source;
  /// The trainer's own facts: what its GEMMs run on, what it needs, how far its loss may lie from the
  /// baseline's.
  Rung row;

  /// "changes nothing in 13_cuda_graphs: 05_mixed_precision takes its place"; "" where something is built.
  std::string unchanged() const;
  /// The file name of its executable, in "ablations" beside the rungs: "without_03_fused_adamw".
  std::string program() const;
};

/// Both kinds of each rung of ours that is ablated(), lowest rung first, "without" before "only". Empty in a
/// build that found no git to merge them with.
const std::vector<Ablation>& ablations();

/// By its full name, "without/03_fused_adamw"; null for one that there is not.
const Ablation* listed_ablation(std::string_view name);

/// The row of a trainer of ours by its full name, "02_tf32" or "without/02_tf32". Throws InputError for an
/// unknown one.
Rung row_of(const std::string& trainer);

/// "fp32", "tf32", "half", "fp8".
const char* name_of(MathMode mode);

/// What is odd about the "math" of a trainer of a ladder file beside what it told of itself: left out, though
/// it trains a model whose MFU is known with it, or of another width than its "dtype". "" where nothing is.
std::string missing_math(std::optional<MathMode> math, const Json& config);
std::string contradicted_math(std::optional<MathMode> math, const Json& config);

/// Throws InputError, with numbers that would do, where `devices` cannot share the optimizer state of a model
/// of so many channels in equal parts.
void check_devices(const Rung& rung, int64_t channels, int64_t devices);

}  // namespace stepladder
