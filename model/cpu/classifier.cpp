#include <algorithm>

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"
#include "model/cpu/statistics.h"

namespace stepladder {
namespace {

/// What the loss is multiplied with before the backward pass; 1 without a loss scaler.
float loss_scale(Tensor loss_scaler) {
  return present(loss_scaler) ? *loss_scaler.ptr<float>() : 1.0F;
}

/// x (...,Vp) has the rows of y (...,V), and V <= Vp.
bool covers(Tensor x, Tensor y) {
  return x.shape.rank() > 0 && y.shape.rank() > 0 && x.cols() >= y.cols() && rows_of(x) == rows_of(y);
}

void expect_targets(const char* op, Tensor targets, int64_t V) {
  const int32_t* p = targets.ptr<int32_t>();
  for (int64_t n = 0; n < targets.numel(); ++n)
    check(p[n] >= 0 && p[n] < V, op, ": target ", p[n], " at ", n, " of ", targets, ", vocabulary ", V);
}

}  // namespace

void CpuOps::log_softmax_forward(Tensor logp, Tensor logits) {
  expect(one_float_type(logits) && all_f32(logp) && covers(logits, logp), "log_softmax_forward", logp,
         logits);
  const int64_t V = logp.cols(), Vp = logits.cols();
  float* plogp = logp.ptr<float>();
  with_float_type(logits.dtype, [&]<class T>(T) {
    const auto flogits = floats<T>(logits);
    each_row(rows_of(logp), V, [=](int64_t n) {
      const auto x = flogits + n * Vp;
      float* out = plogp + n * V;
      const double logsumexp = exp_sum(x, V).log();
      STEPLADDER_SIMD
      for (int64_t v = 0; v < V; ++v) out[v] = static_cast<float>(x[v] - logsumexp);
    });
  });
}

void CpuOps::log_softmax_backward(Tensor dlogits, Tensor dlogp, Tensor logp) {
  expect(one_float_type(dlogits) && all_f32(dlogp, logp) && covers(dlogits, logp) && covers(dlogp, logp),
         "log_softmax_backward", dlogits, dlogp, logp);
  const int64_t V = logp.cols(), Vp = dlogits.cols(), Vp_in = dlogp.cols();
  const float *pdlogp = dlogp.ptr<float>(), *plogp = logp.ptr<float>();
  with_float_type(dlogits.dtype, [&]<class T>(T) {
    const auto fdlogits = floats<T>(dlogits);
    each_row(rows_of(logp), V, [=](int64_t n) {
      const float *d = pdlogp + n * Vp_in, *lp = plogp + n * V;
      const auto out = fdlogits + n * Vp;
      const auto total = static_cast<float>(sum(V, [=](int64_t v) { return d[v]; }));
      STEPLADDER_SIMD
      for (int64_t v = 0; v < V; ++v) out.set(v, d[v] - exp_float(lp[v]) * total);
    });
  });
}

void CpuOps::nll_loss_forward(Tensor losses, Tensor logp, Tensor targets) {
  expect(all_f32(losses, logp) && is_i32(targets) && one_per_row(logp, losses, targets), "nll_loss_forward",
         losses, logp, targets);
  const int64_t N = targets.numel(), V = logp.cols();
  expect_targets("nll_loss_forward", targets, V);
  const int32_t* ptargets = targets.ptr<int32_t>();
  const float* plogp = logp.ptr<float>();
  float* plosses = losses.ptr<float>();
  for (int64_t n = 0; n < N; ++n) plosses[n] = -plogp[n * V + ptargets[n]];
}

void CpuOps::nll_loss_backward(Tensor dlogp, Tensor targets, float scale, Tensor loss_scaler) {
  expect(all_f32(dlogp) && is_i32(targets) && one_per_row(dlogp, targets) && loss_scaler_fits(loss_scaler),
         "nll_loss_backward", dlogp, targets, loss_scaler);
  const int64_t N = targets.numel(), V = dlogp.cols();
  expect_targets("nll_loss_backward", targets, V);
  const float at_target = -scale * loss_scale(loss_scaler);
  const int32_t* ptargets = targets.ptr<int32_t>();
  float* pdlogp = dlogp.ptr<float>();
  each_row(N, V, [=](int64_t n) {
    std::fill_n(pdlogp + n * V, V, 0.0F);
    pdlogp[n * V + ptargets[n]] = at_target;
  });
}

void CpuOps::cross_entropy_forward(Tensor losses, Tensor logits, Tensor targets, int64_t V) {
  expect(one_float_type(logits) && all_f32(losses) && is_i32(targets) &&
             one_per_row(logits, losses, targets) && V > 0 && V <= logits.cols(),
         "cross_entropy_forward", losses, logits, targets);
  expect_targets("cross_entropy_forward", targets, V);
  const int64_t Vp = logits.cols();
  const int32_t* ptargets = targets.ptr<int32_t>();
  float* plosses = losses.ptr<float>();
  with_float_type(logits.dtype, [&]<class T>(T) {
    const auto flogits = floats<T>(logits);
    each_row(targets.numel(), V, [=](int64_t n) {
      const auto x = flogits + n * Vp;
      plosses[n] = static_cast<float>(exp_sum(x, V).log() - x[ptargets[n]]);
    });
  });
}

void CpuOps::cross_entropy_forward_backward(Tensor losses, Tensor logits, Tensor targets, int64_t V,
                                            float scale, Tensor loss_scaler) {
  expect(one_float_type(logits) && all_f32(losses) && is_i32(targets) &&
             one_per_row(logits, losses, targets) && V > 0 && V <= logits.cols() &&
             loss_scaler_fits(loss_scaler),
         "cross_entropy_forward_backward", losses, logits, targets, loss_scaler);
  expect_targets("cross_entropy_forward_backward", targets, V);
  const int64_t Vp = logits.cols();
  const float factor = scale * loss_scale(loss_scaler);
  const int32_t* ptargets = targets.ptr<int32_t>();
  float* plosses = losses.ptr<float>();
  with_float_type(logits.dtype, [&]<class T>(T) {
    const auto flogits = floats<T>(logits);
    each_row(targets.numel(), Vp, [=](int64_t n) {
      const auto x = flogits + n * Vp;
      const int32_t target = ptargets[n];
      const float at_target = x[target];
      const ExpSum exps = exp_sum(x, V);
      const float top = exps.top;
      const auto inverse = static_cast<float>(1.0 / exps.sum);
      plosses[n] = static_cast<float>(exps.log() - at_target);
      STEPLADDER_SIMD
      for (int64_t v = 0; v < V; ++v) x.set(v, factor * (exp_float(x[v] - top) * inverse));
      x.set(target, factor * (exp_float(at_target - top) * inverse - 1.0F));
      std::fill(x.data + V, x.data + Vp, from_float<T>(0.0F));
    });
  });
}

void CpuOps::add_mean(Tensor out, Tensor x) {
  expect(all_f32(out, x) && out.numel() == 1, "add_mean", out, x);
  const float* px = x.ptr<float>();
  float& total = *out.ptr<float>();
  total = static_cast<float>(total + sum(x.numel(), [=](int64_t i) { return px[i]; }) /
                                         static_cast<double>(x.numel()));
}

}  // namespace stepladder
