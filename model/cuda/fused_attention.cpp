// attention_forward and attention_backward: the choice between cuDNN and our own kernels.
#include "model/cuda/fused_attention.h"

#include <algorithm>

#include "model/cuda/cuda_ops.h"
#include "model/cuda/range.h"

namespace stepladder {
namespace {

AttentionShape shape_of(const char* op, const Tensor& out, const Tensor& lse, const Tensor& qkv,
                        int compute_capability) {
  check(out.shape.rank() == 3 && lse.shape.rank() == 3, op, ": ", out, ", must be (B,T,C), and ", lse,
        ", must be (B,NH,T)");
  const int64_t B = out.shape[0], T = out.shape[1], C = out.shape[2], NH = lse.shape[1];
  check(lse.shape == Shape{B, NH, T} && lse.dtype == DType::f32, op, ": ", lse, " beside ", out);
  check(qkv.shape == Shape{B, T, 3 * C}, op, ": ", qkv, " beside ", out);
  if (qkv.dtype == DType::f32)
    throw UnsupportedError(cat(op, " of f32 is the CPU's only: on CUDA it needs bf16 or fp16"));
  check(qkv.dtype != DType::i32, op, ": ", qkv, ", must be floating");
  check(qkv.dtype == DType::f16 || compute_capability >= 80, op, ": ", qkv, ": bf16 needs sm_80");
  check(out.dtype == qkv.dtype, op, ": ", out, " beside ", qkv);
  check(NH > 0 && C > 0 && C % NH == 0 && C / NH % 8 == 0 && C / NH <= 128, op, ": ", out, " in ", NH,
        " heads: their size must be a multiple of 8 up to 128");
  return {.B = B, .T = T, .NH = NH, .HS = C / NH, .dtype = qkv.dtype};
}

/// Both implementations load 16 bytes at a time.
void check_aligned(const char* op, const Tensor& x) {
  check(reinterpret_cast<uintptr_t>(x.data) % 16 == 0, op, ": ", x, " is not aligned to 16 bytes");
}

}  // namespace

void CudaOps::choose_attention() {
  attention_ = "native";
  if (options_.attention == Attention::native) return;
  try {
    if (compute_capability_ < 80)
      throw UnsupportedError(cat("cuDNN attention needs sm_80, this is sm_", compute_capability_));
    cudnn_ = std::make_unique<CudnnAttention>(stream_.get(), options_.deterministic);
    attention_ = cudnn_->name();
  } catch (const UnsupportedError& error) {
    if (options_.attention == Attention::cudnn) throw;
    attention_ = cat("native (", error.what(), ')');
  }
}

bool CudaOps::use_cudnn(const AttentionShape& shape, AttentionPass pass) {
  if (!cudnn_) return false;
  const auto workspace = static_cast<int64_t>(attention_scratch_.bytes());
  const std::string& why_not = cudnn_->refusal(shape, pass, workspace);
  attention_ = why_not.empty() ? cudnn_->name() : cat("native (", why_not, ')');
  if (!why_not.empty() && options_.attention == Attention::cudnn) throw UnsupportedError(why_not);
  return why_not.empty();
}

int64_t CudaOps::attention_scratch_bytes(const Config& config) const {
  const int64_t delta = config.B * config.NH * config.T * int64_t{sizeof(float)};
  if (!cudnn_) return delta;
  return std::max(delta, CudnnAttention::workspace_bytes(config.B, config.T, config.NH, config.HS(),
                                                         options_.deterministic));
}

void CudaOps::attention_forward(Tensor out, Tensor lse, Tensor qkv) {
  const Range range("attention_forward");
  const AttentionShape shape = shape_of("attention_forward", out, lse, qkv, compute_capability_);
  for (const Tensor& x : {out, qkv}) check_aligned("attention_forward", x);
  if (out.numel() == 0) return;
  if (use_cudnn(shape, AttentionPass::forward))
    cudnn_->forward(shape, out, lse, qkv, attention_scratch_);
  else
    flash_attention_forward(queue_, shape, out, lse, qkv);
}

void CudaOps::attention_backward(Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv) {
  const Range range("attention_backward");
  const AttentionShape shape = shape_of("attention_backward", out, lse, qkv, compute_capability_);
  check(dqkv.shape == qkv.shape && dqkv.dtype == qkv.dtype, "attention_backward: ", dqkv, " beside ", qkv);
  check(dout.shape == out.shape && dout.dtype == out.dtype, "attention_backward: ", dout, " beside ", out);
  for (const Tensor& x : {dqkv, dout, out, qkv}) check_aligned("attention_backward", x);
  if (out.numel() == 0) return;
  if (use_cudnn(shape, AttentionPass::backward))
    cudnn_->backward(shape, dqkv, dout, out, lse, qkv, attention_scratch_);
  else
    flash_attention_backward(queue_, shape, dqkv, dout, out, lse, qkv, attention_scratch_);
}

}  // namespace stepladder
