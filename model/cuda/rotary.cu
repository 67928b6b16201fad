// QK-norm and rotary embedding, one pass over q and k, in place.
//
// A warp has a row of qkv, and some of its lanes a head: a lane takes the same channels of several heads, so
// that it reads their angles once, and the same channels of both halves, which are rotated into each other.
#include <bit>
#include <cmath>

#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/multi_tensor.cuh"
#include "model/cuda/wide.cuh"

namespace stepladder {
namespace {

constexpr int kRows = 8;   // rows of a block; each row has a warp
constexpr int kHeads = 4;  // heads of a lane, at a time
constexpr int kMostHeadSize = 128;

/// Packs of each half that a lane takes of a head.
template <int kWidth>
constexpr int kSlots = kWidth == 1 ? kMostHeadSize / 2 / 32 : 1;

__global__ void __launch_bounds__(kThreads)
    rotary_table_kernel(float2* table, int64_t n, int half, double base) {
  await_predecessor();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= n) return;
  double sin, cos;
  sincos(static_cast<double>(at / half) * pow(base, -static_cast<double>(at % half) / half), &sin, &cos);
  table[at] = {static_cast<float>(cos), static_cast<float>(sin)};
}

template <class T>
struct QkRows {
  T* x;                // rows of 3C: q and k, or their gradients
  const T* y;          // backward with a norm: q and k
  float* rstd;         // (rows,heads), or null
  const float* table;  // (length,half,2), or null
  int64_t rows;
  int length, heads, half, cols;  // positions, heads of q and k together, half of a head, 3C
  int lanes;                      // lanes of a head, a power of 2
};

/// The angles, at one position, of a lane's channels.
template <int kWidth>
struct Angles {
  float of[kSlots<kWidth>][2 * kWidth];  // cos, sin, cos, sin, ...

  template <class T>
  __device__ Angles(const QkRows<T>& f, int64_t row, int lane) {
    const float* from = f.table ? f.table + row % f.length * f.half * 2 : nullptr;
#pragma unroll
    for (int s = 0; s < kSlots<kWidth>; ++s) {
      const int i = (lane + s * f.lanes) * kWidth;
#pragma unroll
      for (int k = 0; k < 2 * kWidth; ++k) of[s][k] = k % 2 == 0 ? 1.0F : 0.0F;
      if (!from || i >= f.half) continue;
      if constexpr (kWidth == 1) {
        of[s][0] = from[2 * i], of[s][1] = from[2 * i + 1];
      } else {
#pragma unroll
        for (int k = 0; k < kWidth / 2; ++k) {
          float four[4];
          Pack<float, 4>::load(from + 2 * i + 4 * k).get(four);
#pragma unroll
          for (int j = 0; j < 4; ++j) of[s][4 * k + j] = four[j];
        }
      }
    }
  }

  /// Rotates (x1, x2) by the angles of slot s, or back.
  template <bool kBack>
  __device__ void rotate(int s, float (&x1)[kWidth], float (&x2)[kWidth]) const {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float cos = of[s][2 * i], sin = kBack ? -of[s][2 * i + 1] : of[s][2 * i + 1], first = x1[i];
      x1[i] = first * cos - x2[i] * sin;
      x2[i] = x2[i] * cos + first * sin;
    }
  }
};

/// Packs of both halves of the heads that a lane has at a time; 0 where the lane has no head.
template <class T, int kWidth>
struct HeadPacks {
  Pack<T, kWidth> at[kHeads][kSlots<kWidth>][2] = {};

  __device__ void get(int u, int s, float (&x1)[kWidth], float (&x2)[kWidth]) const {
    at[u][s][0].get(x1), at[u][s][1].get(x2);
  }
};

/// Sum over the lanes of a head.
__device__ float sum_of_head(float x, int lanes) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffU, x, mask);
  return x;
}

template <class T, int kWidth, bool kBackward>
__global__ void __launch_bounds__(32 * kRows) qk_norm_rotary_kernel(QkRows<T> f) {
  await_predecessor();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  if (row >= f.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % f.lanes, group = static_cast<int>(threadIdx.x) / f.lanes;
  const int groups = 32 / f.lanes;
  const float per_channel = 0.5F / static_cast<float>(f.half);
  const Angles<kWidth> angles(f, row, lane);

  for (int first = group; first - group < f.heads; first += kHeads * groups) {
    const auto head = [=](int u) { return first + u * groups; };
    const auto channel = [=](int s) { return (lane + s * f.lanes) * kWidth; };
    const auto inside = [=](int u, int s) { return head(u) < f.heads && channel(s) < f.half; };
    const auto offset = [=](int u, int s) { return row * f.cols + head(u) * 2 * f.half + channel(s); };

    HeadPacks<T, kWidth> x, y;
#pragma unroll
    for (int u = 0; u < kHeads; ++u) {
#pragma unroll
      for (int s = 0; s < kSlots<kWidth>; ++s) {
        if (!inside(u, s)) continue;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          x.at[u][s][k] = Pack<T, kWidth>::load(f.x + offset(u, s) + k * f.half);
          if (kBackward && f.rstd) y.at[u][s][k] = Pack<T, kWidth>::load(f.y + offset(u, s) + k * f.half);
        }
      }
    }

#pragma unroll
    for (int u = 0; u < kHeads; ++u) {
      float factor = 1.0F, mean = 0.0F;
      if (f.rstd) {
        float sum = 0.0F;  // sum of x^2, or in the backward pass of dy * y
#pragma unroll
        for (int s = 0; s < kSlots<kWidth>; ++s) {
          float x1[kWidth], x2[kWidth], y1[kWidth], y2[kWidth];
          x.get(u, s, x1, x2);
          (kBackward ? y : x).get(u, s, y1, y2);
#pragma unroll
          for (int i = 0; i < kWidth; ++i) sum += x1[i] * y1[i] + x2[i] * y2[i];
        }
        mean = sum_of_head(sum, f.lanes) * per_channel;
        float* const rstd = f.rstd + row * f.heads + head(u);
        if (!kBackward) {
          factor = 1.0F / sqrtf(mean + kRmsNormEps);
          if (lane == 0 && head(u) < f.heads) *rstd = factor;
        } else if (head(u) < f.heads) {
          factor = *rstd;
        }
      }
#pragma unroll
      for (int s = 0; s < kSlots<kWidth>; ++s) {
        if (!inside(u, s)) continue;
        float x1[kWidth], x2[kWidth];
        x.get(u, s, x1, x2);
        if (kBackward && f.rstd) {
          float y1[kWidth], y2[kWidth];
          y.get(u, s, y1, y2);
#pragma unroll
          for (int i = 0; i < kWidth; ++i) x1[i] -= y1[i] * mean, x2[i] -= y2[i] * mean;
        }
#pragma unroll
        for (int i = 0; i < kWidth; ++i) x1[i] *= factor, x2[i] *= factor;
        angles.template rotate<kBackward>(s, x1, x2);
        Pack<T, kWidth>::of(x1).store(f.x + offset(u, s));
        Pack<T, kWidth>::of(x2).store(f.x + offset(u, s) + f.half);
      }
    }
  }
}

template <bool kBackward>
void run_rows(Cuda& cuda, const char* op, const Tensor& x, const Tensor& y, const Tensor& rstd,
              const Tensor& table) {
  const int64_t NH = qk_heads(x, rstd, table), half = x.cols() / 3 / NH / 2;
  check(2 * half <= kMostHeadSize, op, ": heads of ", 2 * half, " channels, at most ", kMostHeadSize);
  if (x.numel() == 0) return;
  const float* angles = present(table) ? table.ptr<float>() : nullptr;
  const int64_t pack = kWideBytes / static_cast<int64_t>(size_of(x.dtype));
  const bool wide =
      cuda.options.wide_access && half % pack == 0 && wide_rows(x.cols(), {x, y}) && aligned(angles);
  with_pack(x.dtype, wide, [&]<class T>(T, auto width) {
    const auto packs = static_cast<unsigned>(ceil_div(half, width() * kSlots<width()>));
    const QkRows<T> f{.x = x.ptr<T>(),
                      .y = present(y) ? y.ptr<T>() : nullptr,
                      .rstd = present(rstd) ? rstd.ptr<float>() : nullptr,
                      .table = angles,
                      .rows = x.rows(),
                      .length = column_count(x.shape[1]),
                      .heads = column_count(2 * NH),
                      .half = static_cast<int>(half),
                      .cols = column_count(x.cols()),
                      .lanes = static_cast<int>(std::bit_ceil(packs))};
    launch(cuda.queue, qk_norm_rotary_kernel<T, width(), kBackward>, grid_size(ceil_div(f.rows, kRows)),
           dim3(32, kRows), 0, f);
  });
}

}  // namespace

void RotaryTable::run(Cuda& cuda) const {
  const int64_t n = table.numel() / 2;
  if (n == 0) return;
  launch(cuda.queue, rotary_table_kernel, grid_size(ceil_div(n, kThreads)), kThreads, 0,
         reinterpret_cast<float2*>(table.ptr<float>()), n, static_cast<int>(table.shape[1]), double{base});
}

void QkNormRotaryForward::run(Cuda& cuda) const {
  run_rows<false>(cuda, kName, qkv, {}, rstd, table);
}

void QkNormRotaryBackward::run(Cuda& cuda) const {
  run_rows<true>(cuda, kName, dqkv, qkv, rstd, table);
}

}  // namespace stepladder
