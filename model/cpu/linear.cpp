#include "model/cpu/gelu.h"
#include "model/cpu/matmul.h"

namespace stepladder {

void LinearForward::run(Cpu& cpu) const {
  const Product product(out, x, w, MatOp::NT, cpu.tf32());
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out), fb = floats<T>(b);
    const auto fresidual = present(residual) ? floats<T>(residual) : Floats<T>{};
    product.each_row(cpu.threads, cpu.scratch(kName), [&](int64_t first, int64_t cols, const float* row) {
      const auto to = fout + first, bias = fb + first % product.N;
      if (fresidual.data != nullptr) {  // NOLINT(bugprone-branch-clone): it does not look past the pragmas
        const auto before = fresidual + first;
        STEPLADDER_SIMD
        for (int64_t c = 0; c < cols; ++c) to.set(c, row[c] + before[c] + bias[c]);
      } else {
        STEPLADDER_SIMD
        for (int64_t c = 0; c < cols; ++c) to.set(c, row[c] + bias[c]);
      }
    });
  });
}

void LinearGeluForward::run(Cpu& cpu) const {
  const Product product(out, x, w, MatOp::NT, cpu.tf32());
  with_float_type(out.dtype, [&]<class T>(T) {
    const auto fout = floats<T>(out), fpre = floats<T>(pre), fb = floats<T>(b);
    product.each_row(cpu.threads, cpu.scratch(kName), [&](int64_t first, int64_t cols, const float* row) {
      const auto bias = fb + first % product.N;
      STEPLADDER_SIMD
      for (int64_t c = 0; c < cols; ++c) {
        const float sum = row[c] + bias[c];
        fpre.set(first + c, sum);
        fout.set(first + c, gelu(sum));
      }
    });
  });
}

void LinearGeluBackward::run(Cpu& cpu) const {
  const Product product(dpre, dout, w, MatOp::NN, cpu.tf32());
  const int64_t M = product.M, N = product.N;
  float* all_scratch = cpu.scratch(kName);
  with_sum_type(dpre, db, [&]<class T, class Sum>(T, Sum) {
    const auto fdpre = floats<T>(dpre), fpre = floats<T>(pre);
    const auto fdb = floats<Sum>(db);
    // One thread computes all rows of its columns, so that it can sum them.
    parallel_for(product.worth(cpu.threads), (N + Cpu::kColumns - 1) / Cpu::kColumns, [&](int64_t piece) {
      float* mine = all_scratch + thread_index() * Cpu::kScratch;
      float* elements = mine + kOperandTiles;
      const int64_t n = piece * Cpu::kColumns, cols = std::min(Cpu::kColumns, N - n);
      double sums[Cpu::kColumns] = {};
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

void LinearWeightBackward::run(Cpu& cpu) const {
  Matmul{dw, dout, x, MatOp::TN, write}.run(cpu);
  if (write == Write::set) Zero{db}.run(cpu);
  SumRows{db, dout}.run(cpu);
}

}  // namespace stepladder
