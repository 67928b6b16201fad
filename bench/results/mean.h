// Means and how certain they are: Student's t tests, bounds, and sums of independent means.
#pragma once

#include <span>

#include "bench/base/statistics.h"

namespace stepladder {

/// An estimate of a mean, or of a sum of means.
struct Mean {
  double value = 0.0;
  double variance = 0.0;  // variance of the estimate: s^2 / n for a sample's mean
  double df = 0.0;        // degrees of freedom of the variance

  double error() const;  // standard error: sqrt(variance)
};

/// A sample's mean: variance s^2 / n with n - 1 degrees of freedom. Throws std::invalid_argument on fewer
/// than two values, or one that is not finite.
Mean mean_of(std::span<const double> samples);

/// The sum of two independent means: variances add, the degrees of freedom are Welch's and Satterthwaite's,
/// (v1 + v2)^2 / (v1^2 / df1 + v2^2 / df2).
Mean operator+(const Mean& one, const Mean& other);

/// mean(next) - mean(base) of independent samples that spread alike: Student's two-sample t with the pooled
/// variance. One of the samples may have a single value. Throws std::invalid_argument on an empty sample, on
/// one value each, or on a value that is not finite.
Mean difference_of_means(std::span<const double> base, std::span<const double> next);

/// One-sided p-values: the chance of an estimate this far above (or below) `limit` if the true mean were not
/// above (or below) it. An estimate without variance leaves no doubt: 0 or, within rounding, 1.
double p_above(const Mean& mean, double limit = 0.0);
double p_below(const Mean& mean, double limit = 0.0);

/// The bound that the true mean lies below (p > 0.5) with confidence p, or above (p < 0.5) with confidence 1
/// - p.
double bound(const Mean& mean, double p);
/// The interval that holds the true mean with `confidence`.
Interval interval_of(const Mean& mean, double confidence);

}  // namespace stepladder
