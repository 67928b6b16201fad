#include <algorithm>
#include <cmath>

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"
#include "model/cpu/exp.h"

namespace stepladder {
namespace {

void expect_targets(const char* op, Tensor targets, int64_t V) {
  const int32_t* p = targets.ptr<int32_t>();
  for (int64_t n = 0; n < targets.numel(); ++n)
    check(p[n] >= 0 && p[n] < V, op, ": target ", p[n], " at ", n, " of ", targets, ", vocabulary ", V);
}

}  // namespace

void CpuOps::log_softmax_forward(Tensor logp, Tensor logits) {
  expect(all_f32(logp, logits) && same_shape(logp, logits) && logits.shape.rank() > 0, "log_softmax_forward",
         logp, logits);
  const int64_t V = logits.cols();
  const float* plogits = logits.ptr<float>();
  float* plogp = logp.ptr<float>();
  each_row(rows_of(logits), V, [=](int64_t n) {
    const float* x = plogits + n * V;
    float* out = plogp + n * V;
    const float top = max(V, x);
    const double logsumexp = top + std::log(sum(V, [=](int64_t v) { return exp_float(x[v] - top); }));
    STEPLADDER_SIMD
    for (int64_t v = 0; v < V; ++v) out[v] = static_cast<float>(x[v] - logsumexp);
  });
}

void CpuOps::log_softmax_backward(Tensor dlogits, Tensor dlogp, Tensor logp) {
  expect(all_f32(dlogits, dlogp, logp) && same_shape(dlogits, dlogp, logp) && logp.shape.rank() > 0,
         "log_softmax_backward", dlogits, dlogp, logp);
  const int64_t V = logp.cols();
  const float *pdlogp = dlogp.ptr<float>(), *plogp = logp.ptr<float>();
  float* pdlogits = dlogits.ptr<float>();
  each_row(rows_of(logp), V, [=](int64_t n) {
    const float *d = pdlogp + n * V, *lp = plogp + n * V;
    float* out = pdlogits + n * V;
    const auto total = static_cast<float>(sum(V, [=](int64_t v) { return d[v]; }));
    for (int64_t v = 0; v < V; ++v) out[v] = d[v] - exp_float(lp[v]) * total;
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

void CpuOps::nll_loss_backward(Tensor dlogp, Tensor targets, float scale, Tensor) {
  expect(all_f32(dlogp) && is_i32(targets) && one_per_row(dlogp, targets), "nll_loss_backward", dlogp,
         targets);
  const int64_t N = targets.numel(), V = dlogp.cols();
  expect_targets("nll_loss_backward", targets, V);
  const int32_t* ptargets = targets.ptr<int32_t>();
  float* pdlogp = dlogp.ptr<float>();
  each_row(N, V, [=](int64_t n) {
    std::fill_n(pdlogp + n * V, V, 0.0F);
    pdlogp[n * V + ptargets[n]] = -scale;
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
