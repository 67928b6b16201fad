// Checkpoints: Hugging Face safetensors both ways, our own resumable form of the same container, and llm.c's
// .bin.
#pragma once

#include <cstdint>
#include <string>

#include "model/gpt2.h"

namespace stepladder {

/// The state that a resumed run needs besides the tensors.
struct TrainState {
  int64_t step = 0;   // steps done
  int64_t batch = 0;  // Loader::index()
  uint64_t seed = 0;
};

/// Loads weights into the parameters of a trainer of `architecture`. Formats, told apart by content:
/// safetensors with GPT-2's names (with or without "transformer." and what wrappers add, such as
/// "_orig_mod."; matrices as Conv1D or as nn.Linear has them; lm_head tied, missing, or without wte; tensors
/// that GPT-2 has no place for ignored; F32, F16 or BF16), or llm.c's gpt2_124M.bin (20240326; version 3
/// fp32, 5 bf16). Throws InputError naming the file, and the tensor that is damaged, missing, unknown, not
/// finite, or of another shape than `config` says. If the file holds no weights, the error says what it is;
/// if its architecture is not the trainer's, the error names both architectures. Stepladder's files note
/// their architecture; other files count as GPT-2's.
void load_weights(const std::string& path, Ops& ops, const ParameterGroup& params, const Config& config,
                  const std::string& architecture);

/// Checks the config.json beside `path`, which from_pretrained() would read with the weights. Throws
/// InputError where it describes another model.
void check_config_beside(const std::string& path, const Config& config, const std::string& architecture);

/// Writes weights as Hugging Face's GPT2LMHeadModel would (F32, "transformer." names), atomically, and the
/// config.json that from_pretrained() wants where the folder has none. For an architecture other than
/// GPT-2's, both files bear the architecture's name. Throws as check_config_beside() does.
void save_weights(const std::string& path, Ops& ops, const ParameterGroup& params, const Config& config,
                  const std::string& architecture);

/// Config of a checkpoint: from llm.c's header, from save_weights()' note, or else from the tensors' shapes.
/// Shapes don't tell the number of heads: that comes from a config.json beside the file; without one, heads
/// have 64 channels as in every published GPT-2. B and T are left at their defaults (T at most max_T). Throws
/// InputError as load_weights() does.
Config config_of_checkpoint(const std::string& path);

/// Writes what save_weights() writes, plus the optimizer's tensors, such as AdamW's moments
/// ("stepladder.m.<name>"), and `state` as metadata. The file stays a valid Hugging Face file. Atomic: if the
/// disk is full, the old file is kept.
void save_checkpoint(const std::string& path, Ops& ops, const Trainer& trainer, const TrainState& state);

/// Loads what save_checkpoint() wrote, bitwise. Throws InputError as load_weights does, and for a file
/// without optimizer state.
TrainState load_checkpoint(const std::string& path, Ops& ops, Trainer& trainer, const Config& config);

}  // namespace stepladder
