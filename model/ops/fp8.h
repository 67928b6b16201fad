// FP8 (Micikevicius et al. 2022) with a scale for each tensor.
//
// q (N,C) and its transpose qt (C,N) share one FP8 type, scale and amax; either may be empty. Both become
// v / *scale, to nearest even, saturated; inf and NaN become NaN. *amax = max(*amax, |v|), NaN if any v is.
// dbias (C) is of its operands' type, or f32. On CUDA, N and C are multiples of 16, and float operands are
// bf16.
#pragma once

#include "model/ops/classifier.h"
#include "model/ops/layernorm.h"
#include "model/ops/matmul.h"
#include "model/ops/op.h"

namespace stepladder {

/// Whether q (N,C) and qt (C,N) fit x (N,C); one of them may be empty.
inline bool quantized_fit(const Tensor& q, const Tensor& qt, const Tensor& x) {
  const auto fits = [](const Tensor& t) { return is_fp8(t.dtype) && t.scale && t.amax; };
  const bool rows = !present(q) || (fits(q) && dim(q, -1) == dim(x, -1) && rows_of(q) == rows_of(x));
  const bool columns = !present(qt) || (fits(qt) && qt.shape.rank() == 2 && qt.shape[0] == dim(x, -1) &&
                                        qt.shape[1] == rows_of(x));
  const bool same_scale =
      !present(q) || !present(qt) || (q.dtype == qt.dtype && q.scale == qt.scale && q.amax == qt.amax);
  return (present(q) || present(qt)) && x.shape.rank() > 0 && rows && columns && same_scale;
}

/// q and qt, the FP8 copies of v = x (N,C) and of its transpose; dbias (C; empty: none) += sum_n x.
struct Quantize {
  static constexpr const char* kName = "quantize";
  Tensor q, qt, x, dbias = {};
  void check() const {
    expect(*this,
           quantized_fit(q, qt, x) && one_float_type(x) && (!present(dbias) || sums_per_column(x, dbias)));
  }
  Work work() const { return {OpKind::elementwise, {x, dbias}, {q, qt, dbias}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// q (L,N,C) and qt (L,C,N), the FP8 copies of v = x (L,N,C) and of its transposes. Each of the L matrices
/// has its own scale, a row of (L,kScaleStride), and its own amax, one of (L). Both are set before v is
/// quantised: amax = max |x|, and scale as UpdateScales computes it from that amax alone. Reads x twice.
struct QuantizeToFit {
  static constexpr const char* kName = "quantize_to_fit";
  Tensor q, qt, x;
  void check() const {
    expect(*this, x.shape.rank() == 3 && same_shape(q, x) &&
                      qt.shape == Shape{x.shape[0], x.shape[2], x.shape[1]} && one_float_type(x) &&
                      is_fp8(q.dtype) && qt.dtype == q.dtype && q.scale && q.amax && qt.scale == q.scale &&
                      qt.amax == q.amax);
  }
  Work work() const { return {OpKind::elementwise, {{x, 2.0 * Operand(x).bytes}}, {q, qt}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// Whether `slopes` can hold gelu'(x) of x (N,C) in e4m3, which GELU's backward pass may read instead of x.
/// Slopes lie between -0.13 and 1.13 and have no scale.
inline bool slopes_fit(const Tensor& slopes, const Tensor& x) {
  return slopes.dtype == DType::f8e4m3 && same_shape(slopes, x);
}

/// q and qt, the FP8 copies of v = gelu(x), tanh form, and of its transpose; slopes (N,C; empty: none).
struct QuantizeGelu {
  static constexpr const char* kName = "quantize_gelu";
  Tensor q, qt, x, slopes = {};
  void check() const {
    expect(*this,
           quantized_fit(q, qt, x) && one_float_type(x) && (!present(slopes) || slopes_fit(slopes, x)));
  }
  Work work() const { return {OpKind::elementwise, {x}, {q, qt, slopes}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// q and qt, the FP8 copies of v = dout * gelu'(x) and of its transpose; dbias (C) += sum_n v. Operand x is
/// GELU's input (N,C), or its slopes.
struct QuantizeGeluBackward {
  static constexpr const char* kName = "quantize_gelu_backward";
  Tensor q, qt, dbias, dout, x;
  void check() const {
    expect(*this, quantized_fit(q, qt, dout) && (alike(x, dout) || slopes_fit(x, dout)) &&
                      sums_per_column(dout, dbias));
  }
  Work work() const { return {OpKind::elementwise, {dout, x, dbias}, {q, qt, dbias}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// LinearForward and QuantizeGelu in one op: y = x w^T + b of e4m3 x (N,K), w (C,K); e4m3 q, qt of v =
/// gelu(y), and slopes. With slopes, y is scratch: on CUDA it may stay unwritten, and gelu() is then applied
/// before y is rounded.
struct LinearQuantizeGelu {
  static constexpr const char* kName = "linear_quantize_gelu";
  Tensor q, qt, y, x, w, b, slopes = {};
  void check() const {
    QuantizeGelu{q, qt, y, slopes}.check();
    expect(*this, linear_fits(y, x, w, b) && all_of_type(DType::f8e4m3, x, w, present(q) ? q : qt));
  }
  Work work() const {
    Work work = matmul_work(y, x, w, MatOp::NT, Write::set, {b}, {q, qt, slopes});
    if (present(slopes)) work.written.front() = {y, 0.0};
    return work;
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// Matmul and QuantizeGeluBackward in one op: e5m2 q, qt of v = (dout wt^T) * gelu'(y), dbias (C) += sum_n v,
/// of e5m2 dout (N,K) and e4m3 wt (C,K); operand y is GELU's input (N,C), or its slopes. dy (N,C) is scratch:
/// on CUDA it may stay unwritten, and the product is then not rounded to dy's type.
struct LinearQuantizeGeluBackward {
  static constexpr const char* kName = "linear_quantize_gelu_backward";
  Tensor q, qt, dbias, dy, dout, wt, y;
  void check() const {
    Matmul{dy, dout, wt, MatOp::NT}.check();
    QuantizeGeluBackward{q, qt, dbias, dy, y}.check();
    expect(*this, all_of_type(DType::f8e5m2, dout, present(q) ? q : qt) && all_of_type(DType::f8e4m3, wt));
  }
  Work work() const {
    Work work = matmul_work(dy, dout, wt, MatOp::NT, Write::set, {y, dbias}, {q, qt, dbias});
    work.written.front() = {dy, 0.0};
    return work;
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// losses as in CrossEntropyForward; q (B,T,Vp) = the FP8 copy of v, the gradient of logits as in
/// CrossEntropyForwardBackward. Keeps logits. On CUDA Vp is a multiple of 16.
struct QuantizeCrossEntropy {
  static constexpr const char* kName = "quantize_cross_entropy";
  Tensor q, losses, logits, targets;
  int64_t V;
  float scale;
  void check() const {
    expect(*this, quantized_fit(q, {}, logits) && cross_entropy_fits(losses, logits, targets, V));
  }
  Work work() const { return {OpKind::cross_entropy, {targets, first_columns(logits, V)}, {q, losses}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// q and qt, the FP8 copies of v and of its transpose, where v = LayerNormForward of x (N,C), not rounded to
/// 16 bits before; and the rows' mean and rstd (N). On CUDA, C is at most 3840, and 32 rows of FP8 have to
/// fit into shared memory.
struct QuantizeLayerNorm {
  static constexpr const char* kName = "quantize_layernorm";
  Tensor q, qt, mean, rstd;
  Tensor x, w, b;
  void check() const {
    expect(*this, quantized_fit(q, qt, x) && all_f32(mean, rstd) && one_per_column(x, w, b) &&
                      one_per_row(x, mean, rstd));
  }
  Work work() const { return {OpKind::layernorm, {x, w, b}, {q, qt, mean, rstd}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// An FP8 matrix (N,C) and its transpose (C,N); either may be empty.
struct Fp8Pair {
  Tensor q, qt;
};

/// LayerNormBackward, and q and qt, the FP8 copies of v = the new dx as stored and of its transpose.
struct QuantizeLayerNormBackward {
  static constexpr const char* kName = "quantize_layernorm_backward";
  Fp8Pair quantized;
  Tensor dx;
  NormParams dparams;
  Tensor dbias, dout;
  NormInput input;
  Tensor w;
  LayerNormBackward norm() const { return {dx, dparams, dbias, dout, input, w}; }
  void check() const {
    norm().check();
    expect(*this, quantized_fit(quantized.q, quantized.qt, dx));
  }
  Work work() const {
    Work work = norm().work();
    work.written.insert(work.written.begin(), {quantized.q, quantized.qt});
    return work;
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// qt (C,N) = q (N,C) transposed, both FP8.
struct Transpose {
  static constexpr const char* kName = "transpose";
  Tensor qt, q;
  void check() const {
    expect(*this,
           is_fp8(q.dtype) && qt.dtype == q.dtype && dim(qt, -1) == rows_of(q) && rows_of(qt) == dim(q, -1));
  }
  Work work() const { return {OpKind::elementwise, {q}, {qt}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

/// Delayed scaling: where amax is > 0 or NaN, it enters history (R,W) in front and the oldest value leaves;
/// scale = the least power of two with max(history) <= scale * the largest number of `type`, 1 where all of
/// history is 0, NaN where one value is not finite. scale (R,kScaleStride), of which the first of a row is
/// set, and amax (R), all f32. A power of two loses no digits, neither in dividing by it nor in multiplying
/// back.
struct UpdateScales {
  static constexpr const char* kName = "update_scales";
  Tensor scale, history, amax;
  DType type;
  void check() const {
    expect(*this, all_f32(scale, history, amax) && history.shape.rank() == 2 && history.cols() > 0 &&
                      scale.shape == Shape{history.shape[0], kScaleStride} &&
                      amax.shape == Shape{history.shape[0]} && is_fp8(type));
  }
  Work work() const { return {OpKind::reduction, {history, amax}, {scale, history}}; }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
