// The options of a rung's executable, with their defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/base/options.h"
#include "bench/plan/ladder.h"
#include "model/config.h"
#include "model/gpt2.h"
#include "model/sample.h"
#include "model/schedule.h"

namespace stepladder {

/// The options of a rung's executable. Hyperparameters default to build-nanogpt's, with a warm-up short
/// enough for the runs of an ablation.
struct RungSettings {
  static constexpr int64_t kMaxBatch = 16384, kMaxSeq = 32768;

  std::string data = "data/austen.txt", val_data, vocab = "data/gpt2";
  bool shuffle = false;

  std::optional<std::string> model;
  std::optional<int64_t> layers, heads, channels, vocabulary, max_seq, seq, batch, max_batch;

  int64_t steps = 40;
  float lr = 6e-4F;
  std::optional<float> min_lr;
  int64_t warmup_lr_steps = 10, decay_steps = 0;
  Hyper hyper;
  uint64_t seed = 1337;

  std::string backend = "auto";
  int device = 0;
  bool independent_ranks = false;       // each rank trains by itself
  bool nccl = false;                    // NCCL instead of copy engines
  std::optional<int64_t> hang_timeout;  // seconds
  std::optional<std::string> dtype;
  std::string attention = "auto", cache = "data/cache";
  bool search_again = false;
  bool deterministic = false, narrow_access = false, late_launch = false;
  int compute_capability = 0;

  int eval_every = 0, eval_batches = 8;
  int64_t eval_skip = 0;
  std::optional<double> until_loss;
  int64_t sample_every = 0;
  int sample_tokens = 64;
  std::string prompt;
  float temperature = 1.0F;
  int top_k = 50;
  std::string hellaswag;

  std::string init, resume, checkpoint, save_weights, times;
  int64_t checkpoint_every = 0;

  bool plan = false;
  std::optional<int64_t> events;   // file descriptor
  std::optional<int64_t> profile;  // steps before the first that is traced
  std::string trace;               // file for a timeline of the last traced step

  /// Groups of options().
  static constexpr const char *kData = "Data", *kModel = "Model and batch", *kTraining = "Training",
                              *kDevice = "Device", *kOps = "Ops", *kSearch = "Search of GEMM algorithms",
                              *kSampling = "Evaluation and sampling", *kFiles = "Checkpoints",
                              *kOther = "Other";
  /// The table that parses, explains and records the settings; it points into this object.
  std::vector<Option> options();
  /// The options that `stepladder run` and the like take too, for all rungs that they measure; the workload's
  /// model, batch, sequence and steps are not among them.
  std::vector<Option> shared_options();
  /// The command line of those shared_options() that differ from their defaults and that a rung on `math`, or
  /// a ladder file's trainer, understands: --dtype goes to rungs with a choice of types; of the options of
  /// our ops, a trainer that isn't `native` gets --attention alone.
  std::vector<std::string> shared_arguments(std::optional<MathMode> math, bool native) const;

  /// Throws InputError for options that contradict each other.
  void check() const;
  /// Throws InputError where this many validation batches, of `path`, don't suffice for --eval-skip.
  void check_validation(int64_t batches, const std::string& path) const;
  /// The model and batch asked for: --model or the checkpoint's shape, then the overrides. Fills the optional
  /// fields in, so that options() show what is used. Throws InputError for an unknown model, an impossible
  /// shape or a bad checkpoint.
  Config resolve();

  /// How the backend is to run the ops.
  OpsOptions ops_options() const;
  /// The 16-bit type to train in: --dtype, or bf16 where `device` has it, else fp16. Fills --dtype in for a
  /// rung that has a choice. Throws InputError for --dtype to a rung without a choice, UnsupportedError for
  /// bf16 on a device that lacks it.
  DType half_type(const Rung& rung, const DeviceInfo& device);

  Schedule schedule() const;
  SampleOptions sampling() const { return {temperature, top_k, seed}; }
  /// Whether the run draws tokens or answers questions.
  bool decodes() const { return steps == 0 || sample_every > 0 || !hellaswag.empty(); }
};

/// The plan of campaigns by default; see here_or_shared().
constexpr const char* kCampaignPlan = "variants/campaign.json";

/// `path` where it exists, else the file of that path that comes with the programs or is in user_data_dir();
/// `path` where there is none.
std::string here_or_shared(const std::string& path);

/// The command line of those `options` that differ from the option at the same place in `defaults`. Options
/// at their default are left out, so that an older executable need not know them.
std::vector<std::string> arguments_of(const std::vector<Option>& options,
                                      const std::vector<Option>& defaults);

}  // namespace stepladder
