#include <algorithm>
#include <limits>

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"
#include "model/cpu/statistics.h"

namespace stepladder {
namespace {

/// p[0,n) = softmax(scale * x[0,n)), p[n,cols) = 0; p may be x.
template <class T>
void softmax_row(Floats<T> p, Floats<T> x, float scale, int64_t n, int64_t cols) {
  const ExpSum exps = exp_sum(x, n, scale);
  const float top = exps.top;
  const auto inverse = static_cast<float>(1.0 / exps.sum);
  STEPLADDER_SIMD
  for (int64_t s = 0; s < n; ++s) p.set(s, exp_float(scale * x[s] - top) * inverse);
  std::fill(p.data + n, p.data + cols, from_float<T>(0.0F));
}

/// dx[0,n) = scale * p * (dp - sum(dp * p)), dx[n,cols) = 0; dx may be dp.
template <class T>
void softmax_backward_row(Floats<T> dx, Floats<T> dp, Floats<T> p, float scale, int64_t n, int64_t cols) {
  const auto dot = static_cast<float>(sum(n, [=](int64_t s) { return static_cast<double>(dp[s]) * p[s]; }));
  STEPLADDER_SIMD
  for (int64_t s = 0; s < n; ++s) dx.set(s, scale * (p[s] * (dp[s] - dot)));
  std::fill(dx.data + n, dx.data + cols, from_float<T>(0.0F));
}

/// qkv (B,T,3C) belongs to q, k, v (B,NH,T,HS) each.
bool qkv_fits(Tensor qkv, Tensor q, Tensor k, Tensor v) {
  return one_float_type(qkv, q, k, v) && same_shape(q, k, v) && q.shape.rank() == 4 &&
         qkv.shape == Shape{q.shape[0], q.shape[2], 3 * q.shape[1] * q.shape[3]};
}

/// x (B,T,C) belongs to heads (B,NH,T,HS).
bool heads_fit(Tensor x, Tensor heads) {
  return one_float_type(x, heads) && heads.shape.rank() == 4 &&
         x.shape == Shape{heads.shape[0], heads.shape[2], heads.shape[1] * heads.shape[3]};
}

bool square(Tensor x) {
  return x.shape.rank() >= 2 && dim(x, -1) == dim(x, -2);
}

}  // namespace

void CpuOps::split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv) {
  expect(qkv_fits(qkv, q, k, v), "split_qkv", q, k, v, qkv);
  const int64_t B = q.shape[0], NH = q.shape[1], T = q.shape[2], HS = q.shape[3], C = NH * HS;
  with_float_type(qkv.dtype, [&]<class F>(F) {
    const F* in = qkv.ptr<F>();
    F *pq = q.ptr<F>(), *pk = k.ptr<F>(), *pv = v.ptr<F>();
    each_row(B * NH * T, 3 * HS, [=](int64_t i) {
      const int64_t b = i / (NH * T), h = i / T % NH, t = i % T;
      const F* from = in + (b * T + t) * 3 * C + h * HS;
      std::copy_n(from, HS, pq + i * HS);
      std::copy_n(from + C, HS, pk + i * HS);
      std::copy_n(from + 2 * C, HS, pv + i * HS);
    });
  });
}

void CpuOps::merge_qkv(Tensor qkv, Tensor q, Tensor k, Tensor v) {
  expect(qkv_fits(qkv, q, k, v), "merge_qkv", qkv, q, k, v);
  const int64_t B = q.shape[0], NH = q.shape[1], T = q.shape[2], HS = q.shape[3], C = NH * HS;
  with_float_type(qkv.dtype, [&]<class F>(F) {
    const F *pq = q.ptr<F>(), *pk = k.ptr<F>(), *pv = v.ptr<F>();
    F* out = qkv.ptr<F>();
    each_row(B * NH * T, 3 * HS, [=](int64_t i) {
      const int64_t b = i / (NH * T), h = i / T % NH, t = i % T;
      F* to = out + (b * T + t) * 3 * C + h * HS;
      std::copy_n(pq + i * HS, HS, to);
      std::copy_n(pk + i * HS, HS, to + C);
      std::copy_n(pv + i * HS, HS, to + 2 * C);
    });
  });
}

void CpuOps::bias_split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv, Tensor bias) {
  expect(qkv_fits(qkv, q, k, v) && one_float_type(qkv, bias) && bias.shape == Shape{qkv.cols()},
         "bias_split_qkv", q, k, v, qkv, bias);
  const int64_t B = q.shape[0], NH = q.shape[1], T = q.shape[2], HS = q.shape[3], C = NH * HS;
  with_float_type(qkv.dtype, [&]<class F>(F) {
    const auto in = floats<F>(qkv), add = floats<F>(bias);
    const Floats<F> outs[] = {floats<F>(q), floats<F>(k), floats<F>(v)};
    each_row(B * NH * T, 3 * HS, [=](int64_t i) {
      const int64_t b = i / (NH * T), h = i / T % NH, t = i % T;
      for (int64_t part = 0; part < 3; ++part) {
        const int64_t column = part * C + h * HS;
        const auto from = in + (b * T + t) * 3 * C + column, shift = add + column, to = outs[part] + i * HS;
        STEPLADDER_SIMD
        for (int64_t j = 0; j < HS; ++j) to.set(j, from[j] + shift[j]);
      }
    });
  });
}

void CpuOps::split_heads(Tensor out, Tensor x) {
  expect(heads_fit(x, out), "split_heads", out, x);
  const int64_t B = out.shape[0], NH = out.shape[1], T = out.shape[2], HS = out.shape[3];
  with_float_type(x.dtype, [&]<class F>(F) {
    const F* px = x.ptr<F>();
    F* pout = out.ptr<F>();
    each_row(B * NH * T, HS, [=](int64_t i) {
      const int64_t b = i / (NH * T), h = i / T % NH, t = i % T;
      std::copy_n(px + ((b * T + t) * NH + h) * HS, HS, pout + i * HS);
    });
  });
}

void CpuOps::merge_heads(Tensor out, Tensor x) {
  expect(heads_fit(out, x), "merge_heads", out, x);
  const int64_t B = x.shape[0], NH = x.shape[1], T = x.shape[2], HS = x.shape[3];
  with_float_type(x.dtype, [&]<class F>(F) {
    const F* px = x.ptr<F>();
    F* pout = out.ptr<F>();
    each_row(B * NH * T, HS, [=](int64_t i) {
      const int64_t b = i / (NH * T), h = i / T % NH, t = i % T;
      std::copy_n(px + i * HS, HS, pout + ((b * T + t) * NH + h) * HS);
    });
  });
}

void CpuOps::causal_mask(Tensor mask) {
  expect(one_float_type(mask) && mask.shape.rank() == 2 && square(mask), "causal_mask", mask);
  const int64_t T = mask.shape[0];
  with_float_type(mask.dtype, [&]<class F>(F) {
    F* p = mask.ptr<F>();
    each_row(T, T, [=](int64_t t) {
      std::fill(p + t * T, p + t * T + t + 1, from_float<F>(0.0F));
      std::fill(p + t * T + t + 1, p + (t + 1) * T, from_float<F>(-std::numeric_limits<float>::infinity()));
    });
  });
}

void CpuOps::add_mask(Tensor att, Tensor mask) {
  expect(one_float_type(att, mask) && square(att) && mask.shape == Shape{att.cols(), att.cols()}, "add_mask",
         att, mask);
  const int64_t T = att.cols();
  with_float_type(att.dtype, [&]<class F>(F) {
    const auto fmask = floats<F>(mask), fatt = floats<F>(att);
    each_row(rows_of(att), T, [=](int64_t row) {
      STEPLADDER_SIMD
      for (int64_t s = 0; s < T; ++s) fatt.add(row * T + s, fmask[row % T * T + s]);
    });
  });
}

void CpuOps::softmax_forward(Tensor p, Tensor x) {
  expect(one_float_type(p, x) && same_shape(p, x) && x.shape.rank() > 0, "softmax_forward", p, x);
  const int64_t S = x.cols();
  with_float_type(x.dtype, [&]<class F>(F) {
    const auto fx = floats<F>(x), fp = floats<F>(p);
    each_row(rows_of(x), S, [=](int64_t row) { softmax_row(fp + row * S, fx + row * S, 1.0F, S, S); });
  });
}

void CpuOps::softmax_backward(Tensor dx, Tensor dp, Tensor p) {
  expect(one_float_type(dx, dp, p) && same_shape(dx, dp, p) && p.shape.rank() > 0, "softmax_backward", dx, dp,
         p);
  const int64_t S = p.cols();
  with_float_type(p.dtype, [&]<class F>(F) {
    const auto fdx = floats<F>(dx), fdp = floats<F>(dp), fp = floats<F>(p);
    each_row(rows_of(p), S, [=](int64_t row) {
      softmax_backward_row(fdx + row * S, fdp + row * S, fp + row * S, 1.0F, S, S);
    });
  });
}

void CpuOps::causal_softmax_forward(Tensor p, Tensor x) {
  expect(one_float_type(p, x) && same_shape(p, x) && square(x), "causal_softmax_forward", p, x);
  scaled_causal_softmax_forward(p, x, 1.0F);
}

void CpuOps::causal_softmax_backward(Tensor dx, Tensor dp, Tensor p) {
  expect(one_float_type(dx, dp, p) && same_shape(dx, dp, p) && square(p), "causal_softmax_backward", dx, dp,
         p);
  scaled_causal_softmax_backward(dx, dp, p, 1.0F);
}

void CpuOps::scaled_causal_softmax_forward(Tensor p, Tensor x, float scale) {
  expect(one_float_type(p, x) && same_shape(p, x) && square(x), "scaled_causal_softmax_forward", p, x);
  const int64_t T = x.cols();
  with_float_type(x.dtype, [&]<class F>(F) {
    const auto fx = floats<F>(x), fp = floats<F>(p);
    each_row(rows_of(x), T,
             [=](int64_t row) { softmax_row(fp + row * T, fx + row * T, scale, row % T + 1, T); });
  });
}

void CpuOps::scaled_causal_softmax_backward(Tensor dx, Tensor dp, Tensor p, float scale) {
  expect(one_float_type(dx, dp, p) && same_shape(dx, dp, p) && square(p), "scaled_causal_softmax_backward",
         dx, dp, p);
  const int64_t T = p.cols();
  with_float_type(p.dtype, [&]<class F>(F) {
    const auto fdx = floats<F>(dx), fdp = floats<F>(dp), fp = floats<F>(p);
    each_row(rows_of(p), T, [=](int64_t row) {
      softmax_backward_row(fdx + row * T, fdp + row * T, fp + row * T, scale, row % T + 1, T);
    });
  });
}

}  // namespace stepladder
