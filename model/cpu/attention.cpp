#include <algorithm>
#include <cmath>
#include <limits>

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"
#include "model/cpu/exp.h"

namespace stepladder {
namespace {

/// p[0,n) = softmax(x[0,n)), p[n,cols) = 0; p may be x.
void softmax_row(float* p, const float* x, int64_t n, int64_t cols) {
  const float top = max(n, x);
  for (int64_t s = 0; s < n; ++s) p[s] = exp_float(x[s] - top);
  const auto inverse = static_cast<float>(1.0 / sum(n, [=](int64_t s) { return p[s]; }));
  for (int64_t s = 0; s < n; ++s) p[s] *= inverse;
  std::fill(p + n, p + cols, 0.0F);
}

/// dx[0,n) = p * (dp - sum(dp * p)), dx[n,cols) = 0; dx may be dp.
void softmax_backward_row(float* dx, const float* dp, const float* p, int64_t n, int64_t cols) {
  const auto dot = static_cast<float>(sum(n, [=](int64_t s) { return static_cast<double>(dp[s]) * p[s]; }));
  STEPLADDER_SIMD
  for (int64_t s = 0; s < n; ++s) dx[s] = p[s] * (dp[s] - dot);
  std::fill(dx + n, dx + cols, 0.0F);
}

/// qkv (B,T,3C) belongs to q, k, v (B,NH,T,HS) each.
bool qkv_fits(Tensor qkv, Tensor q, Tensor k, Tensor v) {
  return all_f32(qkv, q, k, v) && same_shape(q, k, v) && q.shape.rank() == 4 &&
         qkv.shape == Shape{q.shape[0], q.shape[2], 3 * q.shape[1] * q.shape[3]};
}

/// x (B,T,C) belongs to heads (B,NH,T,HS).
bool heads_fit(Tensor x, Tensor heads) {
  return all_f32(x, heads) && heads.shape.rank() == 4 &&
         x.shape == Shape{heads.shape[0], heads.shape[2], heads.shape[1] * heads.shape[3]};
}

bool square(Tensor x) {
  return x.shape.rank() >= 2 && dim(x, -1) == dim(x, -2);
}

}  // namespace

void CpuOps::split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv) {
  expect(qkv_fits(qkv, q, k, v), "split_qkv", q, k, v, qkv);
  const int64_t B = q.shape[0], NH = q.shape[1], T = q.shape[2], HS = q.shape[3], C = NH * HS;
  const float* in = qkv.ptr<float>();
  float *pq = q.ptr<float>(), *pk = k.ptr<float>(), *pv = v.ptr<float>();
  each_row(B * NH * T, 3 * HS, [=](int64_t i) {
    const int64_t b = i / (NH * T), h = i / T % NH, t = i % T;
    const float* from = in + (b * T + t) * 3 * C + h * HS;
    std::copy_n(from, HS, pq + i * HS);
    std::copy_n(from + C, HS, pk + i * HS);
    std::copy_n(from + 2 * C, HS, pv + i * HS);
  });
}

void CpuOps::merge_qkv(Tensor qkv, Tensor q, Tensor k, Tensor v) {
  expect(qkv_fits(qkv, q, k, v), "merge_qkv", qkv, q, k, v);
  const int64_t B = q.shape[0], NH = q.shape[1], T = q.shape[2], HS = q.shape[3], C = NH * HS;
  const float *pq = q.ptr<float>(), *pk = k.ptr<float>(), *pv = v.ptr<float>();
  float* out = qkv.ptr<float>();
  each_row(B * NH * T, 3 * HS, [=](int64_t i) {
    const int64_t b = i / (NH * T), h = i / T % NH, t = i % T;
    float* to = out + (b * T + t) * 3 * C + h * HS;
    std::copy_n(pq + i * HS, HS, to);
    std::copy_n(pk + i * HS, HS, to + C);
    std::copy_n(pv + i * HS, HS, to + 2 * C);
  });
}

void CpuOps::split_heads(Tensor out, Tensor x) {
  expect(heads_fit(x, out), "split_heads", out, x);
  const int64_t B = out.shape[0], NH = out.shape[1], T = out.shape[2], HS = out.shape[3];
  const float* px = x.ptr<float>();
  float* pout = out.ptr<float>();
  each_row(B * NH * T, HS, [=](int64_t i) {
    const int64_t b = i / (NH * T), h = i / T % NH, t = i % T;
    std::copy_n(px + ((b * T + t) * NH + h) * HS, HS, pout + i * HS);
  });
}

void CpuOps::merge_heads(Tensor out, Tensor x) {
  expect(heads_fit(out, x), "merge_heads", out, x);
  const int64_t B = x.shape[0], NH = x.shape[1], T = x.shape[2], HS = x.shape[3];
  const float* px = x.ptr<float>();
  float* pout = out.ptr<float>();
  each_row(B * NH * T, HS, [=](int64_t i) {
    const int64_t b = i / (NH * T), h = i / T % NH, t = i % T;
    std::copy_n(px + i * HS, HS, pout + ((b * T + t) * NH + h) * HS);
  });
}

void CpuOps::causal_mask(Tensor mask) {
  expect(all_f32(mask) && mask.shape.rank() == 2 && square(mask), "causal_mask", mask);
  const int64_t T = mask.shape[0];
  float* p = mask.ptr<float>();
  each_row(T, T, [=](int64_t t) {
    std::fill(p + t * T, p + t * T + t + 1, 0.0F);
    std::fill(p + t * T + t + 1, p + (t + 1) * T, -std::numeric_limits<float>::infinity());
  });
}

void CpuOps::add_mask(Tensor att, Tensor mask) {
  expect(all_f32(att, mask) && square(att) && mask.shape == Shape{att.cols(), att.cols()}, "add_mask", att,
         mask);
  const int64_t T = att.cols();
  const float* pmask = mask.ptr<float>();
  float* patt = att.ptr<float>();
  each_row(rows_of(att), T, [=](int64_t row) {
    STEPLADDER_SIMD
    for (int64_t s = 0; s < T; ++s) patt[row * T + s] += pmask[row % T * T + s];
  });
}

void CpuOps::softmax_forward(Tensor p, Tensor x) {
  expect(all_f32(p, x) && same_shape(p, x) && x.shape.rank() > 0, "softmax_forward", p, x);
  const int64_t S = x.cols();
  const float* px = x.ptr<float>();
  float* pp = p.ptr<float>();
  each_row(rows_of(x), S, [=](int64_t row) { softmax_row(pp + row * S, px + row * S, S, S); });
}

void CpuOps::softmax_backward(Tensor dx, Tensor dp, Tensor p) {
  expect(all_f32(dx, dp, p) && same_shape(dx, dp, p) && p.shape.rank() > 0, "softmax_backward", dx, dp, p);
  const int64_t S = p.cols();
  const float *pdp = dp.ptr<float>(), *pp = p.ptr<float>();
  float* pdx = dx.ptr<float>();
  each_row(rows_of(p), S,
           [=](int64_t row) { softmax_backward_row(pdx + row * S, pdp + row * S, pp + row * S, S, S); });
}

void CpuOps::causal_softmax_forward(Tensor p, Tensor x) {
  expect(all_f32(p, x) && same_shape(p, x) && square(x), "causal_softmax_forward", p, x);
  const int64_t T = x.cols();
  const float* px = x.ptr<float>();
  float* pp = p.ptr<float>();
  each_row(rows_of(x), T, [=](int64_t row) { softmax_row(pp + row * T, px + row * T, row % T + 1, T); });
}

void CpuOps::causal_softmax_backward(Tensor dx, Tensor dp, Tensor p) {
  expect(all_f32(dx, dp, p) && same_shape(dx, dp, p) && square(p), "causal_softmax_backward", dx, dp, p);
  const int64_t T = p.cols();
  const float *pdp = dp.ptr<float>(), *pp = p.ptr<float>();
  float* pdx = dx.ptr<float>();
  each_row(rows_of(p), T, [=](int64_t row) {
    softmax_backward_row(pdx + row * T, pdp + row * T, pp + row * T, row % T + 1, T);
  });
}

}  // namespace stepladder
