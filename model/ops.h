// Ops: the device-neutral contract between a trainer variant and a backend.
//
// Every op reads and writes contiguous Tensors of the backend's device. `=` overwrites its output, `+=`
// accumulates into it. Ops are queued in order on one stream and may run after the call returns;
// synchronize() waits. Statistics, losses and optimizer state are f32. Every op throws std::invalid_argument
// on a shape or dtype mismatch, in Release too. N = B*T rows unless said otherwise. No backend header is
// needed to call any of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "model/arena.h"
#include "model/config.h"
#include "model/tensor.h"

namespace stepladder {

/// How matmul reads its operands: N as stored, T transposed.
enum class MatOp { NN, NT, TN };
/// Overwrite (=) or accumulate (+=).
enum class Write { set, add };
/// Precision of f32 matmul: full fp32, or inputs rounded to TF32's 10-bit mantissa with f32 accumulation.
enum class Precision { fp32, tf32 };

/// What the backend runs on. Empty strings and zeros where unknown.
struct DeviceInfo {
  std::string backend;  // "cpu" or "cuda"
  std::string name;     // "NVIDIA H200"
  std::string uuid;
  int compute_capability = 0;   // 90 for sm_90; 0 on the CPU
  int64_t total_memory = 0;     // bytes
  std::string driver, runtime;  // CUDA versions, "13.0"
  std::string blas;             // library and version
};

/// Device memory outside the arena, in bytes.
struct MemoryInfo {
  int64_t free = 0;           // what an arena could still take
  int64_t reserved_peak = 0;  // allocated by this backend from the driver or the OS
  int64_t process_peak = 0;   // whole process as the device (or the OS, for the CPU) sees it
};

class Ops {
 public:
  Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;
  virtual ~Ops() = default;

  // ---- device
  // -------------------------------------------------------------------------------------------------
  virtual DeviceInfo device() const = 0;
  virtual MemoryInfo memory() = 0;
  /// One block of device memory, 256-byte aligned, freed with its owner. Throws OutOfMemoryError.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;
  /// Takes the backend's own scratch (BLAS workspace, sort buffers, reductions) for this configuration from
  /// `arena`. Called once while a trainer is built, before any op.
  virtual void bind_workspace(Arena& arena, const Config& config) = 0;
  /// Waits for all queued work; throws what it raised.
  virtual void synchronize() = 0;
  /// Names the part of the step that follows, for profilers; closes the part before. nullptr only closes.
  virtual void phase(const char* name, int64_t layer = -1) = 0;
  /// Brackets work on the device's own clock; device_ms() synchronises and returns the time between the two.
  virtual void start_timer() = 0;
  virtual void stop_timer() = 0;
  virtual double device_ms() = 0;

  // ---- copies
  // ---------------------------------------------------------------------------------------------------
  /// dst = host memory of dst.bytes(); pageable, returns when the host memory may be reused.
  virtual void upload(Tensor dst, const void* host) = 0;
  /// Host memory = src; waits for queued work first.
  virtual void download(void* host, Tensor src) = 0;
  virtual void zero(Tensor x) = 0;

  // ---- elementwise: all operands of one shape, out may be an operand
  // ----------------------------------------------
  virtual void add(Tensor out, Tensor a, Tensor b) = 0;                     // out = a + b
  virtual void mul(Tensor out, Tensor a, Tensor b) = 0;                     // out = a * b
  virtual void affine(Tensor out, Tensor x, float scale, float shift) = 0;  // out = scale * x + shift
  virtual void pow(Tensor out, Tensor x, int exponent) = 0;             // out = x^exponent, exponent 2 or 3
  virtual void tanh(Tensor out, Tensor x) = 0;                          // out = tanh(x)
  virtual void sqrt(Tensor out, Tensor x) = 0;                          // out = sqrt(x)
  virtual void lerp(Tensor x, Tensor y, float weight) = 0;              // x += weight * (y - x)
  virtual void addcmul(Tensor x, Tensor a, Tensor b, float value) = 0;  // x += value * a * b
  virtual void addcdiv(Tensor x, Tensor a, Tensor b, float value) = 0;  // x += value * a / b
  virtual void scale_by(Tensor x, Tensor factor) = 0;                   // x *= factor, a (1) on the device

  // ---- rows and columns of x (N,C)
  // -------------------------------------------------------------------------------
  virtual void row_mean(Tensor mean, Tensor x) = 0;                          // mean (N) = sum_c x / C
  virtual void row_rstd(Tensor rstd, Tensor x, Tensor mean, float eps) = 0;  // rstd (N) = 1/sqrt(var + eps)
  virtual void normalize(Tensor out, Tensor x, Tensor mean,
                         Tensor rstd) = 0;  // out (N,C) = (x - mean) * rstd
  /// dx (N,C) += rstd * (dxhat - mean_c(dxhat) - xhat * mean_c(dxhat * xhat)), given both means as (N).
  virtual void normalize_backward(Tensor dx, Tensor dxhat, Tensor xhat, Tensor mean_dxhat,
                                  Tensor mean_dxhat_xhat, Tensor rstd) = 0;
  virtual void mul_columns(Tensor out, Tensor x, Tensor w) = 0;  // out = x * w, w (C); out may be x
  virtual void add_columns(Tensor out, Tensor x, Tensor b) = 0;  // out = x + b, b (C); out may be x
  virtual void sum_rows(Tensor out, Tensor x) = 0;               // out (C) += sum_n x

  // ---- embedding
  // -------------------------------------------------------------------------------------------------
  /// out (B,T,C) = wte[tokens], wte (V,C), tokens (B,T) i32 in [0,V).
  virtual void embedding_forward(Tensor out, Tensor tokens, Tensor wte) = 0;
  /// dwte (V,C) += dout summed over the rows of each token; the same bits every time.
  virtual void embedding_backward(Tensor dwte, Tensor tokens, Tensor dout) = 0;
  virtual void add_position(Tensor x, Tensor wpe) = 0;           // x (B,T,C) += wpe (max_T,C)[t]
  virtual void position_backward(Tensor dwpe, Tensor dout) = 0;  // dwpe[t] += sum_b dout

  // ---- matmul
  // ----------------------------------------------------------------------------------------------------
  /// Precision of every following f32 matmul. tf32 throws UnsupportedError below compute capability 8.0; the
  /// CPU backend emulates it by rounding.
  virtual void set_matmul_precision(Precision precision) = 0;
  /// out = or += op(a) op(b). NN: (M,K)(K,N); NT: (M,K)(N,K)^T; TN: (K,M)^T(K,N); out (M,N).
  /// When out or b has rank 2, leading dimensions of a (and of b for TN) are flattened into rows;
  /// otherwise all leading dimensions are a batch and must agree.
  virtual void matmul(Tensor out, Tensor a, Tensor b, MatOp op, Write write = Write::set) = 0;

  // ---- attention
  // -------------------------------------------------------------------------------------------------
  virtual void split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv) = 0;  // 3 x (B,NH,T,HS) = (B,T,3C)
  virtual void merge_qkv(Tensor qkv, Tensor q, Tensor k, Tensor v) = 0;  // the inverse
  virtual void split_heads(Tensor out, Tensor x) = 0;                    // (B,NH,T,HS) = (B,T,C)
  virtual void merge_heads(Tensor out, Tensor x) = 0;                    // (B,T,C) = (B,NH,T,HS)
  virtual void causal_mask(Tensor mask) = 0;                             // (T,T) = 0 where s <= t, else -inf
  virtual void add_mask(Tensor att, Tensor mask) = 0;                    // att (B,NH,T,T) += mask (T,T)
  /// p = softmax over the last dimension; p may be x.
  virtual void softmax_forward(Tensor p, Tensor x) = 0;
  /// dx = p * (dp - sum_s(dp * p)); dx may be dp.
  virtual void softmax_backward(Tensor dx, Tensor dp, Tensor p) = 0;
  /// The same over s <= t only, x (...,T,T); p = 0 elsewhere. Reads nothing above the diagonal.
  virtual void causal_softmax_forward(Tensor p, Tensor x) = 0;
  virtual void causal_softmax_backward(Tensor dx, Tensor dp, Tensor p) = 0;

  // ---- classifier: logits (B,T,V), targets (B,T) i32
  // -----------------------------------------------------------
  virtual void log_softmax_forward(Tensor logp, Tensor logits) = 0;  // logp = logits - logsumexp
  /// dlogits = dlogp - exp(logp) * sum_v(dlogp); dlogits may be dlogp.
  virtual void log_softmax_backward(Tensor dlogits, Tensor dlogp, Tensor logp) = 0;
  virtual void nll_loss_forward(Tensor losses, Tensor logp,
                                Tensor targets) = 0;  // losses (B,T) = -logp[target]
  virtual void nll_loss_backward(Tensor dlogp, Tensor targets,
                                 float scale) = 0;  // dlogp = -scale at target, else 0
  virtual void add_mean(Tensor out, Tensor x) = 0;  // out (1) += mean(x)

  // ---- gradient clipping
  // ---------------------------------------------------------------------------------------
  virtual void sum_of_squares(Tensor out, Tensor x) = 0;  // out (1) = sum x^2
  /// norm (1) = sqrt(sum of parts), factor (1) = min(1, max_norm / (norm + 1e-6)); as
  /// torch.nn.utils.clip_grad_norm_.
  virtual void clip_factor(Tensor factor, Tensor norm, Tensor parts, float max_norm) = 0;
};

/// The reference backend: every machine, statistics in double, matmul through CBLAS.
std::unique_ptr<Ops> make_cpu_ops();
/// The CUDA backend on device `index`. Throws UnsupportedError without a usable device or in a build without
/// CUDA.
std::unique_ptr<Ops> make_cuda_ops(int index = 0);
/// "cpu", "cuda" on device `device`, or "auto": cuda where there is a device. Throws InputError for another
/// name.
std::unique_ptr<Ops> make_ops(const std::string& backend, int device = 0);

}  // namespace stepladder
