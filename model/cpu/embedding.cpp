#include <algorithm>
#include <numeric>

#include "model/cpu/cpu.h"

namespace stepladder {
namespace {

/// Throws unless every token indexes a row of `table` (V,C).
void expect_tokens(const char* op, Tensor tokens, Tensor table) {
  const int32_t* p = tokens.ptr<int32_t>();
  for (int64_t n = 0; n < tokens.numel(); ++n)
    check(p[n] >= 0 && p[n] < table.shape[0], op, ": token ", p[n], " at ", n, " of ", tokens,
          " is not a row of ", table);
}

}  // namespace

void EncoderForward::run(Cpu& cpu) const {
  expect_tokens(kName, tokens, wte);
  const int64_t N = tokens.numel(), T = out.shape[1], C = out.cols();
  const int32_t* ptokens = tokens.ptr<int32_t>();
  with_float_type(out.dtype, [&]<class F>(F) {
    const auto fout = floats<F>(out), fwte = floats<F>(wte);
    if (!present(wpe)) {
      cpu.each_row(N, C, [=](int64_t n) {
        const auto token = fwte + ptokens[n] * C;
        STEPLADDER_SIMD
        for (int64_t c = 0; c < C; ++c) fout.set(n * C + c, token[c]);
      });
      return;
    }
    const auto fwpe = floats<F>(wpe);
    cpu.each_row(N, C, [=](int64_t n) {
      const auto token = fwte + ptokens[n] * C, position = fwpe + n % T * C;
      STEPLADDER_SIMD
      for (int64_t c = 0; c < C; ++c) fout.set(n * C + c, token[c] + position[c]);
    });
  });
}

void EmbeddingBackward::run(Cpu& cpu) const {
  expect_tokens(kName, tokens, dwte);
  const int64_t N = tokens.numel(), C = dwte.cols();
  expect_workspace(kName, cpu.order, N);
  const int32_t* ptokens = tokens.ptr<int32_t>();

  // Sort the rows by token, so that each token's sum is taken in double and added once.
  int32_t* order = cpu.order.ptr<int32_t>();
  std::iota(order, order + N, 0);
  std::sort(order, order + N,
            [=](int32_t a, int32_t b) { return ptokens[a] != ptokens[b] ? ptokens[a] < ptokens[b] : a < b; });
  with_sum_type(dout, dwte, [&]<class T, class Sum>(T, Sum) {
    const auto fdout = floats<T>(dout);
    const auto fdwte = floats<Sum>(dwte);
    cpu.pieces(C, Cpu::kColumns, N, [=](int64_t first, int64_t last) {
      for (int64_t i = 0; i < N;) {
        const int32_t token = ptokens[order[i]];
        double sums[Cpu::kColumns] = {};
        for (; i < N && ptokens[order[i]] == token; ++i)
          for (int64_t c = first; c < last; ++c) sums[c - first] += fdout[order[i] * C + c];
        const auto row = fdwte + token * C;
        for (int64_t c = first; c < last; ++c) row.set(c, static_cast<float>(row[c] + sums[c - first]));
      }
    });
  });
}

void PositionBackward::run(Cpu& cpu) const {
  const int64_t B = dout.shape[0], T = dout.shape[1], C = dout.shape[2];
  with_sum_type(dout, dwpe, [&]<class F, class Sum>(F, Sum) {
    const auto fdout = floats<F>(dout);
    const auto fdwpe = floats<Sum>(dwpe);
    cpu.each_row(T, B * C, [=](int64_t t) {
      for (int64_t c = 0; c < C; ++c) {
        double total = fdwpe[t * C + c];
        for (int64_t b = 0; b < B; ++b) total += fdout[(b * T + t) * C + c];
        fdwpe.set(t * C + c, static_cast<float>(total));
      }
    });
  });
}

}  // namespace stepladder
