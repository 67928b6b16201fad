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

/// One row of a ladder file; its command runs in the ladder's folder.
struct Rung : TrainerSpec {
  std::string name;  // "01_causal_mask"
  /// The rung whose executable this rung runs: itself, or a rung that differs only by batch or ladder.
  std::string trainer;
  std::string parent;  // the rung that this one changes; "" for the first
  std::string group;   // "fused kernels", a group that published tables have as one step; or ""
  std::string changes;
  /// Whether the rung stands beside the ladder, without a number: no rung builds on it, and it isn't ablated.
  bool beside = false;
  /// Whether its optimizer state is cut into equal parts, one for each device.
  bool sharded = false;
  int diff_budget = 0;  // most lines changed against the parent's file
  /// The rung that this one needs: "only" of this rung includes the needed one, and "without" of the needed
  /// one leaves this rung out too. "" if none.
  std::string needs;
  /// The later rung that takes this one's place: leaving this one out of the last rung changes nothing. "" if
  /// none.
  std::string subsumed_by;
  /// The file that `stepladder diff` shows, from the ladder's folder; "" for none. A ladder file's rung has
  /// it and files that its command names among its sources.
  std::string shown;

  /// Whether the rung is ablated: its change is merged out of the tuned rung and, alone, into the first rung.
  /// Rungs of another batch, on several devices or beside the ladder are not ablated, nor is the first rung.
  bool ablated() const { return batch == BatchSize::usual && devices == 1 && !beside && !parent.empty(); }
  /// Whether its weights, gradients and activations take 16 bits.
  bool in_16_bits() const { return math == MathMode::half || math == MathMode::fp8; }
  /// What the rung requires as text: "sm_80", "2 devices", or "" when any device will do.
  std::string requirement() const;
};

/// The default workload of a ladder; the device's preset fills in missing fields.
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

/// An option of a trainer that can be on or off independently of the other switches, except those in
/// `excludes`.
struct Switch {
  std::string name, changes;
  std::vector<std::string> on, off;   // words of the command that switch it on, and off
  std::vector<std::string> excludes;  // switches that can't be on together with this one

  bool operator==(const Switch&) const = default;
};
inline constexpr size_t kMaxSwitches = 12;
/// Names of a ladder's trainer with all its switches off, and with all on.
inline constexpr const char *kAllOff = "all_off", *kAllOn = "all_on";
/// Kinds of ablations, with which their names begin: "without/03_fused_adamw".
inline constexpr const char *kWithout = "without", *kOnly = "only", *kBoth = "both";

struct Ladder {
  std::string name;    // prefix of its rungs beside another ladder's: "pytorch/02_tf32"
  std::string folder;  // its file's folder, where its commands run; "" for ours
  WorkloadDefaults workload;
  std::vector<Rung> rungs;  // lowest first
  std::vector<Switch> switches = {};
  std::optional<Rung> switched = {};  // the trainer's fields, with {switches} in its command

  bool built_in() const { return folder.empty(); }
  /// Whether this is the default ladder, ours of time.
  bool usual() const;
  /// Its name as files tell it: "" for the default ladder.
  std::string told_name() const { return usual() ? "" : name; }
  /// The rung called "02", "tf32" or "02_tf32". Throws InputError with the nearest name for an unknown rung.
  const Rung& find(const std::string& asked) const;
  /// The rung of that whole name; null where the ladder doesn't list it.
  const Rung* listed(const std::string& asked) const;
  /// A rung's place in the ladder; past the end for a rung that isn't listed.
  size_t height(const std::string& asked) const;
  /// A rung's parent, the parent's parent and so on; empty for a rung that isn't listed.
  std::vector<std::string> ancestors(const std::string& asked) const;
  /// The rungs that `names` holds, singly or as ranges ("00-03"), or all rungs for "all", in the ladder's
  /// order. Throws InputError for an unknown rung.
  std::vector<Rung> chosen(const std::vector<std::string>& names) const;

  std::vector<std::string> switch_names() const;
  /// The trainer with these switches on and the others off, as a rung of that name. Needs `switched`.
  Rung with(const std::string& rung, const std::vector<std::string>& switches_on) const;

  /// The fields of the ladder that a results file keeps.
  Json json() const;
};

/// Our ladders, which are compiled in: first the ladder of time, "stepladder", then the ladder of learning,
/// "learning". No two of their rungs have the same name.
const std::vector<Ladder>& our_ladders();
/// The ladder of time.
const Ladder& ladder();
/// Our ladder of that name; null where there is none.
const Ladder* our_ladder(const std::string& name);
/// The rung of that whole name in our ladders; null where neither lists it.
const Rung* our_rung(const std::string& name);
/// The rung of exactly this name in any of our ladders, else what Ladder::find() finds in the ladder of time.
const Rung& find_rung(const std::string& asked);

/// Reads a table like variants/ladder.json, whose trainers lie in `sources`; or, with a `folder`, a ladder
/// file that lies there, whose rungs have commands. Throws InputError with what is wrong.
Ladder ladder_from(const Json& table, const std::string& folder = "",
                   const std::string& sources = "variants");

/// A trainer that shows what one rung is worth: the last rung without it, or the first with it alone.
struct Ablation {
  std::string name;  // "without/03_fused_adamw", built as ablations/without_03_fused_adamw beside the rungs
  std::string kind;  // "without": the last rung without `rung`; "only": the first with `rung` alone
  Rung rung;
  /// The trainer that this ablation is measured against: the last ablated() rung for "without", the first
  /// rung for "only". Where B needs A, it is "only/A" for "only/B", and "without/B" for a merged "without/A",
  /// which leaves B out too.
  Rung reference;
  /// "merge", or the path of the file written by hand, from the root of the sources. "": nothing is built,
  /// since `rung` changes nothing in the reference.
  std::string source;
  /// The ablation as a rung: its math mode, what it needs, and the tolerance of its loss.
  Rung row;

  /// Why nothing is built: "changes nothing in 13_cuda_graphs: 05_mixed_precision takes its place"; "" where
  /// something is built.
  std::string unchanged() const;
  /// The file name of its executable, in "ablations" beside the rungs: "without_03_fused_adamw".
  std::string program() const;
};

/// Both kinds of ablation of each rung of ours that is ablated(), lowest rung first, "without" before "only".
/// Empty in a build that found no git to merge them with.
const std::vector<Ablation>& ablations();

/// The ablation of that full name, "without/03_fused_adamw"; null where there is none.
const Ablation* listed_ablation(std::string_view name);

/// The row of a trainer of ours by its full name, "02_tf32" or "without/02_tf32". Throws InputError for an
/// unknown one.
Rung row_of(const std::string& trainer);

/// The mode's name in files: "fp32", "tf32", "half", "fp8".
const char* name_of(MathMode mode);

/// What is odd about the "math" of a ladder file's trainer, given the config that the trainer reported.
/// missing_math(): "math" is missing, though the MFU of the trainer's model needs nothing else.
/// contradicted_math(): "math" has another width than the config's "dtype". "" where nothing is odd.
std::string missing_math(std::optional<MathMode> math, const Json& config);
std::string contradicted_math(std::optional<MathMode> math, const Json& config);

/// Checks that the devices of a sharded rung can share the optimizer state of a model of so many channels in
/// equal parts. Throws InputError, with numbers of devices that can, where they can't.
void check_devices(const Rung& rung, int64_t channels, int64_t devices);

}  // namespace stepladder
