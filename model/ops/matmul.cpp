#include "model/ops/matmul.h"

namespace stepladder {
namespace {

/// Whether a and b can be multiplied: both of one float type, or both FP8 with scales, and at least one
/// f8e4m3.
bool multiply(const Tensor& a, const Tensor& b) {
  if (!is_fp8(a.dtype)) return one_float_type(a, b);
  return is_fp8(b.dtype) && (a.dtype == DType::f8e4m3 || b.dtype == DType::f8e4m3) && a.scale && b.scale;
}

bool same_batch(const Tensor& out, const Tensor& a, const Tensor& b) {
  const int rank = out.shape.rank();
  if (a.shape.rank() != rank || b.shape.rank() != rank) return false;
  for (int i = 0; i + 2 < rank; ++i)
    if (out.shape[i] != a.shape[i] || out.shape[i] != b.shape[i]) return false;
  return true;
}

}  // namespace

const char* name_of(MatOp op) {
  return op == MatOp::NN ? "NN" : op == MatOp::NT ? "NT" : "TN";
}

MatmulShape matmul_shape(const Tensor& out, const Tensor& a, const Tensor& b, MatOp op) {
  MatmulShape s;
  if (out.shape.rank() < 2 || a.shape.rank() < 2 || b.shape.rank() < 2) return s;
  const bool flat = (op == MatOp::TN ? out : b).shape.rank() == 2;
  if (!flat && !same_batch(out, a, b)) return s;
  if (!flat)
    for (int i = 0; i + 2 < out.shape.rank(); ++i) s.batch *= out.shape[i];
  const auto rows = [flat](const Tensor& t) { return flat ? rows_of(t) : t.shape[-2]; };
  s.a_rows = rows(a), s.a_cols = a.cols(), s.b_rows = rows(b), s.b_cols = b.cols();
  s.M = rows(out), s.N = op == MatOp::NT ? s.b_rows : s.b_cols;
  s.K = op == MatOp::TN ? s.a_rows : op == MatOp::NT ? s.b_cols : s.b_rows;
  const bool types = multiply(a, b) && (is_fp8(a.dtype) ? flat && op == MatOp::NT && is_float(out.dtype)
                                                        : out.dtype == a.dtype || all_f32(out));
  const bool transposed = op == MatOp::TN;
  s.fits = types && s.a_rows == (transposed ? s.K : s.M) && s.a_cols == (transposed ? s.M : s.K) &&
           s.b_rows == (op == MatOp::NT ? s.N : s.K) && out.cols() == s.N;
  return s;
}

Work matmul_work(const Tensor& out, const Tensor& a, const Tensor& b, MatOp op, Write write,
                 std::vector<Operand> read, std::vector<Operand> written) {
  const MatmulShape s = matmul_shape(out, a, b, op);
  read.insert(read.begin(), {a, b});
  written.insert(written.begin(), out);
  if (write == Write::add) read.emplace_back(out);
  return {.kind = OpKind::gemm,
          .read = std::move(read),
          .written = std::move(written),
          .flops = 2.0 * static_cast<double>(s.batch) * static_cast<double>(s.M) * static_cast<double>(s.N) *
                   static_cast<double>(s.K),
          .multiplied = a.dtype,
          .extents = cat(name_of(op), ' ', s.batch > 1 ? cat(s.batch, " of ") : "", s.M, 'x', s.N, 'x', s.K)};
}

}  // namespace stepladder
