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

/// p = softmax(scale * x) of each row; row t of a causal square ends after column t, and is 0 behind it. p
/// may be x.
void softmax_forward(const Cpu& cpu, const Tensor& p, const Tensor& x, float scale, bool causal) {
  const int64_t S = x.cols();
  with_float_type(x.dtype, [&]<class F>(F) {
    cpu.each_row(rows_of(x), S, [=, all_x = floats<F>(x), all_p = floats<F>(p)](int64_t row) {
      const auto fx = all_x + row * S, fp = all_p + row * S;
      const int64_t n = causal ? row % S + 1 : S;
      const ExpSum exps = exp_sum(fx, n, scale);
      const float top = exps.top;
      const auto inverse = static_cast<float>(1.0 / exps.sum);
      STEPLADDER_SIMD
      for (int64_t s = 0; s < n; ++s) fp.set(s, exp_float(scale * fx[s] - top) * inverse);
      std::fill(fp.data + n, fp.data + S, from_float<F>(0.0F));
    });
  });
}

/// dx = scale * p * (dp - sum(dp * p)) of each row of softmax_forward(); dx may be dp.
void softmax_backward(const Cpu& cpu, const Tensor& dx, const Tensor& dp, const Tensor& p, float scale,
                      bool causal) {
  const int64_t S = p.cols();
  with_float_type(p.dtype, [&]<class F>(F) {
    cpu.each_row(rows_of(p), S, [=, all = floats<F>({dx, dp, p})](int64_t row) {
      const auto fdx = all[0] + row * S, fdp = all[1] + row * S, fp = all[2] + row * S;
      const int64_t n = causal ? row % S + 1 : S;
      const auto dot =
          static_cast<float>(sum(n, [=](int64_t s) { return static_cast<double>(fdp[s]) * fp[s]; }));
      STEPLADDER_SIMD
      for (int64_t s = 0; s < n; ++s) fdx.set(s, scale * (fp[s] * (fdp[s] - dot)));
      std::fill(fdx.data + n, fdx.data + S, from_float<F>(0.0F));
    });
  });
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
  softmax_forward(cpu, p, x, 1.0F, /*causal=*/false);
}

void SoftmaxBackward::run(Cpu& cpu) const {
  softmax_backward(cpu, dx, dp, p, 1.0F, /*causal=*/false);
}

void CausalSoftmaxForward::run(Cpu& cpu) const {
  softmax_forward(cpu, p, x, 1.0F, /*causal=*/true);
}

void CausalSoftmaxBackward::run(Cpu& cpu) const {
  softmax_backward(cpu, dx, dp, p, 1.0F, /*causal=*/true);
}

void ScaledCausalSoftmaxForward::run(Cpu& cpu) const {
  softmax_forward(cpu, p, x, scale, /*causal=*/true);
}

void ScaledCausalSoftmaxBackward::run(Cpu& cpu) const {
  softmax_backward(cpu, dx, dp, p, scale, /*causal=*/true);
}

}  // namespace stepladder
