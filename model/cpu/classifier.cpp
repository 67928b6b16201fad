#include <algorithm>
#include <cmath>

#include "model/cpu/cpu.h"
#include "model/cpu/statistics.h"

namespace stepladder {
namespace {

float value_of(const LossScale& scale) {
  return scale.factor * (present(scale.loss_scaler) ? *scale.loss_scaler.ptr<float>() : 1.0F);
}

void expect_targets(const char* op, Tensor targets, int64_t V) {
  const int32_t* p = targets.ptr<int32_t>();
  for (int64_t n = 0; n < targets.numel(); ++n)
    check(p[n] >= 0 && p[n] < V, op, ": target ", p[n], " at ", n, " of ", targets, ", vocabulary ", V);
}

/// A row of logits x as cap * tanh(x / cap).
template <class T>
struct Capped {
  Floats<T> x;
  float cap;
  float operator[](int64_t v) const { return cap * std::tanh(x[v] / cap); }
};

/// The derivative of a logit z with respect to the stored logit it was computed from.
template <class T>
float slope(Floats<T> /*row*/, float /*z*/) {
  return 1.0F;
}
template <class T>
float slope(Capped<T> row, float z) {
  return 1.0F - z / row.cap * (z / row.cap);
}

/// f(logits) for a row of stored logits: the row itself, or Capped where soft_cap is not 0.
template <class T, class F>
void with_cap(Floats<T> row, float soft_cap, const F& f) {
  if (soft_cap == 0.0F) return f(row);
  f(Capped<T>{row, soft_cap});
}

}  // namespace

void LogSoftmaxForward::run(Cpu& cpu) const {
  const int64_t V = logp.cols(), Vp = logits.cols();
  float* plogp = logp.ptr<float>();
  with_float_type(logits.dtype, [&]<class T>(T) {
    const auto flogits = floats<T>(logits);
    cpu.each_row(rows_of(logp), V, [=](int64_t n) {
      const auto x = flogits + n * Vp;
      float* out = plogp + n * V;
      const double logsumexp = exp_sum(x, V).log();
      STEPLADDER_SIMD
      for (int64_t v = 0; v < V; ++v) out[v] = static_cast<float>(x[v] - logsumexp);
    });
  });
}

void LogSoftmaxBackward::run(Cpu& cpu) const {
  const int64_t V = logp.cols(), Vp = dlogits.cols(), Vp_in = dlogp.cols();
  const float *pdlogp = dlogp.ptr<float>(), *plogp = logp.ptr<float>();
  with_float_type(dlogits.dtype, [&]<class T>(T) {
    const auto fdlogits = floats<T>(dlogits);
    cpu.each_row(rows_of(logp), V, [=](int64_t n) {
      const float *d = pdlogp + n * Vp_in, *lp = plogp + n * V;
      const auto out = fdlogits + n * Vp;
      const auto total = static_cast<float>(sum(V, [=](int64_t v) { return d[v]; }));
      STEPLADDER_SIMD
      for (int64_t v = 0; v < V; ++v) out.set(v, d[v] - exp_float(lp[v]) * total);
    });
  });
}

void NllLossForward::run(Cpu&) const {
  const int64_t N = targets.numel(), V = logp.cols();
  expect_targets(kName, targets, V);
  const int32_t* ptargets = targets.ptr<int32_t>();
  const float* plogp = logp.ptr<float>();
  float* plosses = losses.ptr<float>();
  for (int64_t n = 0; n < N; ++n) plosses[n] = -plogp[n * V + ptargets[n]];
}

void NllLossBackward::run(Cpu& cpu) const {
  const int64_t N = targets.numel(), V = dlogp.cols();
  expect_targets(kName, targets, V);
  const float at_target = -value_of(scale);
  const int32_t* ptargets = targets.ptr<int32_t>();
  float* pdlogp = dlogp.ptr<float>();
  cpu.each_row(N, V, [=](int64_t n) {
    std::fill_n(pdlogp + n * V, V, 0.0F);
    pdlogp[n * V + ptargets[n]] = at_target;
  });
}

void CrossEntropyForward::run(Cpu& cpu) const {
  expect_targets(kName, targets, V);
  const int64_t Vp = logits.cols();
  const int32_t* ptargets = targets.ptr<int32_t>();
  float* plosses = losses.ptr<float>();
  with_float_type(logits.dtype, [&]<class T>(T) {
    const auto flogits = floats<T>(logits);
    cpu.each_row(targets.numel(), V, [=, V = V, cap = soft_cap](int64_t n) {
      with_cap(flogits + n * Vp, cap,
               [=](auto z) { plosses[n] = static_cast<float>(exp_sum(z, V).log() - z[ptargets[n]]); });
    });
  });
}

void CrossEntropyForwardBackward::run(Cpu& cpu) const {
  expect_targets(kName, targets, V);
  const int64_t Vp = logits.cols();
  const float factor = value_of(scale);
  const int32_t* ptargets = targets.ptr<int32_t>();
  float* plosses = losses.ptr<float>();
  with_float_type(logits.dtype, [&]<class T>(T) {
    const auto flogits = floats<T>(logits);
    cpu.each_row(targets.numel(), Vp, [=, V = V, cap = soft_cap](int64_t n) {
      const auto x = flogits + n * Vp;
      with_cap(x, cap, [=](auto z) {
        const int32_t target = ptargets[n];
        const float at_target = z[target];
        const ExpSum exps = exp_sum(z, V);
        const float top = exps.top;
        const auto inverse = static_cast<float>(1.0 / exps.sum);
        plosses[n] = static_cast<float>(exps.log() - at_target);
        STEPLADDER_SIMD
        for (int64_t v = 0; v < V; ++v) {
          const float zv = z[v];
          x.set(v, factor * (exp_float(zv - top) * inverse) * slope(z, zv));
        }
        x.set(target, factor * (exp_float(at_target - top) * inverse - 1.0F) * slope(z, at_target));
      });
      std::fill(x.data + V, x.data + Vp, from_float<T>(0.0F));
    });
  });
}

void AddMean::run(Cpu&) const {
  const float* px = x.ptr<float>();
  float& total = *out.ptr<float>();
  total = static_cast<float>(total + sum(x.numel(), [=](int64_t i) { return px[i]; }) /
                                         static_cast<double>(x.numel()));
}

}  // namespace stepladder
