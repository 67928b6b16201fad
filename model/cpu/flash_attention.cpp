#include <algorithm>
#include <cmath>

#include "model/cpu/cpu.h"
#include "model/cpu/statistics.h"

namespace stepladder {
namespace {

template <class F>
float dot(Floats<F> a, Floats<F> b, int64_t n) {
  return static_cast<float>(sum(n, [=](int64_t i) { return static_cast<double>(a[i]) * b[i]; }));
}

/// Rows `stride` apart: one head of q, of k, of v, ... inside (B,T,3C) or (B,T,C).
template <class F>
struct Rows {
  Floats<F> first;
  int64_t stride;
  Floats<F> operator[](int64_t t) const { return first + t * stride; }
};

/// out (n) = factor * sum of weight[i] * rows[i] over i in [first,last), in double.
template <class F>
void weighted_sum(Floats<F> out, int64_t n, double factor, const float* weight, Rows<F> rows, int64_t first,
                  int64_t last) {
  constexpr int64_t kColumns = 64;  // sums at a time, on the stack
  for (int64_t start = 0; start < n; start += kColumns) {
    const int64_t columns = std::min(kColumns, n - start);
    double sums[kColumns] = {};
    for (int64_t i = first; i < last; ++i) {
      const double w = weight[i];
      const auto row = rows[i] + start;
      for (int64_t c = 0; c < columns; ++c) sums[c] += w * row[c];
    }
    for (int64_t c = 0; c < columns; ++c) out.set(start + c, static_cast<float>(factor * sums[c]));
  }
}

/// out (HS) = softmax(q k^T / sqrt(HS)) v over the first n keys; p (n) is scratch. Returns the softmax's sum.
template <class F>
ExpSum attend(Floats<F> out, Floats<F> q, Rows<F> k, Rows<F> v, int64_t n, int64_t HS, float* p) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(HS));
  for (int64_t s = 0; s < n; ++s) p[s] = scale * dot(q, k[s], HS);
  const ExpSum exps = exp_sum(Floats<float>{p}, n);
  for (int64_t s = 0; s < n; ++s) p[s] = exp_float(p[s] - exps.top);
  weighted_sum(out, HS, 1.0 / exps.sum, p, v, 0, n);
  return exps;
}

/// Row i of B*NH*T: its position t, and where its head starts in (B,T,3C) and (B,T,C).
struct HeadRow {
  int64_t t, qkv, x;
  HeadRow(int64_t i, int64_t NH, int64_t T, int64_t C)
      : t(i % T),
        qkv(i / (NH * T) * T * 3 * C + i / T % NH * (C / NH)),
        x(i / (NH * T) * T * C + i / T % NH * (C / NH)) {}
};

}  // namespace

void AttentionForward::run(Cpu& cpu) const {
  const int64_t B = out.shape[0], T = out.shape[1], C = out.shape[2], NH = lse.shape[1], HS = C / NH;
  float* const threads_scratch = cpu.scratch(kName, T);
  float* plse = lse.ptr<float>();
  with_float_type(qkv.dtype, [&]<class F>(F) {
    const auto fout = floats<F>(out), fqkv = floats<F>(qkv);
    cpu.each_row(B * NH * T, T * HS, [=](int64_t i) {
      const HeadRow at(i, NH, T, C);
      const auto first = fqkv + at.qkv;
      const Rows<F> q{first, 3 * C}, k{first + C, 3 * C}, v{first + 2 * C, 3 * C};
      float* p = threads_scratch + thread_index() * Cpu::kScratch;
      plse[i] = static_cast<float>(attend(fout + at.x + at.t * C, q[at.t], k, v, at.t + 1, HS, p).log());
    });
  });
}

void CachedAttention::run(Cpu& cpu) const {
  const int64_t T = rows_of(qkv), C = out.cols(), S = cache.shape[1], HS = C / NH;
  float* const threads_scratch = cpu.scratch(kName, S);
  with_float_type(qkv.dtype, [&]<class F>(F) {
    const auto fout = floats<F>(out), fqkv = floats<F>(qkv), keys = floats<F>(cache), values = keys + S * C;
    cpu.each_row(T, 2 * C, [=, from = first](int64_t t) {
      std::copy_n((fqkv + (3 * t + 1) * C).data, C, (keys + (from + t) * C).data);
      std::copy_n((fqkv + (3 * t + 2) * C).data, C, (values + (from + t) * C).data);
    });
    cpu.each_row(T * NH, (first + T) * HS, [=, from = first, heads = NH](int64_t i) {
      const int64_t t = i / heads, head = i % heads * HS;
      float* p = threads_scratch + thread_index() * Cpu::kScratch;
      attend(fout + t * C + head, fqkv + 3 * t * C + head, Rows<F>{keys + head, C}, Rows<F>{values + head, C},
             from + t + 1, HS, p);
    });
  });
}

// With p = exp(q k^T / sqrt(HS) - lse) and dp = dout v^T: dv = p^T dout, ds = p * (dp - sum_s(dp * p)),
// dq = ds k / sqrt(HS), dk = ds^T q / sqrt(HS); the sum equals that of dout * out over a row.
void AttentionBackward::run(Cpu& cpu) const {
  const int64_t B = out.shape[0], T = out.shape[1], C = out.shape[2], NH = lse.shape[1], HS = C / NH;
  const float scale = 1.0F / std::sqrt(static_cast<float>(HS));
  float* const threads_scratch = cpu.scratch(kName, 2 * T);
  const float* plse = lse.ptr<float>();
  with_float_type(qkv.dtype, [&]<class F>(F) {
    const auto fdqkv = floats<F>(dqkv), fdout = floats<F>(dout), fout = floats<F>(out), fqkv = floats<F>(qkv);
    cpu.each_row(B * NH * T, T * HS, [=](int64_t i) {
      const HeadRow at(i, NH, T, C);
      const auto first = fqkv + at.qkv, dfirst = fdqkv + at.qkv + at.t * 3 * C;
      const Rows<F> q{first, 3 * C}, k{first + C, 3 * C}, v{first + 2 * C, 3 * C};
      const Rows<F> dy{fdout + at.x, C}, y{fout + at.x, C};
      const float* log_sum = plse + i - at.t;
      float *p = threads_scratch + thread_index() * Cpu::kScratch, *ds = p + T;

      const auto score = [=](int64_t t, int64_t s) {
        return exp_float(scale * dot(q[t], k[s], HS) - log_sum[t]);
      };
      // Row t of ds gives dq[t].
      const float delta = dot(dy[at.t], y[at.t], HS);
      for (int64_t s = 0; s <= at.t; ++s) ds[s] = score(at.t, s) * (dot(dy[at.t], v[s], HS) - delta);
      weighted_sum(dfirst, HS, scale, ds, k, 0, at.t + 1);
      // Column t of ds gives dk[t], column t of p gives dv[t].
      for (int64_t t = at.t; t < T; ++t) {
        p[t] = score(t, at.t);
        ds[t] = p[t] * (dot(dy[t], v[at.t], HS) - dot(dy[t], y[t], HS));
      }
      weighted_sum(dfirst + C, HS, scale, ds, q, at.t, T);
      weighted_sum(dfirst + 2 * C, HS, 1.0, p, dy, at.t, T);
    });
  });
}

}  // namespace stepladder
