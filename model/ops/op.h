// An op is a value that holds its operands, checks them, knows its cost, and can be run on a backend.
//
//   struct RowMean {
//     static constexpr const char* kName = ...;  // "row_mean"
//     Tensor mean, x;
//     void check() const;                        // throws std::invalid_argument unless operands fit
//     Work work() const;                         // bytes moved and FLOPs
//     void run(Cpu&) const, run(Cuda&) const;    // in model/cpu/ and model/cuda/
//   };
//
// Operands are contiguous Tensors of the backend's device, outputs first. `=` overwrites an output, `+=` adds
// to it. "float" operands are f32, bf16 or f16, all of one type within an op; arithmetic is f32 and each
// result is rounded once, when it is stored. Statistics, losses and optimizer state are f32. N = B*T rows
// unless said otherwise.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/tensor.h"

namespace stepladder {

class Cpu;
class Cuda;

/// Overwrite (=) or accumulate (+=).
enum class Write { set, add };

/// Kind of an op, for tables of time by kind.
enum class OpKind {
  gemm,
  attention,
  layernorm,
  softmax,
  cross_entropy,
  embedding,
  elementwise,
  reduction,
  clip,
  adamw,
  muon,
  copy,
  memset,
  communication,
};
/// The name of a kind: "GEMM", "LayerNorm", ...
const char* name_of(OpKind kind);

/// A tensor that an op reads or writes, and how many of its bytes: all of them unless said otherwise; 0 for
/// an empty tensor, an operand left out.
struct Operand {
  Operand(const Tensor& t)  // NOLINT(google-explicit-constructor): lists of operands are lists of tensors
      : tensor(t), bytes(static_cast<double>(t.data ? t.bytes() : 0)) {}
  Operand(const Tensor& of, double moved) : tensor(of), bytes(moved), whole(false) {}

  Tensor tensor;
  double bytes;
  bool whole = true;
};

/// The cost of an op, however a backend implements it: each operand is read once unless the op says
/// otherwise, each result is written once, and FLOPs are those of matrix products.
struct Work {
  OpKind kind = OpKind::elementwise;
  std::vector<Operand> read, written;
  double flops = 0.0;
  DType multiplied = DType::f32;  // type of the numbers multiplied
  std::string extents = {};       // extents of a matrix product: "NT 16384x2304x768"

  /// Bytes to read and to write; a tensor that is listed twice as a whole counts once.
  double bytes() const;
};

// ---- what check() and work() are written with ------------------------------------------------------------

template <class... Tensors>
bool all_of_type(DType type, const Tensors&... tensors) {
  return ((tensors.dtype == type) && ...);
}
template <class... Tensors>
bool all_f32(const Tensors&... tensors) {
  return all_of_type(DType::f32, tensors...);
}
/// Whether all tensors are of one type, which is f32, bf16 or f16.
template <class... Tensors>
bool one_float_type(const Tensor& a, const Tensors&... others) {
  return is_float(a.dtype) && ((others.dtype == a.dtype) && ...);
}
inline bool is_i32(const Tensor& t) {
  return t.dtype == DType::i32;
}

template <class... Tensors>
bool same_shape(const Tensor& a, const Tensors&... others) {
  return ((a.shape == others.shape) && ...);
}

/// Whether all tensors are of one float type and one shape.
template <class... Tensors>
bool alike(const Tensor& a, const Tensors&... others) {
  return one_float_type(a, others...) && same_shape(a, others...);
}

/// Whether an optional operand was passed.
inline bool present(const Tensor& t) {
  return t.data != nullptr;
}

/// Extent of dimension i, counted from the end when negative; -1 where there is none.
inline int64_t dim(const Tensor& t, int i) {
  const int rank = t.shape.rank(), at = i < 0 ? rank + i : i;
  return at >= 0 && at < rank ? t.shape[at] : -1;
}

/// Product of all extents but the last: the rows of a matrix, right for empty rows too.
inline int64_t rows_of(const Tensor& t) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < t.shape.rank(); ++i) rows *= t.shape[i];
  return rows;
}

/// Whether `x` is a matrix and each of `per_row` has one element for each row of `x`.
template <class... Tensors>
bool one_per_row(const Tensor& x, const Tensors&... per_row) {
  return x.shape.rank() > 0 && ((per_row.numel() == rows_of(x)) && ...);
}

/// Whether `x` is a float matrix (N,C) and each of `per_column` a vector (C) of the same type.
template <class... Tensors>
bool one_per_column(const Tensor& x, const Tensors&... per_column) {
  return one_float_type(x, per_column...) && x.shape.rank() > 0 &&
         ((per_column.shape == Shape{x.cols()}) && ...);
}

/// Whether `sum` can add up values of x's type, in that type or in f32. Where a step has several
/// micro-batches, gradients of 16-bit tensors are f32.
inline bool sums_values_of(const Tensor& x, const Tensor& sum) {
  return is_float(x.dtype) && (sum.dtype == x.dtype || all_f32(sum));
}
/// Whether `x` is a float matrix (N,C), and `sum` and `sums` are vectors (C) of one type, x's or f32; empty
/// `sums` are left out.
template <class... Tensors>
bool sums_per_column(const Tensor& x, const Tensor& sum, const Tensors&... sums) {
  return sums_values_of(x, sum) && x.shape.rank() > 0 && sum.shape == Shape{x.cols()} &&
         ((!present(sums) || alike(sum, sums)) && ...);
}

/// Whether x is (...,T,T).
inline bool square(const Tensor& x) {
  return x.shape.rank() >= 2 && dim(x, -1) == dim(x, -2);
}

/// Whether `loss_scaler` is left out, or (4) f32.
inline bool loss_scaler_fits(const Tensor& loss_scaler) {
  return !present(loss_scaler) || (all_f32(loss_scaler) && loss_scaler.numel() == 4);
}

/// The part of x (...,T,T) on and below the diagonal.
inline Operand lower_triangle(const Tensor& x) {
  const auto T = static_cast<double>(x.cols());
  return {x, Operand(x).bytes * (T + 1.0) / (2.0 * T)};
}

/// The first V columns of x.
inline Operand first_columns(const Tensor& x, int64_t V) {
  return {x, static_cast<double>(x.rows() * V) * static_cast<double>(size_of(x.dtype))};
}

// ---- ops of any type -------------------------------------------------------------------------------------

/// A type-erased reference to an op, which outlives the reference.
class AnyOp {
 public:
  template <class Op>
  AnyOp(const Op& op)  // NOLINT(google-explicit-constructor): every op is one
      : op_(&op), functions_(&kFunctions<Op>) {}

  const char* name() const { return functions_->name; }
  void check() const { functions_->check(op_); }
  Work work() const { return functions_->work(op_); }
  void run(Cpu& cpu) const { functions_->run_on_cpu(op_, cpu); }
#ifdef STEPLADDER_CUDA
  void run(Cuda& cuda) const {
    functions_->run_on_cuda(op_, cuda);
  }
#endif

 private:
  struct Functions {
    const char* name;
    void (*check)(const void*);
    Work (*work)(const void*);
    void (*run_on_cpu)(const void*, Cpu&);
#ifdef STEPLADDER_CUDA
    void (*run_on_cuda)(const void*, Cuda&);
#endif
  };
  template <class Op>
  static const Op& as(const void* op) {
    return *static_cast<const Op*>(op);
  }
  template <class Op>
  static constexpr Functions kFunctions = {
      Op::kName,
      [](const void* op) { as<Op>(op).check(); },
      [](const void* op) { return as<Op>(op).work(); },
      [](const void* op, Cpu& cpu) { as<Op>(op).run(cpu); },
#ifdef STEPLADDER_CUDA
      [](const void* op, Cuda& cuda) { as<Op>(op).run(cuda); },
#endif
  };

  const void* op_;
  const Functions* functions_;
};

/// Throws std::invalid_argument naming the op, its `form` where there is one, and its operands unless `fits`.
void expect(const AnyOp& op, bool fits, const std::string& form = {});

}  // namespace stepladder
