// FLOPs of a training step, dense peaks of devices, and model FLOPs utilisation by both formulas in use.
#pragma once

#include <optional>
#include <string>

#include "model/config.h"

namespace stepladder {

/// Arithmetic of the step's matmuls; picks the peak that MFU is measured against.
enum class MathMode { fp32, tf32, half, fp8 };

/// FLOPs of the model for each token of a step, by both formulas in use.
struct FlopsPerToken {
  /// nanoGPT's (PaLM appendix B): 6 N + 12 L C T, N without tables that no GEMM multiplies by, such as wpe.
  double nanogpt = 0.0;
  /// llm.c's: 6 N + 6 L C T, N with such tables and with the vocabulary padded to a multiple of 128, whatever
  /// the run pads.
  double llmc = 0.0;
};
/// FLOPs per token of GPT-2: for gpt2 at T=1024 855.2 MFLOP by nanoGPT's formula, 803.5 by llm.c's.
FlopsPerToken flops_per_token(const Config& config);

/// Dense peak in FLOP/s of a device by its driver's name ("NVIDIA H200"); empty for a device or mode not in
/// the table, never a guess. The table's sources are beside it.
std::optional<double> peak_flops(const std::string& device_name, MathMode mode);

/// flops / seconds / peak; empty when the peak is unknown. Throws std::logic_error for a result above 1,
/// which means that a time or the table is wrong.
std::optional<double> mfu(double flops_per_token, double tokens_per_second, std::optional<double> peak);

}  // namespace stepladder
