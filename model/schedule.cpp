#include "model/schedule.h"

#include <cmath>
#include <numbers>

namespace stepladder {

float Schedule::at(int64_t step) const {
  if (step < warmup_steps)
    return static_cast<float>(double{max_lr} * static_cast<double>(step + 1) /
                              static_cast<double>(warmup_steps));
  if (decay_steps == 0) return max_lr;
  if (step >= decay_steps) return min_lr;
  const double progress =
      static_cast<double>(step - warmup_steps) / static_cast<double>(decay_steps - warmup_steps);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return static_cast<float>(min_lr + cosine * (double{max_lr} - min_lr));
}

}  // namespace stepladder
