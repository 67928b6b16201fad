// Attention: heads, masks and softmax, each as ops of its own, and fused attention in one op, for training
// and for a text that grows. q, k, v are (B,NH,T,HS) each, qkv (B,T,3C).
#pragma once

#include "model/ops/op.h"

namespace stepladder {

inline bool qkv_fits(const Tensor& qkv, const Tensor& q, const Tensor& k, const Tensor& v) {
  return one_float_type(qkv, q) && alike(q, k, v) && q.shape.rank() == 4 &&
         qkv.shape == Shape{q.shape[0], q.shape[2], 3 * q.shape[1] * q.shape[3]};
}
/// Whether x (B,T,C) fits heads (B,NH,T,HS): C = NH * HS, one float type.
inline bool heads_fit(const Tensor& x, const Tensor& heads) {
  return one_float_type(x, heads) && heads.shape.rank() == 4 &&
         x.shape == Shape{heads.shape[0], heads.shape[2], heads.shape[1] * heads.shape[3]};
}
/// Whether qkv (B,T,3C) fits x (B,T,C) and the NH heads of lse (B,NH,T).
inline bool attention_fits(const Tensor& qkv, const Tensor& x, const Tensor& lse) {
  return one_float_type(qkv, x) && all_f32(lse) && x.shape.rank() == 3 && lse.shape.rank() == 3 &&
         qkv.shape == Shape{x.shape[0], x.shape[1], 3 * x.shape[2]} && lse.shape[0] == x.shape[0] &&
         lse.shape[2] == x.shape[1] && lse.shape[1] > 0 && x.shape[2] % lse.shape[1] == 0;
}
/// FLOPs of `products` matrix products, such as Q K^T, over the pairs s <= t of all heads.
inline double attention_flops(int products, const Tensor& lse, const Tensor& qkv) {
  const int64_t T = lse.cols(), C = qkv.cols() / 3, pairs = lse.shape[0] * T * (T + 1) / 2;
  return 2.0 * products * static_cast<double>(pairs) * static_cast<double>(C);
}

/// q, k, v = qkv split by heads
struct SplitQkv {
  static constexpr const char* kName = "split_qkv";
  Tensor q, k, v, qkv;
  void check() const { expect(*this, qkv_fits(qkv, q, k, v)); }
  Work work() const { return {OpKind::copy, {qkv}, {q, k, v}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// The inverse of SplitQkv.
struct MergeQkv {
  static constexpr const char* kName = "merge_qkv";
  Tensor qkv, q, k, v;
  void check() const { expect(*this, qkv_fits(qkv, q, k, v)); }
  Work work() const { return {OpKind::copy, {q, k, v}, {qkv}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out (B,NH,T,HS) = x (B,T,C)
struct SplitHeads {
  static constexpr const char* kName = "split_heads";
  Tensor out, x;
  void check() const { expect(*this, heads_fit(x, out)); }
  Work work() const { return {OpKind::copy, {x}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out (B,T,C) = x (B,NH,T,HS)
struct MergeHeads {
  static constexpr const char* kName = "merge_heads";
  Tensor out, x;
  void check() const { expect(*this, heads_fit(out, x)); }
  Work work() const { return {OpKind::copy, {x}, {out}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// mask (T,T) = 0 where s <= t, else -inf
struct CausalMask {
  static constexpr const char* kName = "causal_mask";
  Tensor mask;
  void check() const { expect(*this, one_float_type(mask) && mask.shape.rank() == 2 && square(mask)); }
  Work work() const { return {OpKind::softmax, {}, {mask}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// att (B,NH,T,T) += mask (T,T)
struct AddMask {
  static constexpr const char* kName = "add_mask";
  Tensor att, mask;
  void check() const {
    expect(*this, one_float_type(att, mask) && square(att) && mask.shape == Shape{att.cols(), att.cols()});
  }
  Work work() const { return {OpKind::softmax, {att, mask}, {att}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// p = softmax of x over the last dimension; p may be x.
struct SoftmaxForward {
  static constexpr const char* kName = "softmax_forward";
  Tensor p, x;
  void check() const { expect(*this, alike(p, x) && x.shape.rank() > 0); }
  Work work() const { return {OpKind::softmax, {x}, {p}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dx = p * (dp - sum_s(dp * p)); dx may be dp.
struct SoftmaxBackward {
  static constexpr const char* kName = "softmax_backward";
  Tensor dx, dp, p;
  void check() const { expect(*this, alike(dx, dp, p) && p.shape.rank() > 0); }
  Work work() const { return {OpKind::softmax, {dp, p}, {dx}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// SoftmaxForward over s <= t only, x (...,T,T); p = 0 elsewhere. Reads nothing above the diagonal.
struct CausalSoftmaxForward {
  static constexpr const char* kName = "causal_softmax_forward";
  Tensor p, x;
  void check() const { expect(*this, alike(p, x) && square(x)); }
  Work work() const { return {OpKind::softmax, {lower_triangle(x)}, {p}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// SoftmaxBackward over s <= t only.
struct CausalSoftmaxBackward {
  static constexpr const char* kName = "causal_softmax_backward";
  Tensor dx, dp, p;
  void check() const { expect(*this, alike(dx, dp, p) && square(p)); }
  Work work() const { return {OpKind::softmax, {lower_triangle(dp), lower_triangle(p)}, {dx}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// CausalSoftmaxForward of scale * x.
struct ScaledCausalSoftmaxForward {
  static constexpr const char* kName = "scaled_causal_softmax_forward";
  Tensor p, x;
  float scale;
  void check() const { expect(*this, alike(p, x) && square(x)); }
  Work work() const { return {OpKind::softmax, {lower_triangle(x)}, {p}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dx = scale * CausalSoftmaxBackward.
struct ScaledCausalSoftmaxBackward {
  static constexpr const char* kName = "scaled_causal_softmax_backward";
  Tensor dx, dp, p;
  float scale;
  void check() const { expect(*this, alike(dx, dp, p) && square(p)); }
  Work work() const { return {OpKind::softmax, {lower_triangle(dp), lower_triangle(p)}, {dx}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out (B,T,C) = softmax(q k^T / sqrt(HS)) v over s <= t, in NH heads, without the (T,T) matrix (Dao et al.
/// 2022); lse (B,NH,T) f32 = log sum_s exp(q k^T / sqrt(HS)). CUDA takes f16 and (sm_80) bf16, HS a multiple
/// of 8 up to 128: throws UnsupportedError for f32, std::invalid_argument for the rest.
struct AttentionForward {
  static constexpr const char* kName = "attention_forward";
  Tensor out, lse, qkv;
  void check() const { expect(*this, attention_fits(qkv, out, lse)); }
  Work work() const {
    return {OpKind::attention, {qkv}, {out, lse}, attention_flops(2, lse, qkv), qkv.dtype};
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// AttentionForward of a text that grows. The keys and values of qkv (T,3C), which are of positions `first`
/// to first + T - 1, become rows of cache (2,S,C), keys before values; then out (T,C) is each position's
/// attention to those up to itself, whose rows the cache has. NH heads; CUDA takes HS up to 256.
struct CachedAttention {
  static constexpr const char* kName = "cached_attention";
  Tensor out, cache, qkv;
  int64_t first, NH;
  void check() const {
    const int64_t T = rows_of(qkv), C = dim(out, -1);
    expect(*this, one_float_type(out, cache, qkv) && rows_of(out) == T && dim(qkv, -1) == 3 * C &&
                      cache.shape.rank() == 3 && cache.shape == Shape{2, cache.shape[1], C} && first >= 0 &&
                      first + T <= cache.shape[1] && NH > 0 && C % NH == 0);
  }
  Work work() const {
    const auto T = static_cast<double>(rows_of(qkv)), before = static_cast<double>(first);
    const auto row = 2.0 * static_cast<double>(out.cols() * static_cast<int64_t>(size_of(out.dtype)));
    const double pairs = T * before + T * (T + 1.0) / 2.0;
    return {OpKind::attention,
            {qkv, {cache, before * row}},
            {out, {cache, T * row}},
            4.0 * pairs * static_cast<double>(out.cols()),
            qkv.dtype};
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dqkv (B,T,3C), the gradient of AttentionForward's qkv. Over s <= t it computes p again:
/// p = exp(q k^T / sqrt(HS) - lse); with d = rowsum(dout * out), dv = p^T dout, ds = p * (dout v^T - d),
/// dq = ds k / sqrt(HS) and dk = ds^T q / sqrt(HS).
struct AttentionBackward {
  static constexpr const char* kName = "attention_backward";
  Tensor dqkv, dout, out, lse, qkv;
  void check() const { expect(*this, attention_fits(qkv, out, lse) && alike(dqkv, qkv) && alike(dout, out)); }
  Work work() const {
    return {OpKind::attention, {dout, out, lse, qkv}, {dqkv}, attention_flops(5, lse, qkv), qkv.dtype};
  }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
