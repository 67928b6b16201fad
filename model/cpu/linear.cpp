#include "model/cpu/check.h"
#include "model/cpu/gelu.h"
#include "model/cpu/matmul.h"

namespace stepladder {

void CpuOps::linear_forward(Tensor out, Tensor x, Tensor w, Tensor b, Tensor residual) {
  const Product product("linear_forward", out, x, w, MatOp::NT, tf32());
  expect(one_float_type(out, b) && (out.dtype == x.dtype || is_fp8(x.dtype)) && w.shape.rank() == 2 &&
             b.shape == Shape{out.cols()} &&
             (!present(residual) || (one_float_type(out, residual) && same_shape(out, residual))),
         "linear_forward", out, x, w, b, residual);
  const int64_t N = product.N;
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out), fb = floats<T>(b);
    const auto fresidual = present(residual) ? floats<T>(residual) : Floats<T>{};
    product.each_tile(threads_, scratch("linear_forward"), [&](const Tile& t, const float* elements) {
      for (int64_t r = 0; r < t.rows; ++r) {
        const int64_t row = (t.m + r) * N + t.n;
        const auto to = fout + row, bias = fb + t.n;
        const float* from = elements + r * t.cols;
        if (fresidual.data != nullptr) {  // NOLINT(bugprone-branch-clone): it does not look past the pragmas
          const auto before = fresidual + row;
          STEPLADDER_SIMD
          for (int64_t c = 0; c < t.cols; ++c) to.set(c, from[c] + before[c] + bias[c]);
        } else {
          STEPLADDER_SIMD
          for (int64_t c = 0; c < t.cols; ++c) to.set(c, from[c] + bias[c]);
        }
      }
    });
  });
}

void CpuOps::linear_gelu_forward(Tensor out, Tensor pre, Tensor x, Tensor w, Tensor b) {
  const Product product("linear_gelu_forward", out, x, w, MatOp::NT, tf32());
  expect(one_float_type(out, pre, x, b) && w.shape.rank() == 2 && same_shape(out, pre) &&
             b.shape == Shape{out.cols()},
         "linear_gelu_forward", out, pre, x, w, b);
  const int64_t N = product.N;
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out), fpre = floats<T>(pre), fb = floats<T>(b);
    product.each_tile(threads_, scratch("linear_gelu_forward"), [&](const Tile& t, const float* elements) {
      for (int64_t r = 0; r < t.rows; ++r) {
        const int64_t row = (t.m + r) * N + t.n;
        const float* from = elements + r * t.cols;
        STEPLADDER_SIMD
        for (int64_t c = 0; c < t.cols; ++c) {
          const float sum = from[c] + fb[t.n + c];
          fpre.set(row + c, sum);
          fout.set(row + c, gelu(sum));
        }
      }
    });
  });
}

void CpuOps::linear_gelu_backward(Tensor dpre, Tensor db, Tensor dout, Tensor w, Tensor pre, Write write) {
  const Product product("linear_gelu_backward", dpre, dout, w, MatOp::NN, tf32());
  expect(one_float_type(dpre, db, dout, pre) && w.shape.rank() == 2 && same_shape(dpre, pre) &&
             db.shape == Shape{dpre.cols()},
         "linear_gelu_backward", dpre, db, dout, w, pre);
  const int64_t M = product.M, N = product.N;
  float* all_scratch = scratch("linear_gelu_backward");
  with_float_type(dpre.dtype, [&]<class T>(T) {
    const auto fdpre = floats<T>(dpre), fdb = floats<T>(db), fpre = floats<T>(pre);
    // One thread has all rows of its columns, so that it can sum them.
    parallel_for(product.worth(threads_), (N + kColumns - 1) / kColumns, [&](int64_t piece) {
      float* mine = all_scratch + thread_index() * kScratch;
      float* elements = mine + kOperandTiles;
      const int64_t n = piece * kColumns, cols = std::min(kColumns, N - n);
      double sums[kColumns] = {};
      for (int64_t m = 0; m < M; m += kTileM) {
        const Tile t{0, m, n, std::min(kTileM, M - m), cols};
        product.tile(t, 0.0F, elements, cols, mine);
        for (int64_t r = 0; r < t.rows; ++r) {
          const int64_t row = (m + r) * N + n;
          STEPLADDER_SIMD
          for (int64_t c = 0; c < cols; ++c) {
            const float d = gelu_slope(fpre[row + c]) * elements[r * cols + c];
            fdpre.set(row + c, d);
            sums[c] += d;
          }
        }
      }
      for (int64_t c = 0; c < cols; ++c)
        fdb.set(n + c, static_cast<float>((write == Write::add ? fdb[n + c] : 0.0F) + sums[c]));
    });
  });
}

void CpuOps::linear_weight_backward(Tensor dw, Tensor db, Tensor dout, Tensor x, Write write) {
  const Product fits("linear_weight_backward", dw, dout, x, MatOp::TN, tf32());
  expect(one_float_type(dw, db, dout) && dw.shape.rank() == 2 && db.shape == Shape{dw.shape[0]},
         "linear_weight_backward", dw, db, dout, x);
  matmul(dw, dout, x, MatOp::TN, write);
  if (write == Write::set) zero(db);
  sum_rows(db, dout);
}

}  // namespace stepladder
