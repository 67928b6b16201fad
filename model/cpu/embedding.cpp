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
  expect(one_float_type(out, wte) && is_i32(tokens) && wte.shape.rank() == 2 && one_per_row(out, tokens) &&
             dim(out, -1) == dim(wte, 1),
         "embedding_forward", out, tokens, wte);
  expect_tokens("embedding_forward", tokens, wte);
  const int64_t N = tokens.numel(), C = wte.cols();
  const int32_t* ptokens = tokens.ptr<int32_t>();
  with_float_type(out.dtype, [&]<class T>(T) {
    const T* pwte = wte.ptr<T>();
    T* pout = out.ptr<T>();
    each_row(N, C, [=](int64_t n) { std::copy_n(pwte + ptokens[n] * C, C, pout + n * C); });
  });
}

void CpuOps::encoder_forward(Tensor out, Tensor tokens, Tensor wte, Tensor wpe) {
  expect(one_float_type(out, wte, wpe) && is_i32(tokens) && out.shape.rank() == 3 && wte.shape.rank() == 2 &&
             wpe.shape.rank() == 2 && one_per_row(out, tokens) && dim(out, 1) <= dim(wpe, 0) &&
             dim(out, 2) == dim(wte, 1) && dim(out, 2) == dim(wpe, 1),
         "encoder_forward", out, tokens, wte, wpe);
  expect_tokens("encoder_forward", tokens, wte);
  const int64_t N = tokens.numel(), T = out.shape[1], C = out.cols();
  const int32_t* ptokens = tokens.ptr<int32_t>();
  with_float_type(out.dtype, [&]<class F>(F) {
    const auto fout = floats<F>(out), fwte = floats<F>(wte), fwpe = floats<F>(wpe);
    each_row(N, C, [=](int64_t n) {
      const auto token = fwte + ptokens[n] * C, position = fwpe + n % T * C;
      STEPLADDER_SIMD
      for (int64_t c = 0; c < C; ++c) fout.set(n * C + c, token[c] + position[c]);
    });
  });
}

void CpuOps::embedding_backward(Tensor dwte, Tensor tokens, Tensor dout) {
  expect(one_float_type(dwte, dout) && is_i32(tokens) && dwte.shape.rank() == 2 &&
             one_per_row(dout, tokens) && dim(dout, -1) == dim(dwte, 1),
         "embedding_backward", dwte, tokens, dout);
  expect_tokens("embedding_backward", tokens, dwte);
  const int64_t N = tokens.numel(), C = dwte.cols();
  expect_workspace("embedding_backward", order_, N);
  const int32_t* ptokens = tokens.ptr<int32_t>();

  // Rows of one token side by side, so that each token's sum is taken in double and added once.
  int32_t* order = order_.ptr<int32_t>();
  std::iota(order, order + N, 0);
  std::sort(order, order + N,
            [=](int32_t a, int32_t b) { return ptokens[a] != ptokens[b] ? ptokens[a] < ptokens[b] : a < b; });
  with_float_type(dwte.dtype, [&]<class T>(T) {
    const auto fdout = floats<T>(dout), fdwte = floats<T>(dwte);
    pieces(C, kColumns, N, [=](int64_t first, int64_t last) {
      for (int64_t i = 0; i < N;) {
        const int32_t token = ptokens[order[i]];
        double sums[kColumns] = {};
        for (; i < N && ptokens[order[i]] == token; ++i)
          for (int64_t c = first; c < last; ++c) sums[c - first] += fdout[order[i] * C + c];
        const auto row = fdwte + token * C;
        for (int64_t c = first; c < last; ++c) row.set(c, static_cast<float>(row[c] + sums[c - first]));
      }
    });
  });
}

void CpuOps::add_position(Tensor x, Tensor wpe) {
  expect(one_float_type(x, wpe) && x.shape.rank() == 3 && wpe.shape.rank() == 2 && dim(x, 1) <= dim(wpe, 0) &&
             dim(x, 2) == dim(wpe, 1),
         "add_position", x, wpe);
  const int64_t B = x.shape[0], T = x.shape[1], C = x.shape[2];
  with_float_type(x.dtype, [&]<class F>(F) {
    const auto fx = floats<F>(x), fwpe = floats<F>(wpe);
    each_row(B * T, C, [=](int64_t n) {
      STEPLADDER_SIMD
      for (int64_t c = 0; c < C; ++c) fx.add(n * C + c, fwpe[n % T * C + c]);
    });
  });
}

void CpuOps::position_backward(Tensor dwpe, Tensor dout) {
  expect(one_float_type(dwpe, dout) && dout.shape.rank() == 3 && dwpe.shape.rank() == 2 &&
             dim(dout, 1) <= dim(dwpe, 0) && dim(dout, 2) == dim(dwpe, 1),
         "position_backward", dwpe, dout);
  const int64_t B = dout.shape[0], T = dout.shape[1], C = dout.shape[2];
  with_float_type(dwpe.dtype, [&]<class F>(F) {
    const auto fdout = floats<F>(dout), fdwpe = floats<F>(dwpe);
    each_row(T, B * C, [=](int64_t t) {
      for (int64_t c = 0; c < C; ++c) {
        double total = fdwpe[t * C + c];
        for (int64_t b = 0; b < B; ++b) total += fdout[(b * T + t) * C + c];
        fdwpe.set(t * C + c, static_cast<float>(total));
      }
    });
  });
}

}  // namespace stepladder
