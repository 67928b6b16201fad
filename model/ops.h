// Ops: the device-neutral contract between a trainer variant and a backend.
//
// Every op reads and writes contiguous Tensors of the backend's device. `=` overwrites its output, `+=`
// accumulates into it. Ops are queued in order on one stream and may run after the call returns;
// synchronize() waits. Statistics, losses and optimizer state are f32. Every op throws std::invalid_argument
// on a shape or dtype mismatch, in Release too. N = B*T rows unless said otherwise. No backend header is
// needed to call any of this.
//
// "float" operands are f32, bf16 or f16, all of one type within a call; arithmetic is f32 and each result is
// rounded once, when it is stored. Operands marked f32 are f32 whatever the others are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "model/arena.h"
#include "model/comm.h"
#include "model/config.h"
#include "model/tensor.h"

namespace stepladder {

/// How matmul reads its operands: N as stored, T transposed.
enum class MatOp { NN, NT, TN };
/// Overwrite (=) or accumulate (+=).
enum class Write { set, add };
/// Precision of f32 matmul: full fp32, or inputs rounded to TF32's 10-bit mantissa with f32 accumulation.
enum class Precision { fp32, tf32 };
/// Who computes attention_forward and attention_backward: cuDNN where it can, else the kernels of this
/// project.
enum class Attention { automatic, cudnn, native };

/// How a backend runs the ops; nothing here changes what they compute beyond rounding.
struct OpsOptions {
  Attention attention = Attention::automatic;
  bool deterministic = false;  // the same bits every time, also where that is slower
  bool wide_access = true;     // 128-bit loads and stores in the fused kernels
  bool early_launch = true;    // recorded kernels come onto the device while the one before ends: sm_90
  /// Features of newer devices are left unused: 75 runs what a T4 would. 0: the device's own.
  int compute_capability = 0;
  std::string cache_dir = {};  // of matmul algorithms found by search(); "" keeps none
};

/// What one step of AdamW needs to know besides its tensors.
struct AdamW {
  float beta1, beta2, eps, weight_decay;
};
/// One tensor of a multi-tensor AdamW step. `w`, `m` and `v` are f32; `g` is float; `low`, where there is
/// one, gets a copy of the new weights in g's type.
struct AdamWTensor {
  Tensor w, g, m, v, low;
  bool decay = false;
};

/// What search() and record() have cost so far.
struct CompileInfo {
  double search_ms = 0.0, capture_ms = 0.0;
  int searched = 0, from_cache = 0;  // matmul shapes
  int launched_early = 0;            // recorded kernels that come onto the device while the one before ends
};

/// What the backend runs on. Empty strings and zeros where unknown.
struct DeviceInfo {
  std::string backend;  // "cpu" or "cuda"
  std::string name;     // "NVIDIA H200"
  std::string uuid;
  int compute_capability = 0;   // 90 for sm_90; 0 on the CPU
  int64_t total_memory = 0;     // bytes
  std::string driver, runtime;  // CUDA versions, "13.0"
  std::string blas;             // library and version
  std::string attention;        // what attention_forward runs on: "cuDNN 9.19.0", "native", "cpu"
  bool bf16 = false;            // bf16 matmul: sm_80 and the CPU
};

/// Device memory outside the arena, in bytes.
struct MemoryInfo {
  int64_t free = 0;           // what an arena could still take
  int64_t reserved_peak = 0;  // allocated by this backend from the driver or the OS
  int64_t process_peak = 0;   // whole process as the device (or the OS, for the CPU) sees it
};

class Rendezvous;
class Tracer;

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
  /// A clock for single ops, for TracedOps: one at a time.
  virtual std::unique_ptr<Tracer> make_tracer() = 0;

  // ---- compiling
  // ------------------------------------------------------------------------------------------------
  /// Runs `work` with a search of the fastest algorithm for each matmul in it, timed on the operands as they
  /// are; results and accumulators of `work` are left undefined. What cache_dir has is not measured again.
  /// Does nothing on a backend without choice.
  virtual void search(const std::function<void()>& work) = 0;
  /// Records the ops of `work` without running them (CUDA: as one graph); each call of the result runs them
  /// with one launch. `work` must not wait for the device.
  virtual std::function<void()> record(const std::function<void()>& work) = 0;
  virtual CompileInfo compile_info() const = 0;

  // ---- several devices
  // ------------------------------------------------------------------------------------------------
  /// Makes this backend a rank of the job that meets there: called once, by all ranks, before any op. `ranks`
  /// outlives it. Throws Error naming what to install where the library that ranks talk through is missing.
  virtual void join(Rendezvous& ranks) = 0;
  /// This rank and how many there are; 0 and 1 without join().
  virtual int rank() const = 0;
  virtual int world() const = 0;
  /// What all ranks do together with the tensors of `bucket`, in place; all ranks must call it with the same.
  /// Sums are rounded to the tensors' type once on the CPU, after each addition on CUDA. Queued beside the
  /// ops, after those queued so far; the ops that follow must leave the bucket alone until
  /// wait_for_collectives(). Nothing in a world of 1. Throws std::invalid_argument where a part is no equal
  /// one.
  virtual void collective(Collective what, std::span<const Tensor> bucket) = 0;
  /// The ops that follow wait for the collectives queued so far, but for the last `but` of them.
  virtual void wait_for_collectives(int64_t but = 0) = 0;

  // ---- copies
  // ---------------------------------------------------------------------------------------------------
  /// dst = host memory of dst.bytes(); pageable, returns when the host memory may be reused.
  virtual void upload(Tensor dst, const void* host) = 0;
  /// Host memory = src; waits for queued work first.
  virtual void download(void* host, Tensor src) = 0;
  virtual void zero(Tensor x) = 0;
  /// dst = src, each any float type: converts.
  virtual void copy(Tensor dst, Tensor src) = 0;
  /// dst (n f32, n <= 8) = values, which travel with the launch: the host does not wait.
  virtual void write(Tensor dst, std::initializer_list<float> values) = 0;
  /// Page-locked host memory, freed with its owner.
  virtual std::shared_ptr<void> allocate_host(size_t bytes) = 0;
  /// staged = page-locked memory, on a queue of its own beside the ops, once the last receive() is done.
  /// Waits until the stage() before it is done with its host memory.
  virtual void stage(Tensor staged, const void* pinned) = 0;
  /// dst = staged, in order with the ops, once the last stage() is done.
  virtual void receive(Tensor dst, Tensor staged) = 0;

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

  // ---- rows and columns of x (N,C); per-row statistics are f32
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
  /// Precision of every following f32 matmul. Below compute capability 8.0 there is no TF32: fp32 is used.
  /// The CPU backend emulates it by rounding.
  virtual void set_matmul_precision(Precision precision) = 0;
  /// out = or += op(a) op(b). NN: (M,K)(K,N); NT: (M,K)(N,K)^T; TN: (K,M)^T(K,N); out (M,N).
  /// When out or b has rank 2, leading dimensions of a (and of b for TN) are flattened into rows;
  /// otherwise all leading dimensions are a batch and must agree. 16-bit operands are multiplied exactly and
  /// accumulated in f32; += may round the product to out's type before it is added, as cuBLAS does. Where b
  /// (for TN: out) has rank 2, rows of out (NT) or a (NN, TN) may be longer than the product is: what is
  /// beyond is padding, neither read nor written.
  /// FP8 operands, at least one of them f8e4m3, stand for element * *scale and give a 16-bit out; NT of
  /// rank-2 b only, rows of a may be padded. On CUDA they need sm_89, scales on 16 bytes, and M, N and K that
  /// are multiples of 16.
  virtual void matmul(Tensor out, Tensor a, Tensor b, MatOp op, Write write = Write::set) = 0;

  // ---- linear layers with what surrounds them in one matmul; x (N,Cin), w (Cout,Cin), b (Cout)
  // ---------------------------------------------------------------------------------------------------
  /// out (N,Cout) = residual (N,Cout; empty: none) + x w^T + b; x and w may be FP8 as matmul's are, residual
  /// may be out.
  virtual void linear_forward(Tensor out, Tensor x, Tensor w, Tensor b, Tensor residual = {}) = 0;
  /// pre (N,Cout) = x w^T + b, out = gelu(pre), tanh form.
  virtual void linear_gelu_forward(Tensor out, Tensor pre, Tensor x, Tensor w, Tensor b) = 0;
  /// dpre (N,Cin) = gelu'(pre) * (dout w), dout (N,Cout), and db (Cin) = or += sum_n dpre.
  virtual void linear_gelu_backward(Tensor dpre, Tensor db, Tensor dout, Tensor w, Tensor pre,
                                    Write write) = 0;
  /// dw (Cout,Cin) = or += dout^T x, db (Cout) = or += sum_n dout.
  virtual void linear_weight_backward(Tensor dw, Tensor db, Tensor dout, Tensor x, Write write) = 0;

  // ---- FP8 (Micikevicius et al. 2022) with a scale for each tensor
  // q (N,C) and its transpose qt (C,N) are FP8 of one type, scale and amax; either may be empty. Both become
  // v / *scale to nearest even, saturating; what is not finite becomes NaN. *amax = max(*amax, |v|), NaN
  // where a v is NaN. N and C multiples of 16 on CUDA.
  // ---------------------------------------------------------------------------------------------------
  /// q, qt of v = x (N,C); dbias (C; empty: none) += sum_n x.
  virtual void quantize(Tensor q, Tensor qt, Tensor x, Tensor dbias = {}) = 0;
  /// q (L,N,C), qt (L,C,N) of v = x (L,N,C), each of the L matrices with one of the scales (L,kScaleStride)
  /// and of amax (L), which are set first: *amax = max |x|, *scale as update_scales has it for that alone.
  virtual void quantize_to_fit(Tensor q, Tensor qt, Tensor x) = 0;
  /// q, qt of v = gelu(x), tanh form.
  virtual void quantize_gelu(Tensor q, Tensor qt, Tensor x) = 0;
  /// q, qt of v = dout * gelu'(x); dbias (C) += sum_n v.
  virtual void quantize_gelu_backward(Tensor q, Tensor qt, Tensor dbias, Tensor dout, Tensor x) = 0;
  /// losses of cross_entropy_forward, and q (B,T,Vp) of its gradient v, that of
  /// cross_entropy_forward_backward. Leaves logits alone. On CUDA Vp is a multiple of 16.
  virtual void quantize_cross_entropy(Tensor q, Tensor losses, Tensor logits, Tensor targets, int64_t V,
                                      float scale) = 0;
  /// q, qt of v = layernorm_forward of x (N,C), unrounded, and its mean and rstd (N). On CUDA, 32 rows of FP8
  /// have to fit into shared memory.
  virtual void quantize_layernorm(Tensor q, Tensor qt, Tensor mean, Tensor rstd, Tensor x, Tensor w,
                                  Tensor b) = 0;
  /// layernorm_backward, and q, qt of v = the new dx as stored.
  virtual void quantize_layernorm_backward(Tensor q, Tensor qt, Tensor dx, Tensor dw, Tensor db, Tensor dbias,
                                           Tensor dout, Tensor x, Tensor mean, Tensor rstd, Tensor w) = 0;
  /// qt (C,N) = q (N,C) transposed, both FP8.
  virtual void transpose(Tensor qt, Tensor q) = 0;
  /// Delayed scaling: where amax > 0 or NaN, it enters history (R,W) in front and the oldest value leaves;
  /// scale = the least power of two with max(history) <= scale * the largest number of `type`, 1 where all of
  /// history is 0, NaN where one value is not finite. scale (R,kScaleStride), of which the first of a row is
  /// set, and amax (R), all f32. A power of two loses no digits, neither in FP8 nor when it is taken back.
  virtual void update_scales(Tensor scale, Tensor history, Tensor amax, DType type) = 0;

  // ---- fused normalisation and activation
  // ---------------------------------------------------------------------------------------------------
  /// out (B,T,C) = wte[tokens] + wpe[t].
  virtual void encoder_forward(Tensor out, Tensor tokens, Tensor wte, Tensor wpe) = 0;
  /// out (N,C) = (x - mean) * rstd * w + b, mean and rstd (N) f32, rstd = 1/sqrt(var + 1e-5) (Ba et al.
  /// 2016).
  virtual void layernorm_forward(Tensor out, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b) = 0;
  /// res = x + y + bias (C; empty: none), then layernorm_forward of res as stored. res may be x.
  virtual void residual_layernorm_forward(Tensor res, Tensor out, Tensor mean, Tensor rstd, Tensor x,
                                          Tensor y, Tensor bias, Tensor w, Tensor b) = 0;
  /// dx += rstd * (dxhat - mean_c(dxhat) - xhat * mean_c(dxhat * xhat)), dxhat = dout * w;
  /// dw += sum_n dout * xhat, db += sum_n dout; dbias (C; empty: none) += sum_n of the new dx as stored: the
  /// bias gradient of the projection whose output was added to x.
  virtual void layernorm_backward(Tensor dx, Tensor dw, Tensor db, Tensor dbias, Tensor dout, Tensor x,
                                  Tensor mean, Tensor rstd, Tensor w) = 0;
  /// x += bias (C), out = gelu(x as stored), tanh form (Hendrycks and Gimpel 2016).
  virtual void bias_gelu_forward(Tensor out, Tensor x, Tensor bias) = 0;
  /// out = gelu(x).
  virtual void gelu_forward(Tensor out, Tensor x) = 0;
  /// dx = dout * gelu'(x); dx may be dout.
  virtual void gelu_backward(Tensor dx, Tensor dout, Tensor x) = 0;

  // ---- attention
  // -------------------------------------------------------------------------------------------------
  virtual void split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv) = 0;  // 3 x (B,NH,T,HS) = (B,T,3C)
  virtual void merge_qkv(Tensor qkv, Tensor q, Tensor k, Tensor v) = 0;  // the inverse
  /// split_qkv of qkv + bias (3C).
  virtual void bias_split_qkv(Tensor q, Tensor k, Tensor v, Tensor qkv, Tensor bias) = 0;
  virtual void split_heads(Tensor out, Tensor x) = 0;  // (B,NH,T,HS) = (B,T,C)
  virtual void merge_heads(Tensor out, Tensor x) = 0;  // (B,T,C) = (B,NH,T,HS)
  virtual void causal_mask(Tensor mask) = 0;           // (T,T) = 0 where s <= t, else -inf
  virtual void add_mask(Tensor att, Tensor mask) = 0;  // att (B,NH,T,T) += mask (T,T)
  /// p = softmax over the last dimension; p may be x.
  virtual void softmax_forward(Tensor p, Tensor x) = 0;
  /// dx = p * (dp - sum_s(dp * p)); dx may be dp.
  virtual void softmax_backward(Tensor dx, Tensor dp, Tensor p) = 0;
  /// The same over s <= t only, x (...,T,T); p = 0 elsewhere. Reads nothing above the diagonal.
  virtual void causal_softmax_forward(Tensor p, Tensor x) = 0;
  virtual void causal_softmax_backward(Tensor dx, Tensor dp, Tensor p) = 0;
  /// causal_softmax_forward of scale * x, and dx = scale * causal_softmax_backward.
  virtual void scaled_causal_softmax_forward(Tensor p, Tensor x, float scale) = 0;
  virtual void scaled_causal_softmax_backward(Tensor dx, Tensor dp, Tensor p, float scale) = 0;
  /// out (B,T,C) = softmax(q k^T / sqrt(HS)) v over s <= t, in NH heads, without the (T,T) matrix (Dao et al.
  /// 2022); qkv (B,T,3C), lse (B,NH,T) f32 = log sum_s exp(q k^T / sqrt(HS)). Throws UnsupportedError for f32
  /// on CUDA.
  virtual void attention_forward(Tensor out, Tensor lse, Tensor qkv) = 0;
  /// dqkv (B,T,3C) of attention_forward.
  virtual void attention_backward(Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv) = 0;

  // ---- classifier: logits (B,T,V), targets (B,T) i32; losses (B,T), logp and dlogp (B,T,V) are f32
  // -----------------------------------------------------------
  /// logp = logits - logsumexp(logits). Rows of logits may be longer than logp's: what is beyond is padding,
  /// not read.
  virtual void log_softmax_forward(Tensor logp, Tensor logits) = 0;
  /// dlogits = dlogp - exp(logp) * sum_v(dlogp); dlogits may be dlogp. Rows of both may be longer than
  /// logp's: what is beyond is padding, neither read nor written.
  virtual void log_softmax_backward(Tensor dlogits, Tensor dlogp, Tensor logp) = 0;
  virtual void nll_loss_forward(Tensor losses, Tensor logp,
                                Tensor targets) = 0;  // losses (B,T) = -logp[target]
  /// dlogp = -scale at target, else 0; times loss_scaler[0] where there is one.
  virtual void nll_loss_backward(Tensor dlogp, Tensor targets, float scale, Tensor loss_scaler = {}) = 0;
  virtual void add_mean(Tensor out, Tensor x) = 0;  // out (1) += mean(x), f32
  /// losses = logsumexp(logits) - logits[target] over the first V columns of logits (B,T,Vp).
  virtual void cross_entropy_forward(Tensor losses, Tensor logits, Tensor targets, int64_t V) = 0;
  /// The same, and in place logits = scale * (softmax(logits) - onehot(target)), times loss_scaler[0] where
  /// there is one; columns from V on get 0. Normalised logits and probabilities are never stored.
  virtual void cross_entropy_forward_backward(Tensor losses, Tensor logits, Tensor targets, int64_t V,
                                              float scale, Tensor loss_scaler = {}) = 0;

  // ---- gradient clipping
  // ---------------------------------------------------------------------------------------
  virtual void sum_of_squares(Tensor out, Tensor x) = 0;  // out (1) = sum x^2
  /// norm (1) = sqrt(sum of parts), factor (1) = min(1, max_norm / (norm + 1e-6)); as
  /// torch.nn.utils.clip_grad_norm_.
  virtual void clip_factor(Tensor factor, Tensor norm, Tensor parts, float max_norm) = 0;
  /// clip_factor of all `grads` (float) together, one pass over all of them.
  ///
  /// loss_scaler, where there is one, is (4) f32 {scale, good steps, skipped steps, overflow}: dynamic loss
  /// scaling (Micikevicius et al. 2018) that never leaves the device. The norm is then that of grads / scale,
  /// the factor includes 1 / scale. A norm that is not finite sets overflow = 1, halves the scale and counts
  /// a skipped step; otherwise overflow = 0, and the scale doubles after every 2000 good steps, up to 2^24.
  virtual void clip_grad_norm(Tensor factor, Tensor norm, std::span<const Tensor> grads, float max_norm,
                              Tensor loss_scaler = {}) = 0;

  // ---- optimizer
  // ---------------------------------------------------------------------------------------
  /// One step of AdamW (Loshchilov and Hutter 2019) over all tensors together, g read as clip * g:
  /// m = lerp(g, m, beta1), v = lerp(g^2, v, beta2), w -= lr * (mhat / (sqrt(vhat) + eps) + decay * w).
  /// schedule (2) f32 = {lr, t}, t from 1. With a loss_scaler a step that overflowed changes nothing, and t
  /// counts without the skipped ones.
  virtual void adamw(std::span<const AdamWTensor> tensors, Tensor schedule, Tensor clip, const AdamW& hyper,
                     Tensor loss_scaler = {}) = 0;
};

/// The reference backend: every machine, statistics in double, matmul through CBLAS.
std::unique_ptr<Ops> make_cpu_ops();
/// The CUDA backend on device `index`. Throws UnsupportedError without a usable device or in a build without
/// CUDA.
std::unique_ptr<Ops> make_cuda_ops(int index = 0, const OpsOptions& options = {});
/// "cpu", "cuda" on device `device`, or "auto": cuda where there is a device. Throws InputError for another
/// name.
std::unique_ptr<Ops> make_ops(const std::string& backend, int device = 0, const OpsOptions& options = {});

}  // namespace stepladder
