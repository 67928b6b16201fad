// Shape and dtype checks of the CPU ops. Nothing here throws on a tensor of too small a rank: the check
// fails.
#pragma once

#include <string>

#include "model/tensor.h"

namespace stepladder {

/// Throws std::invalid_argument naming the op and its tensors unless `ok`.
template <class... Tensors>
void expect(bool ok, const char* op, const Tensors&... tensors) {
  if (ok) return;
  std::string list;
  ((list += cat(list.empty() ? "" : ", ", tensors)), ...);
  throw std::invalid_argument(cat(op, ": shapes or types do not fit together: ", list));
}

template <class... Tensors>
bool all_f32(const Tensors&... tensors) {
  return ((tensors.dtype == DType::f32) && ...);
}
/// All of one type that is f32, bf16 or f16.
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

/// An optional operand that was passed.
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

/// `x` is a matrix, each of `per_row` has one element for each of its rows.
template <class... Tensors>
bool one_per_row(const Tensor& x, const Tensors&... per_row) {
  return x.shape.rank() > 0 && ((per_row.numel() == rows_of(x)) && ...);
}

/// None, or (4) f32.
inline bool loss_scaler_fits(const Tensor& loss_scaler) {
  return !present(loss_scaler) || (all_f32(loss_scaler) && loss_scaler.numel() == 4);
}

/// Throws std::logic_error unless bind_workspace() has provided `n` elements of `workspace`.
inline void expect_workspace(const char* op, const Tensor& workspace, int64_t n) {
  if (workspace.data == nullptr || workspace.numel() < n)
    throw std::logic_error(
        cat(op, " needs a workspace of ", n, " elements: call bind_workspace() for this size"));
}

}  // namespace stepladder
