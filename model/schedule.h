// Learning-rate schedule.
#pragma once

#include <cstdint>

namespace stepladder {

/// Linear warm-up, then cosine decay (GPT-3's, as in nanoGPT and build-nanogpt).
struct Schedule {
  float max_lr = 6e-4F;
  float min_lr = 6e-5F;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;  // step at which min_lr is reached; 0: constant max_lr after warm-up

  /// Learning rate of `step`, counted from 0: max_lr (step+1)/warmup_steps while warming up.
  float at(int64_t step) const;
};

}  // namespace stepladder
