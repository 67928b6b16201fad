// The sizes of the model and of the batch, under the literature's letters.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "model/tensor.h"

namespace stepladder {

/// GPT-2 dimensions plus the micro-batch. Field names are the literature's.
struct Config {
  std::string model = "gpt2";
  int64_t B = 4;         // micro-batch
  int64_t T = 1024;      // sequence length of a batch, at most max_T
  int64_t max_T = 1024;  // positions in wpe
  int64_t V = 50257;     // vocabulary
  int64_t L = 12;        // layers
  int64_t NH = 12;       // heads
  int64_t C = 768;       // channels

  DType half = DType::bf16;  // 16-bit type of the rungs that use one: bf16 or f16; f32 for comparisons

  int64_t HS() const { return C / NH; }
  /// 1 / sqrt(HS), the factor of q k^T.
  float attention_scale() const { return 1.0F / std::sqrt(static_cast<float>(HS())); }
  /// Parameters, embeddings included (124,439,808 for gpt2).
  int64_t num_params() const { return V * C + max_T * C + L * (12 * C * C + 13 * C) + 2 * C; }
  /// Checks the extents: all positive, NH divides C, T <= max_T. Throws InputError naming the field that is
  /// wrong.
  void validate() const;

  /// The config of a model by its name: gpt2, gpt2-medium, gpt2-large, gpt2-xl, and small ones for tests and
  /// CPUs: gpt2-mini, gpt2-tiny. Throws InputError with the nearest name for an unknown one.
  static Config named(const std::string& model);
  static const std::vector<std::string>& names();
};

}  // namespace stepladder
