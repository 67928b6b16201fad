#include "bench/plan/settings.h"

#include <filesystem>
#include <set>

#include "bench/base/place.h"
#include "bench/base/text.h"
#include "model/checkpoint.h"

namespace stepladder {

std::string here_or_shared(const std::string& path) {
  namespace fs = std::filesystem;
  if (fs::exists(path)) return path;
  if (const fs::path shipped = fs::path(shared_dir()) / path; fs::exists(shipped)) return shipped;
  constexpr std::string_view kDefaults = "data/";
  if (!path.starts_with(kDefaults)) return path;
  const fs::path fetched = fs::path(user_data_dir()) / path.substr(kDefaults.size());
  return fs::exists(fetched) ? fetched.string() : path;
}

std::vector<Option> RungSettings::options() {
  // Upper limits keep every tensor's byte count within int64.
  constexpr double kMaxInt = 2147483647;
  return {
      {"data", &data, "PATH",
       "a token file (llm.c .bin, .npy, raw uint16), a folder of them, a pattern ('fw/*.bin'), or a .txt",
       kData},
      {"val-data", &val_data, "PATH",
       "the same for validation; default: of several files those named 'val' or the last, of one a tenth",
       kData},
      {"shuffle", &shuffle, "", "train on the files and the sequences in them in random order, by --seed",
       kData},
      {"vocab", &vocab, "DIR", "folder of encoder.json and vocab.bpe", kData},

      {"model", &model, "NAME", "default: gpt2, or as in --init or --resume", kModel, Config::names()},
      {"layers", &layers, "N", "default: the model's", kModel, {1, 128}},
      {"heads", &heads, "N", "default: the model's", kModel, {1, 128}},
      {"channels", &channels, "N", "default: the model's", kModel, {1, 65536}},
      {"vocabulary", &vocabulary, "N", "default: the model's", kModel, {1, 65536}},
      {"max-seq", &max_seq, "N", "positions of the model; default: the model's", kModel, {1, kMaxSeq}},
      {"batch", &batch, "N", "sequences in a micro-batch; default: 4, or what --max-batch finds", kModel,
       Allowed{1, kMaxBatch}},
      {"max-batch", &max_batch, "N", "look for the largest batch that fits, a power of two up to N", kModel,
       Allowed{1, kMaxBatch}},
      {"seq", &seq, "N", "tokens of a sequence; default: all positions", kModel, {1, kMaxSeq}},

      {"steps", &steps, "N", "optimizer steps in all; 0 only samples", kTraining, {0, kMaxInt}},
      {"accumulate", &hyper.accumulate, "N", "micro-batches in a step", kTraining, {1, 65536}},
      {"lr", &lr, "RATE", "learning rate after warm-up", kTraining, {0, 100}},
      {"min-lr", &min_lr, "RATE", "learning rate after decay; default: a tenth of --lr", kTraining, {0, 100}},
      {"warmup-lr-steps", &warmup_lr_steps, "N", "steps of linear warm-up", kTraining, {0, kMaxInt}},
      {"decay-steps", &decay_steps, "N", "step at which cosine decay ends; 0: none", kTraining, {0, kMaxInt}},
      {"weight-decay", &hyper.weight_decay, "RATE", "of the matrices", kTraining, {0, 100}},
      {"beta1", &hyper.beta1, "X", "AdamW's first moment", kTraining, {0, 0.999999}},
      {"beta2", &hyper.beta2, "X", "AdamW's second moment", kTraining, {0, 0.999999}},
      {"eps", &hyper.eps, "X", "AdamW's epsilon", kTraining, {0, 1}},
      {"loss-scale", &hyper.loss_scale, "X", "first loss scale of fp16", kTraining, {1, 1e30}},
      {"grad-clip", &hyper.grad_clip, "NORM", "global gradient norm at most", kTraining, {1e-9, 1e9}},
      {"seed", &seed, "N", "of initialisation, sampling and --shuffle", kTraining},

      {"backend", &backend, "NAME", "auto takes cuda where there is a device", kDevice,
       Allowed{"auto", "cpu", "cuda"}},
      {"device", &device, "N", "index of the CUDA device", kDevice, {0, 1023}},
      {"attention", &attention, "NAME", "whose flash attention; auto takes cuDNN's where there is one", kOps,
       Allowed{"auto", "cudnn", "native"}},
      {"deterministic", &deterministic, "", "the same bits every time, also where that is slower", kOps},
      {"narrow-access", &narrow_access, "", "no 128-bit loads and stores in the fused kernels", kOps},
      {"late-launch", &late_launch, "", "disable programmatic dependent launch", kOps},
      {"nccl", &nccl, "", "17, fp8_zero1 and muon_zero1: NCCL's kernels instead of copy engines", kOps},
      {"compute-capability", &compute_capability, "N",
       "use no feature newer than this: 75 runs what a T4 would; 0: the device's own", kOps,
       Allowed{0, 1000}},
      {"dtype", &dtype, "NAME",
       "of the rungs in 16 bits; default: bf16 where the device has it; fp32 on the CPU, to compare", kDevice,
       Allowed{"bf16", "fp16", "fp32"}},
      {"cache", &cache, "DIR", "keeps those found; '': none, each run searches", kSearch, {}, true},
      {"search-again", &search_again, "", "time them again, and keep those found now", kSearch},
      {"hang-timeout", &hang_timeout, "SECONDS",
       "several ranks: the job ends when none gets further for so long; default: 300 in the first step, then "
       "20 or 20 times the longest step",
       kDevice, Allowed{1, 1e9}},
      {"independent-ranks", &independent_ranks, "",
       "several ranks: each trains by itself, only their steps begin together", kDevice},

      {"eval-every", &eval_every, "N", "steps between validation losses; 0: none", kSampling, {0, kMaxInt}},
      {"eval-batches", &eval_batches, "N", "micro-batches of a validation loss", kSampling, {1, kMaxInt}},
      {"eval-skip", &eval_skip, "N", "micro-batches of the validation data that come before those", kSampling,
       Allowed{0, kMaxInt}},
      {"until-loss", &until_loss, "LOSS",
       "stop at the first validation loss that is no higher; --steps are the most", kSampling,
       Allowed{0, 1000}},
      {"sample-every", &sample_every, "N", "steps between samples; 0: none", kSampling, {0, kMaxInt}},
      {"sample-tokens", &sample_tokens, "N", "tokens of a sample", kSampling, {1, 1 << 20}},
      {"prompt", &prompt, "TEXT", "what a sample starts with", kSampling},
      {"temperature", &temperature, "X", "0 takes the most likely token", kSampling, {0, 1000}},
      {"top-k", &top_k, "N", "sample among the k most likely; 0: all", kSampling, {0, 65536}},
      {"hellaswag", &hellaswag, "FILE",
       "accuracy on llm.c's hellaswag_val.bin with each validation loss; with --steps 0 instead of a sample",
       kSampling},

      {"init", &init, "FILE", "start from these weights: safetensors or llm.c's .bin", kFiles},
      {"resume", &resume, "FILE", "go on from a --checkpoint", kFiles},
      {"checkpoint", &checkpoint, "FILE", "where to leave a checkpoint at the end", kFiles},
      {"checkpoint-every", &checkpoint_every, "N", "and every N steps; 0: only then", kFiles, {0, kMaxInt}},
      {"save-weights", &save_weights, "FILE", "safetensors for Hugging Face at the end", kFiles},

      {"plan", &plan, "", "print batch and memory as JSON instead of training", kOther},
      {"times", &times, "FILE", "write the milliseconds of each step as JSON at the end", kOther},
      {"events", &events, "FD", "write JSON lines to this file descriptor", kOther, {0, kMaxInt}},
      {"profile", &profile, "N", "trace the steps after the first N for --events", "",
       Allowed{0, kMaxInt}},                                                                     // hidden
      {"trace", &trace, "FILE", "write the last step that --profile traces as a timeline", ""},  // hidden
  };
}

std::vector<Option> RungSettings::shared_options() {
  static const std::set<std::string> names = {"data",       "val-data",    "shuffle",         "lr",
                                              "loss-scale", "seed",        "backend",         "device",
                                              "dtype",      "decay-steps", "warmup-lr-steps", "min-lr"};
  std::vector<Option> shared = options();
  std::erase_if(shared, [&](const Option& option) {
    return option.group != kOps && option.group != kSearch && !names.contains(option.name);
  });
  return shared;
}

std::vector<std::string> RungSettings::shared_arguments(std::optional<MathMode> math, bool native) const {
  RungSettings given = *this, defaults;
  if (math != MathMode::half) given.dtype.reset();
  if (!native) {
    given.hyper.loss_scale = defaults.hyper.loss_scale;
    given.cache = defaults.cache;
    given.search_again = false;
    given.deterministic = given.narrow_access = given.late_launch = given.nccl = false;
    given.compute_capability = 0;
  }
  return arguments_of(given.shared_options(), defaults.shared_options());
}

void RungSettings::check_validation(int64_t batches, const std::string& path) const {
  if (eval_skip == 0 || batches >= eval_skip + eval_batches) return;
  throw InputError(cat(path, ": ", batches, " validation batches, fewer than --eval-skip ", eval_skip,
                       " and ", eval_batches,
                       " to evaluate on: give fewer --eval-batches, or more --val-data"));
}

void RungSettings::check() const {
  if (!init.empty() && !resume.empty())
    throw InputError("--init and --resume both say where the weights come from: give one");
  if (checkpoint_every > 0 && checkpoint.empty())
    throw InputError("--checkpoint-every says when, --checkpoint must say where");
  const std::vector<std::pair<const char*, bool>> of_training = {{"--checkpoint", !checkpoint.empty()},
                                                                 {"--save-weights", !save_weights.empty()},
                                                                 {"--times", !times.empty()},
                                                                 {"--plan", plan}};
  for (const auto& [option, given] : of_training)
    if (steps == 0 && given) throw InputError(cat(option, " is of training, which --steps 0 leaves out"));
  if (until_loss && eval_every == 0)
    throw InputError("--until-loss says which validation loss, --eval-every must say when to look");
  if (!hellaswag.empty() && steps > 0 && eval_every == 0)
    throw InputError("--hellaswag says what to answer, --eval-every must say when to ask");
  if (until_loss && independent_ranks)
    throw InputError("--until-loss: ranks that train as --independent-ranks can't stop together");
  if (profile && (*profile >= steps || !resume.empty()))
    throw InputError("--profile traces a run from its start, and must leave some of --steps to trace");
  if (!trace.empty() && !profile) throw InputError("--trace writes what --profile traces: give that too");
}

Config RungSettings::resolve() {
  data = here_or_shared(data);
  vocab = here_or_shared(vocab);

  constexpr int64_t kUsualBatch = 4;
  const std::string& weights = resume.empty() ? init : resume;
  const bool from_weights = !weights.empty() && !model;
  Config config = from_weights ? config_of_checkpoint(weights) : Config::named(model.value_or("gpt2"));
  config.L = layers.value_or(config.L);
  config.NH = heads.value_or(config.NH);
  config.C = channels.value_or(config.C);
  config.V = vocabulary.value_or(config.V);
  config.max_T = max_seq.value_or(config.max_T);
  config.B = batch.value_or(kUsualBatch);
  config.T = seq.value_or(config.max_T);
  config.validate();

  model = config.model, layers = config.L, heads = config.NH, channels = config.C;
  vocabulary = config.V, max_seq = config.max_T, seq = config.T, batch = config.B;
  return config;
}

OpsOptions RungSettings::ops_options() const {
  return {.attention = attention == "cudnn"    ? Attention::cudnn
                       : attention == "native" ? Attention::native
                                               : Attention::automatic,
          .deterministic = deterministic,
          .wide_access = !narrow_access,
          .early_launch = !late_launch,
          .copy_engines = !nccl,
          .count_cycles = events && !profile,  // a profile traces the step alone
          .compute_capability = compute_capability,
          .cache_dir = cache,
          .search_again = search_again};
}

DType RungSettings::half_type(const Rung& rung, const DeviceInfo& device_info) {
  if (rung.math != MathMode::half) {
    if (dtype)
      throw InputError(
          cat("--dtype: ", rung.name, " has no choice of types; 05_mixed_precision and those above it do"));
    return DType::bf16;
  }
  if (!dtype) dtype = device_info.bf16 ? "bf16" : "fp16";
  if (*dtype == "fp16") return DType::f16;
  if (*dtype == "fp32") {
    if (device_info.backend != "cpu")
      throw InputError("--dtype fp32: only on the CPU; use a rung below 05_mixed_precision");
    return DType::f32;
  }
  if (!device_info.bf16)
    throw UnsupportedError(cat("bf16 needs sm_80, this is sm_", device_info.compute_capability, " (",
                               device_info.name, "): use --dtype fp16"));
  return DType::bf16;
}

Schedule RungSettings::schedule() const {
  // A tenth in decimal: 6e-5 of 6e-4, not the float beside it.
  const auto tenth = static_cast<float>(of_float(lr) / 10);
  return {lr, min_lr.value_or(tenth), warmup_lr_steps, decay_steps};
}

std::vector<std::string> arguments_of(const std::vector<Option>& options,
                                      const std::vector<Option>& defaults) {
  std::vector<std::string> arguments;
  for (size_t i = 0; i < options.size(); ++i) {
    check(options[i].name == defaults.at(i).name, "the defaults of other options");
    if (options[i].text() == defaults[i].text()) continue;
    arguments.push_back("--" + options[i].name);
    if (!std::holds_alternative<bool*>(options[i].value)) arguments.push_back(options[i].text());
  }
  return arguments;
}

}  // namespace stepladder
