#include <cmath>
#include <limits>
#include <vector>

#include "model/cpu/cpu.h"
#include "model/cpu/gelu.h"

namespace stepladder {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The least power of two s with amax <= s * the type's largest number; 1 if amax is 0, NaN if it is not
/// finite.
float fitting_scale(float amax, DType type) {
  if (!std::isfinite(amax)) return kNan;
  if (amax == 0.0F) return 1.0F;
  int exponent = 0;
  const float mantissa = std::frexp(amax / largest_of(type), &exponent);  // in [0.5,1)
  return std::ldexp(1.0F, std::max(mantissa == 0.5F ? exponent - 1 : exponent, -126));
}

/// amax = max(amax, |x|), NaN if either is NaN.
void raise(float& amax, float x) {
  const float magnitude = std::fabs(x);
  if (!(magnitude <= amax)) amax = std::isnan(amax) ? amax : magnitude;
}

/// Calls body(c0, c1), which returns the largest magnitude in columns [c0, c1) of (N,C), few enough that both
/// layouts stay in cache. Returns the largest of all.
template <class Body>
float each_columns(const Cpu& cpu, int64_t N, int64_t C, const Body& body) {
  std::vector<float> amax(static_cast<size_t>(C / Cpu::kColumns + 1));
  cpu.pieces(C, Cpu::kColumns, N, [&](int64_t first, int64_t last) {
    amax[static_cast<size_t>(first / Cpu::kColumns)] = body(first, last);
  });
  float largest = 0.0F;
  for (const float of_columns : amax) raise(largest, of_columns);
  return largest;
}

/// q and qt, the FP8 copies of the matrix v(i), i in [0, N * C), and of its transpose.
template <class V>
void quantize_values(const Cpu& cpu, Tensor q, Tensor qt, int64_t N, int64_t C, const V& v) {
  const Tensor& either = present(q) ? q : qt;
  if (!either.scale || !either.amax) throw std::invalid_argument(cat("FP8 without its scale: ", either));
  const float scale = *either.scale;
  with_fp8_type(either.dtype, [&]<class Q>(Q) {
    Q* rows = present(q) ? q.ptr<Q>() : nullptr;
    Q* columns = present(qt) ? qt.ptr<Q>() : nullptr;
    const float largest = each_columns(cpu, N, C, [=](int64_t first, int64_t last) {
      float amax = 0.0F;
      for (int64_t n = 0; n < N; ++n) {
        for (int64_t c = first; c < last; ++c) {
          const float value = v(n * C + c);
          const Q rounded = from_float<Q>(value / scale);
          raise(amax, value);
          if (rows) rows[n * C + c] = rounded;
          if (columns) columns[c * N + n] = rounded;
        }
      }
      return amax;
    });
    raise(*either.amax, largest);
  });
}

}  // namespace

void Quantize::run(Cpu& cpu) const {
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    quantize_values(cpu, q, qt, rows_of(x), x.cols(), [=](int64_t i) { return fx[i]; });
  });
  if (present(dbias)) SumRows{dbias, x}.run(cpu);
}

void QuantizeToFit::run(Cpu& cpu) const {
  for (int64_t l = 0; l < x.shape[0]; ++l) {
    const auto matrix = [l](const Tensor& t) {
      Tensor of_l = t[l];
      of_l.scale = t.scale + l * kScaleStride;
      of_l.amax = t.amax + l;
      return of_l;
    };
    const Tensor x_l = x[l], q_l = matrix(q), qt_l = matrix(qt);
    const int64_t N = rows_of(x_l), C = x_l.cols();
    with_float_type(x.dtype, [&]<class T>(T) {
      *q_l.amax = each_columns(cpu, N, C, [=, fx = floats<T>(x_l)](int64_t first, int64_t last) {
        float amax = 0.0F;
        for (int64_t n = 0; n < N; ++n)
          for (int64_t c = first; c < last; ++c) raise(amax, fx[n * C + c]);
        return amax;
      });
    });
    *q_l.scale = fitting_scale(*q_l.amax, q.dtype);
    Quantize{q_l, qt_l, x_l}.run(cpu);
  }
}

void QuantizeGelu::run(Cpu& cpu) const {
  with_float_type(x.dtype, [&]<class T>(T) {
    const auto fx = floats<T>(x);
    quantize_values(cpu, q, qt, rows_of(x), x.cols(), [=](int64_t i) { return gelu(fx[i]); });
    if (present(slopes))
      cpu.each_element(floats<Float8E4M3>(slopes), x.numel(), [=](int64_t i) { return gelu_slope(fx[i]); });
  });
}

void QuantizeGeluBackward::run(Cpu& cpu) const {
  with_sum_type(dout, dbias, [&]<class T, class Sum>(T, Sum) {
    const auto quantize = [&](const auto& slope) {
      const int64_t N = rows_of(dout), C = dout.cols();
      const auto v = [=, fdout = floats<T>(dout)](int64_t i) { return fdout[i] * slope(i); };
      quantize_values(cpu, q, qt, N, C, v);
      cpu.add_sums(floats<Sum>(dbias), N, C, [=](int64_t n, int64_t c) { return v(n * C + c); });
    };
    if (is_fp8(x.dtype)) {
      quantize([slopes = floats<Float8E4M3>(x)](int64_t i) { return slopes[i]; });
    } else {
      quantize([fx = floats<T>(x)](int64_t i) { return gelu_slope(fx[i]); });
    }
  });
}

void LinearQuantizeGelu::run(Cpu& cpu) const {
  LinearForward{y, x, w, b}.run(cpu);
  QuantizeGelu{q, qt, y, slopes}.run(cpu);
}

void LinearQuantizeGeluBackward::run(Cpu& cpu) const {
  Matmul{dy, dout, wt, MatOp::NT}.run(cpu);
  QuantizeGeluBackward{q, qt, dbias, dy, y}.run(cpu);
}

void QuantizeLayerNorm::run(Cpu& cpu) const {
  // Compute in f32, so that the result is rounded once.
  std::vector<float> memory(static_cast<size_t>(2 * x.numel() + w.numel() + b.numel()));
  float* free = memory.data();
  const auto wide = [&](const Tensor& t) {
    const Tensor copied{free, DType::f32, t.shape, t.name};
    free += t.numel();
    Copy{copied, t}.run(cpu);
    return copied;
  };
  const Tensor wide_x = wide(x), wide_w = wide(w), wide_b = wide(b), out{free, DType::f32, x.shape, "out"};
  LayerNormForward{out, mean, rstd, wide_x, wide_w, wide_b}.run(cpu);
  Quantize{q, qt, out}.run(cpu);
}

void QuantizeLayerNormBackward::run(Cpu& cpu) const {
  norm().run(cpu);
  Quantize{quantized.q, quantized.qt, dx}.run(cpu);
}

void Transpose::run(Cpu& cpu) const {
  const int64_t N = rows_of(q), C = q.cols();
  const auto* from = static_cast<const uint8_t*>(q.data);
  auto* to = static_cast<uint8_t*>(qt.data);
  cpu.pieces(C, Cpu::kColumns, N, [=](int64_t first, int64_t last) {
    for (int64_t n = 0; n < N; ++n)
      for (int64_t c = first; c < last; ++c) to[c * N + n] = from[n * C + c];
  });
}

void QuantizeCrossEntropy::run(Cpu& cpu) const {
  // Compute some rows at a time in f32, so that the gradient is rounded once.
  constexpr int64_t kRows = 32;
  const int64_t N = targets.numel(), Vp = logits.cols();
  std::vector<float> rows(static_cast<size_t>(std::min(N, kRows) * Vp));
  for (int64_t first = 0; first < N; first += kRows) {
    const auto these = [first, last = std::min(N, first + kRows), N](const Tensor& t, int64_t cols) {
      return t.view({N, cols}).slices(first, last);
    };
    const Tensor q_rows = these(q, Vp), targets_of = these(targets, 1);
    const Tensor gradient{rows.data(), DType::f32, q_rows.shape, "gradient"};
    Copy{gradient, these(logits, Vp)}.run(cpu);
    CrossEntropyForwardBackward{these(losses, 1), gradient, targets_of, V, {scale}}.run(cpu);
    Quantize{q_rows, {}, gradient}.run(cpu);
  }
}

void UpdateScales::run(Cpu&) const {
  for (int64_t r = 0; r < amax.numel(); ++r) {
    float* values = history[r].ptr<float>();
    const int64_t W = history.cols();
    const float newest = amax.ptr<float>()[r];
    if (!(newest == 0.0F)) {
      std::copy_backward(values, values + W - 1, values + W);
      values[0] = newest;
    }
    float largest = 0.0F;
    for (int64_t w = 0; w < W; ++w) raise(largest, values[w]);
    scale.ptr<float>()[r * kScaleStride] = fitting_scale(largest, type);
  }
}

}  // namespace stepladder
