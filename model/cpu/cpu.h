// The CPU reference backend, against which every other backend is tested.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <tuple>

#include "model/cpu/floats.h"
#include "model/cpu/parallel.h"
#include "model/ops.h"

namespace stepladder {

/// Throws std::logic_error unless bind_workspace() has provided `n` elements of `workspace`.
inline void expect_workspace(const char* op, const Tensor& workspace, int64_t n) {
  if (workspace.data == nullptr || workspace.numel() < n)
    throw std::logic_error(
        cat(op, " needs a workspace of ", n, " elements: call bind_workspace() for this size"));
}

/// Memory, clock and scratch of the CPU, and the loops that its ops are written with. Every op is run before
/// its call returns, on up to `threads` threads. Work is cut into pieces by shape alone and no sum crosses
/// a piece that another thread may own, so the bits do not depend on `threads`. Statistics are summed in
/// double.
class Cpu final : public Device {
 public:
  static constexpr int64_t kScratch = 1 << 18;  // elements of each thread's scratch
  static constexpr int64_t kSerial = 1 << 16;   // elements not worth waking a second thread for
  static constexpr int64_t kPiece = 1 << 14;    // elements handed to a thread at a time
  static constexpr int64_t kColumns = 64;       // columns that a thread sums on its stack

  explicit Cpu(int threads_to_use);

  void run(const AnyOp& op) override { op.run(*this); }
  DeviceInfo info() const override;
  MemoryInfo memory() override;
  std::shared_ptr<void> allocate(size_t bytes) override;
  std::shared_ptr<void> allocate_host(size_t bytes) override { return allocate(bytes); }
  void bind_workspace(Arena& arena, const Config& config) override;
  void set_matmul_precision(Precision precision) override { precision_ = precision; }
  void synchronize() override {}
  void phase(const char*, int64_t) override {}
  void start_timer() override { start_ = std::chrono::steady_clock::now(); }
  void stop_timer() override { stop_ = std::chrono::steady_clock::now(); }
  Elapsed elapsed() override {
    return {std::chrono::duration<double, std::milli>(stop_ - start_).count(), {}};
  }
  std::unique_ptr<Tracer> make_tracer() override;

  /// Calls body(first, last) over [0,n) in pieces of `piece` items; an item has `work` elements to go
  /// through.
  template <class Body>
  void pieces(int64_t n, int64_t piece, int64_t work, const Body& body) const {
    parallel_for(n * work > kSerial ? threads : 1, (n + piece - 1) / piece,
                 [&](int64_t i) { body(i * piece, std::min(n, (i + 1) * piece)); });
  }
  /// Calls body(row) for each row in [0,rows), of about `cols` elements.
  template <class Body>
  void each_row(int64_t rows, int64_t cols, const Body& body) const {
    const int64_t work = std::max<int64_t>(1, cols);
    pieces(rows, std::max<int64_t>(1, kPiece / work), work, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) body(row);
    });
  }
  /// out[i] = f(i) over [0,n).
  template <class T, class F>
  void each_element(Floats<T> out, int64_t n, const F& f) const {
    pieces(n, kPiece, 1, [=](int64_t first, int64_t last) {
      STEPLADDER_SIMD
      for (int64_t i = first; i < last; ++i) out.set(i, f(i));
    });
  }
  /// out[i] = f(operand 0[i], operand 1[i], ...), all of one float type; out may be an operand.
  template <size_t kOperands, class F>
  void map(const Tensor& out, const Tensor (&operands)[kOperands], const F& f) const {
    with_float_type(out.dtype, [&]<class T>(T) {
      each_element(floats<T>(out), out.numel(), [=, x = floats<T>(operands)](int64_t i) {
        return std::apply([&](auto... of) { return f(of[i]...); }, x);
      });
    });
  }
  /// out (N,C)[n][c] = f(column[c], operand 0[n][c], operand 1[n][c], ...)
  template <size_t kOperands, class F>
  void map_columns(const Tensor& out, const Tensor& column, const Tensor (&operands)[kOperands],
                   const F& f) const {
    const int64_t C = out.cols();
    with_float_type(out.dtype, [&]<class T>(T) {
      each_row(rows_of(out), C,
               [=, to = floats<T>(out), of_column = floats<T>(column), x = floats<T>(operands)](int64_t n) {
                 const auto row = to + n * C, columns = of_column;
                 std::apply(
                     [=](auto... of) {
                       STEPLADDER_SIMD
                       for (int64_t c = 0; c < C; ++c) row.set(c, f(columns[c], of[n * C + c]...));
                     },
                     x);
               });
    });
  }
  /// out (C) += sum of f(n, c) over [0,N), in double.
  template <class T, class F>
  void add_sums(Floats<T> out, int64_t N, int64_t C, const F& f) const {
    pieces(C, kColumns, N, [=](int64_t first, int64_t last) {
      double sums[kColumns] = {};
      for (int64_t n = 0; n < N; ++n)
        for (int64_t c = first; c < last; ++c) sums[c - first] += f(n, c);
      for (int64_t c = first; c < last; ++c) out.set(c, static_cast<float>(out[c] + sums[c - first]));
    });
  }
  /// Sum of x^2, in double.
  double squares(Tensor x) const;
  /// Scratch of kScratch elements for each thread, of which `op` needs `n`. Throws std::logic_error before
  /// bind_workspace().
  float* scratch(const char* op, int64_t n = 0) const;
  bool tf32() const { return precision_ == Precision::tf32; }

  const int threads;
  Tensor order;  // (B*T) scratch: rows sorted by token

 private:
  HeldBytes allocated_;
  Precision precision_ = Precision::fp32;
  Tensor scratch_;  // (threads, kScratch)
  std::chrono::steady_clock::time_point start_, stop_;
};

}  // namespace stepladder
