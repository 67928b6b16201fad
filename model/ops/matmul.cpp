#include "model/ops/matmul.h"

namespace stepladder {
namespace {

/// Two of one float type, or two of FP8 that tensor cores multiply, each with a scale.
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
  s.a_rows = rows(a), s.a_cols = a.cols(), s.b_rows = rows(b), s.b_cols = b.cols(), s.out_cols = out.cols();
  s.M = rows(out), s.N = op == MatOp::NT ? s.b_rows : s.b_cols;
  s.K = op == MatOp::TN ? s.a_rows : op == MatOp::NT ? s.b_cols : s.b_rows;
  const int64_t a_cols = op == MatOp::TN ? s.M : s.K;
  s.padded = s.a_cols != a_cols || s.out_cols != s.N;
  // f32 and 16-bit operands of NT have rows as long as the product is: only logits are padded.
  const bool a_may_be_padded = flat && (op != MatOp::NT || is_fp8(a.dtype));
  const bool out_may_be_padded = flat && op == MatOp::NT;
  const bool types = multiply(a, b) && (is_fp8(a.dtype) ? flat && op == MatOp::NT && size_of(out.dtype) == 2
                                                        : out.dtype == a.dtype || all_f32(out));
  s.fits = types && s.a_rows == (op == MatOp::TN ? s.K : s.M) && s.b_rows == (op == MatOp::NT ? s.N : s.K) &&
           (a_may_be_padded ? s.a_cols >= a_cols : s.a_cols == a_cols) &&
           (out_may_be_padded ? s.out_cols >= s.N : s.out_cols == s.N);
  return s;
}

Work matmul_work(const Tensor& out, const Tensor& a, const Tensor& b, MatOp op, Write write,
                 std::vector<Operand> read, std::vector<Operand> written) {
  const MatmulShape s = matmul_shape(out, a, b, op);
  // Rows may be padded: of each operand, what the product is made of.
  const auto part = [&](const Tensor& x, int64_t elements) {
    return Operand(x, static_cast<double>(s.batch * elements) * static_cast<double>(size_of(x.dtype)));
  };
  read.insert(read.begin(), {part(a, s.M * s.K), part(b, s.K * s.N)});
  written.insert(written.begin(), part(out, s.M * s.N));
  if (write == Write::add) read.push_back(part(out, s.M * s.N));
  return {.kind = OpKind::gemm,
          .read = std::move(read),
          .written = std::move(written),
          .flops = 2.0 * static_cast<double>(s.batch) * static_cast<double>(s.M) * static_cast<double>(s.N) *
                   static_cast<double>(s.K),
          .multiplied = a.dtype,
          .extents = cat(name_of(op), ' ', s.batch > 1 ? cat(s.batch, " of ") : "", s.M, 'x', s.N, 'x', s.K)};
}

}  // namespace stepladder
