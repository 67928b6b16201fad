#include <algorithm>
#include <numeric>

#include "model/cpu/check.h"
#include "model/cpu/cpu_ops.h"

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

void CpuOps::embedding_forward(Tensor out, Tensor tokens, Tensor wte) {
  expect(all_f32(out, wte) && is_i32(tokens) && wte.shape.rank() == 2 && one_per_row(out, tokens) &&
             dim(out, -1) == dim(wte, 1),
         "embedding_forward", out, tokens, wte);
  expect_tokens("embedding_forward", tokens, wte);
  const int64_t N = tokens.numel(), C = wte.cols();
  const int32_t* ptokens = tokens.ptr<int32_t>();
  const float* pwte = wte.ptr<float>();
  float* pout = out.ptr<float>();
  each_row(N, C, [=](int64_t n) { std::copy_n(pwte + ptokens[n] * C, C, pout + n * C); });
}

void CpuOps::embedding_backward(Tensor dwte, Tensor tokens, Tensor dout) {
  expect(all_f32(dwte, dout) && is_i32(tokens) && dwte.shape.rank() == 2 && one_per_row(dout, tokens) &&
             dim(dout, -1) == dim(dwte, 1),
         "embedding_backward", dwte, tokens, dout);
  expect_tokens("embedding_backward", tokens, dwte);
  const int64_t N = tokens.numel(), C = dwte.cols();
  expect_workspace("embedding_backward", order_, N);
  const int32_t* ptokens = tokens.ptr<int32_t>();
  const float* pdout = dout.ptr<float>();
  float* pdwte = dwte.ptr<float>();

  // Rows of one token side by side, so that each token's sum is taken in double and added once.
  int32_t* order = order_.ptr<int32_t>();
  std::iota(order, order + N, 0);
  std::sort(order, order + N,
            [=](int32_t a, int32_t b) { return ptokens[a] != ptokens[b] ? ptokens[a] < ptokens[b] : a < b; });
  pieces(C, kColumns, N, [=](int64_t first, int64_t last) {
    for (int64_t i = 0; i < N;) {
      const int32_t token = ptokens[order[i]];
      double sums[kColumns] = {};
      for (; i < N && ptokens[order[i]] == token; ++i)
        for (int64_t c = first; c < last; ++c) sums[c - first] += pdout[order[i] * C + c];
      for (int64_t c = first; c < last; ++c) {
        float& d = pdwte[token * C + c];
        d = static_cast<float>(d + sums[c - first]);
      }
    }
  });
}

void CpuOps::add_position(Tensor x, Tensor wpe) {
  expect(all_f32(x, wpe) && x.shape.rank() == 3 && wpe.shape.rank() == 2 && dim(x, 1) <= dim(wpe, 0) &&
             dim(x, 2) == dim(wpe, 1),
         "add_position", x, wpe);
  const int64_t B = x.shape[0], T = x.shape[1], C = x.shape[2];
  const float* pwpe = wpe.ptr<float>();
  float* px = x.ptr<float>();
  each_row(B * T, C, [=](int64_t n) {
    STEPLADDER_SIMD
    for (int64_t c = 0; c < C; ++c) px[n * C + c] += pwpe[n % T * C + c];
  });
}

void CpuOps::position_backward(Tensor dwpe, Tensor dout) {
  expect(all_f32(dwpe, dout) && dout.shape.rank() == 3 && dwpe.shape.rank() == 2 &&
             dim(dout, 1) <= dim(dwpe, 0) && dim(dout, 2) == dim(dwpe, 1),
         "position_backward", dwpe, dout);
  const int64_t B = dout.shape[0], T = dout.shape[1], C = dout.shape[2];
  const float* pdout = dout.ptr<float>();
  float* pdwpe = dwpe.ptr<float>();
  each_row(T, B * C, [=](int64_t t) {
    for (int64_t c = 0; c < C; ++c) {
      double total = pdwpe[t * C + c];
      for (int64_t b = 0; b < B; ++b) total += pdout[(b * T + t) * C + c];
      pdwpe[t * C + c] = static_cast<float>(total);
    }
  });
}

}  // namespace stepladder
