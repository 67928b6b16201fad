#include <algorithm>
#include <limits>

#include "model/cpu/cpu.h"
#include "model/cpu/statistics.h"

namespace stepladder {
namespace {

/// Copies the heads of `parts`, each (B,NH,T,HS), into whole (B,T,kParts*C), or with kSplit from `whole` into
/// `parts`.
template <bool kSplit, size_t kParts>
void move_heads(const Cpu& cpu, const Tensor (&parts)[kParts], const Tensor& whole) {
  const Shape& shape = parts[0].shape;
  const int64_t B = shape[0], NH = shape[1], T = shape[2], HS = shape[3];
  with_float_type(whole.dtype, [&]<class F>(F) {
    cpu.each_row(B * NH * T, kParts * HS, [=, all = whole.ptr<F>(), part = floats<F>(parts)](int64_t i) {
      const int64_t b = i / (NH * T), h = i / T % NH, t = i % T;
      F* in_whole = all + ((b * T + t) * kParts * NH + h) * HS;
      for (const Floats<F>& p : part) {
        F* const in_part = p.data + i * HS;
        std::copy_n(kSplit ? in_whole : in_part, HS, kSplit ? in_part : in_whole);
        in_whole += NH * HS;
      }
    });
  });
}

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

}  // namespace

void SplitQkv::run(Cpu& cpu) const {
  move_heads<true>(cpu, {q, k, v}, qkv);
}

void MergeQkv::run(Cpu& cpu) const {
  move_heads<false>(cpu, {q, k, v}, qkv);
}

void SplitHeads::run(Cpu& cpu) const {
  move_heads<true>(cpu, {out}, x);
}

void MergeHeads::run(Cpu& cpu) const {
  move_heads<false>(cpu, {x}, out);
}

void CausalMask::run(Cpu& cpu) const {
  const int64_t T = mask.shape[0];
  with_float_type(mask.dtype, [&]<class F>(F) {
    F* p = mask.ptr<F>();
    cpu.each_row(T, T, [=](int64_t t) {
      std::fill(p + t * T, p + t * T + t + 1, from_float<F>(0.0F));
      std::fill(p + t * T + t + 1, p + (t + 1) * T, from_float<F>(-std::numeric_limits<float>::infinity()));
    });
  });
}

void AddMask::run(Cpu& cpu) const {
  const int64_t T = att.cols();
  with_float_type(att.dtype, [&]<class F>(F) {
    const auto fmask = floats<F>(mask), fatt = floats<F>(att);
    cpu.each_row(rows_of(att), T, [=](int64_t row) {
      STEPLADDER_SIMD
      for (int64_t s = 0; s < T; ++s) fatt.add(row * T + s, fmask[row % T * T + s]);
    });
  });
}

void SoftmaxForward::run(Cpu& cpu) const {
  const int64_t S = x.cols();
  with_float_type(x.dtype, [&]<class F>(F) {
    const auto fx = floats<F>(x), fp = floats<F>(p);
    cpu.each_row(rows_of(x), S, [=](int64_t row) { softmax_row(fp + row * S, fx + row * S, 1.0F, S, S); });
  });
}

void SoftmaxBackward::run(Cpu& cpu) const {
  const int64_t S = p.cols();
  with_float_type(p.dtype, [&]<class F>(F) {
    const auto fdx = floats<F>(dx), fdp = floats<F>(dp), fp = floats<F>(p);
    cpu.each_row(rows_of(p), S, [=](int64_t row) {
      softmax_backward_row(fdx + row * S, fdp + row * S, fp + row * S, 1.0F, S, S);
    });
  });
}

void CausalSoftmaxForward::run(Cpu& cpu) const {
  ScaledCausalSoftmaxForward{p, x, 1.0F}.run(cpu);
}

void CausalSoftmaxBackward::run(Cpu& cpu) const {
  ScaledCausalSoftmaxBackward{dx, dp, p, 1.0F}.run(cpu);
}

void ScaledCausalSoftmaxForward::run(Cpu& cpu) const {
  const int64_t T = x.cols();
  with_float_type(x.dtype, [&]<class F>(F) {
    const auto fx = floats<F>(x), fp = floats<F>(p);
    cpu.each_row(rows_of(x), T, [=, scale = scale](int64_t row) {
      softmax_row(fp + row * T, fx + row * T, scale, row % T + 1, T);
    });
  });
}

void ScaledCausalSoftmaxBackward::run(Cpu& cpu) const {
  const int64_t T = p.cols();
  with_float_type(p.dtype, [&]<class F>(F) {
    const auto fdx = floats<F>(dx), fdp = floats<F>(dp), fp = floats<F>(p);
    cpu.each_row(rows_of(p), T, [=, scale = scale](int64_t row) {
      softmax_backward_row(fdx + row * T, fdp + row * T, fp + row * T, scale, row % T + 1, T);
    });
  });
}

}  // namespace stepladder
