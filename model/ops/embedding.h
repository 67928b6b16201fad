// The embedding of tokens (B,T) i32 in [0,V) by wte (V,C), and of their positions by wpe (max_T,C).
#pragma once

#include "model/ops/op.h"

namespace stepladder {

/// The rows of wte that are read, one for each token.
inline Operand looked_up(const Tensor& wte, const Tensor& tokens) {
  return {wte, static_cast<double>(tokens.numel() * wte.cols()) * static_cast<double>(size_of(wte.dtype))};
}
/// The rows of wpe that x (B,T,C) has positions for.
inline Operand positions_of(const Tensor& wpe, const Tensor& x) {
  return wpe.first({x.shape[-2], wpe.cols()});
}
inline bool positions_fit(const Tensor& x, const Tensor& wpe) {
  return sums_values_of(x, wpe) && x.shape.rank() == 3 && wpe.shape.rank() == 2 && dim(x, 1) <= dim(wpe, 0) &&
         dim(x, 2) == dim(wpe, 1);
}
inline bool embedding_fits(const Tensor& rows, const Tensor& tokens, const Tensor& wte) {
  return sums_values_of(rows, wte) && is_i32(tokens) && wte.shape.rank() == 2 && one_per_row(rows, tokens) &&
         dim(rows, -1) == dim(wte, 1);
}

/// dwte (V,C) += dout summed over the rows of each token, bitwise reproducible. dwte is of dout's type, or
/// f32.
struct EmbeddingBackward {
  static constexpr const char* kName = "embedding_backward";
  Tensor dwte, tokens, dout;
  void check() const { expect(*this, embedding_fits(dout, tokens, dwte)); }
  Work work() const {
    return {OpKind::embedding, {tokens, dout, looked_up(dwte, tokens)}, {looked_up(dwte, tokens)}};
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// dwpe[t] += sum_b dout; dwpe is of dout's type, or f32
struct PositionBackward {
  static constexpr const char* kName = "position_backward";
  Tensor dwpe, dout;
  void check() const { expect(*this, positions_fit(dout, dwpe)); }
  Work work() const {
    return {OpKind::embedding, {positions_of(dwpe, dout), dout}, {positions_of(dwpe, dout)}};
  }
  void run(Cpu&) const, run(Cuda&) const;
};

/// out (B,T,C) = wte[tokens] + wpe[t]; wpe may be left out
struct EncoderForward {
  static constexpr const char* kName = "encoder_forward";
  Tensor out, tokens, wte, wpe = {};
  void check() const {
    expect(*this, one_float_type(out, wte) && embedding_fits(out, tokens, wte) &&
                      (!present(wpe) || (wpe.dtype == out.dtype && positions_fit(out, wpe))));
  }
  Work work() const {
    Work work{OpKind::embedding, {tokens, looked_up(wte, tokens)}, {out}};
    if (present(wpe)) work.read.push_back(positions_of(wpe, out));
    return work;
  }
  void run(Cpu&) const, run(Cuda&) const;
};

}  // namespace stepladder
