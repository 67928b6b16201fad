// Fused elementwise ops: one pass over memory.
#include "model/cuda/cuda.h"
#include "model/cuda/gelu.cuh"
#include "model/cuda/kernels.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

constexpr int kRows = 8;  // rows of a block; each row has a warp

/// f.row(row) returns an object with `from`, where each operand of the row begins, and put(c, x), which
/// writes the results for elements c, c + 1, ... A lane loads kItems packs of each operand before it uses the
/// first.
template <class T, int kWidth, class F>
__global__ void __launch_bounds__(32 * kRows) map_packs_kernel(int64_t rows, int cols, F f) {
  await_predecessor();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  if (row >= rows) return;
  const auto of_row = f.row(row);
  constexpr int kOperands = sizeof(of_row.from) / sizeof(of_row.from[0]);
  constexpr int kStep = 32 * kWidth;
  for (int first = static_cast<int>(threadIdx.x) * kWidth; first < cols; first += kItems * kStep) {
    Pack<T, kWidth> packs[kItems][kOperands];
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int c = first + j * kStep;
      if (c >= cols) continue;
#pragma unroll
      for (int k = 0; k < kOperands; ++k) packs[j][k] = Pack<T, kWidth>::load(of_row.from[k] + c);
    }
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int c = first + j * kStep;
      if (c >= cols) continue;
      float x[kOperands][kWidth];
#pragma unroll
      for (int k = 0; k < kOperands; ++k) packs[j][k].get(x[k]);
      of_row.put(c, x);
    }
  }
}

template <class T, int kWidth, class F>
void map_packs(Queue& queue, int64_t rows, int64_t cols, F f) {
  if (rows == 0 || cols == 0) return;
  launch(queue, map_packs_kernel<T, kWidth, F>, grid_size(ceil_div(rows, kRows)), dim3(32, kRows), 0, rows,
         column_count(cols), f);
}

/// out = f({operand 0, operand 1, ...}), element by element.
template <class T, int kWidth, class F, int kOperands>
struct ElementwiseRow {
  const T* from[kOperands];
  T* out;
  F f;
  __device__ void put(int c, const float (&x)[kOperands][kWidth]) const {
    float v[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] = apply(f, x, i);
    Pack<T, kWidth>::of(v).store(out + c);
  }
};

/// Maps F over operands stored as `out` is.
template <class T, int kWidth, class F, int kOperands>
struct Elementwise {
  T* out;
  Pointers<T, kOperands> in;
  int64_t C;
  __device__ auto row(int64_t n) const {
    ElementwiseRow<T, kWidth, F, kOperands> row{{}, out + n * C, {}};
#pragma unroll
    for (int k = 0; k < kOperands; ++k) row.from[k] = in.at[k] + n * C;
    return row;
  }
};

template <class T, int kWidth>
struct EncoderForwardFunctor {  // wte[tokens] + wpe[t]
  T* out;
  const int32_t* tokens;
  const T *wte, *wpe;
  int64_t length, C;  // T and C
  __device__ ElementwiseRow<T, kWidth, AddFunctor, 2> row(int64_t n) const {
    return {{wte + tokens[n] * C, wpe + n % length * C}, out + n * C, {}};
  }
};

template <class T, int kWidth>
struct TokenFunctor {  // wte[tokens]
  T* out;
  const int32_t* tokens;
  const T* wte;
  int64_t C;
  __device__ ElementwiseRow<T, kWidth, Unchanged, 1> row(int64_t n) const {
    return {{wte + tokens[n] * C}, out + n * C, {}};
  }
};

struct AddThree {
  __device__ float operator()(const float (&x)[3]) const { return x[0] + x[1] + x[2]; }
};

template <class T, int kWidth>
struct AddBiasResidualFunctor {
  T* out;
  const T *x, *y, *bias;
  int64_t C;
  __device__ ElementwiseRow<T, kWidth, AddThree, 3> row(int64_t n) const {
    return {{x + n * C, y + n * C, bias}, out + n * C, {}};
  }
};

template <class T, int kWidth, class F>
struct BiasActivation {  // x + bias, and F of the sum as stored
  T *x, *out;
  const T* bias;
  int64_t C;

  struct Row {
    const T* from[2];
    T *x, *out;
    __device__ void put(int c, const float (&in)[2][kWidth]) const {
      float v[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) v[i] = in[0][i] + in[1][i];
      const auto stored = Pack<T, kWidth>::of(v);
      stored.store(x + c);
      stored.get(v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) v[i] = F{}({v[i]});
      Pack<T, kWidth>::of(v).store(out + c);
    }
  };
  __device__ Row row(int64_t n) const {
    return {{x + n * C, bias}, x + n * C, out + n * C};
  }
};

/// out = F of the operands, element by element
template <class F, class... In>
void elementwise(Cuda& cuda, const Tensor& out, const In&... in) {
  with_pack({out, in...}, cuda.options.wide_access, [&]<class T>(T, auto width) {
    const Elementwise<T, width(), F, sizeof...(In)> f{out.ptr<T>(), {{in.template ptr<T>()...}}, out.cols()};
    map_packs<T, width()>(cuda.queue, out.rows(), out.cols(), f);
  });
}

struct ReluSquared {  // max(x, 0)^2; NaN stays NaN
  __device__ float operator()(const float (&x)[1]) const { return x[0] < 0.0F ? 0.0F : x[0] * x[0]; }
};
struct ReluSquaredBackwardFunctor {  // dout * 2 max(x, 0)
  __device__ float operator()(const float (&dout_x)[2]) const {
    return dout_x[0] * 2.0F * (dout_x[1] < 0.0F ? 0.0F : dout_x[1]);
  }
};

}  // namespace

void EncoderForward::run(Cuda& cuda) const {
  if (!present(wpe)) {
    with_pack({out, wte}, cuda.options.wide_access, [&]<class T>(T, auto width) {
      const TokenFunctor<T, width()> f{out.ptr<T>(), tokens.ptr<int32_t>(), wte.ptr<T>(), out.cols()};
      map_packs<T, width()>(cuda.queue, out.rows(), out.cols(), f);
    });
    return;
  }
  with_pack({out, wte, wpe}, cuda.options.wide_access, [&]<class T>(T, auto width) {
    const EncoderForwardFunctor<T, width()> f{out.ptr<T>(), tokens.ptr<int32_t>(), wte.ptr<T>(),
                                              wpe.ptr<T>(), out.shape[1],          out.cols()};
    map_packs<T, width()>(cuda.queue, out.rows(), out.cols(), f);
  });
}

void AddBiasResidual::run(Cuda& cuda) const {
  with_pack({out, x, y, bias}, cuda.options.wide_access, [&]<class T>(T, auto width) {
    const AddBiasResidualFunctor<T, width()> f{out.ptr<T>(), x.ptr<T>(), y.ptr<T>(), bias.ptr<T>(), x.cols()};
    map_packs<T, width()>(cuda.queue, x.rows(), x.cols(), f);
  });
}

void BiasGeluForward::run(Cuda& cuda) const {
  with_pack({out, x, bias}, cuda.options.wide_access, [&]<class T>(T, auto width) {
    const BiasActivation<T, width(), Gelu> f{x.ptr<T>(), out.ptr<T>(), bias.ptr<T>(), x.cols()};
    map_packs<T, width()>(cuda.queue, x.rows(), x.cols(), f);
  });
}

void GeluForward::run(Cuda& cuda) const {
  elementwise<Gelu>(cuda, out, x);
}

void GeluBackward::run(Cuda& cuda) const {
  elementwise<GeluBackwardFunctor>(cuda, dx, dout, x);
}

void ReluSquaredForward::run(Cuda& cuda) const {
  elementwise<ReluSquared>(cuda, out, x);
}

void ReluSquaredBackward::run(Cuda& cuda) const {
  elementwise<ReluSquaredBackwardFunctor>(cuda, dx, dout, x);
}

}  // namespace stepladder
