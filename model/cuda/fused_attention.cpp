// AttentionForward and AttentionBackward: the choice between cuDNN and our own kernels.
#include "model/cuda/fused_attention.h"

#include <algorithm>

#include "model/cuda/cuda.h"

namespace stepladder {
namespace {

/// The shape of a call, checked for what CUDA demands beyond the op's own contract.
AttentionShape shape_of(const char* op, const Tensor& out, const Tensor& lse, const Tensor& qkv,
                        int compute_capability) {
  const int64_t B = out.shape[0], T = out.shape[1], C = out.shape[2], NH = lse.shape[1];
  if (qkv.dtype == DType::f32)
    throw UnsupportedError(cat(op, " of f32 is the CPU's only: on CUDA it needs bf16 or fp16"));
  check(qkv.dtype == DType::f16 || compute_capability >= 80, op, ": ", qkv, ": bf16 needs sm_80");
  check(C > 0 && C / NH % 8 == 0 && C / NH <= 128, op, ": ", out, " in ", NH,
        " heads: their size must be a multiple of 8 up to 128");
  return {.B = B, .T = T, .NH = NH, .HS = C / NH, .dtype = qkv.dtype};
}

/// Checks that x is aligned to 16 bytes: cuDNN and our own kernels load 16 bytes at a time.
void check_aligned(const char* op, const Tensor& x) {
  check(reinterpret_cast<uintptr_t>(x.data) % 16 == 0, op, ": ", x, " is not aligned to 16 bytes");
}

}  // namespace

void Cuda::choose_attention() {
  attention_ = "native";
  if (options.attention == Attention::native || !options.libraries) return;
  try {
    if (compute_capability < 80)
      throw UnsupportedError(cat("cuDNN attention needs sm_80, this is sm_", compute_capability));
    cudnn = make_cudnn_attention(stream.get(), options.deterministic);
    attention_ = cudnn->name();
  } catch (const UnsupportedError& error) {
    if (options.attention == Attention::cudnn) throw;
    attention_ = cat("native (", error.what(), ')');
  }
}

bool Cuda::use_cudnn(const AttentionShape& shape, AttentionPass pass) {
  if (!cudnn) return false;
  const auto workspace = static_cast<int64_t>(attention_scratch.bytes());
  const std::string& why_not = cudnn->refusal(shape, pass, workspace);
  attention_ = why_not.empty() ? cudnn->name() : cat("native (", why_not, ')');
  if (!why_not.empty() && options.attention == Attention::cudnn) throw UnsupportedError(why_not);
  return why_not.empty();
}

int64_t Cuda::attention_scratch_bytes(const Config& config) const {
  const int64_t delta = config.B * config.NH * config.T * int64_t{sizeof(float)};
  if (!cudnn) return delta;
  return std::max(delta, CudnnAttention::workspace_bytes(config.B, config.T, config.NH, config.HS(),
                                                         options.deterministic));
}

void AttentionForward::run(Cuda& cuda) const {
  const AttentionShape shape = shape_of(kName, out, lse, qkv, cuda.compute_capability);
  for (const Tensor& x : {out, qkv}) check_aligned(kName, x);
  if (out.numel() == 0) return;
  if (cuda.use_cudnn(shape, AttentionPass::forward))
    cuda.cudnn->forward(shape, out, lse, qkv, cuda.attention_scratch);
  else
    flash_attention_forward(cuda.queue, shape, out, lse, qkv);
}

void AttentionBackward::run(Cuda& cuda) const {
  const AttentionShape shape = shape_of(kName, out, lse, qkv, cuda.compute_capability);
  for (const Tensor& x : {dqkv, dout, out, qkv}) check_aligned(kName, x);
  if (out.numel() == 0) return;
  if (cuda.use_cudnn(shape, AttentionPass::backward))
    cuda.cudnn->backward(shape, dqkv, dout, out, lse, qkv, cuda.attention_scratch);
  else
    flash_attention_backward(cuda.queue, shape, dqkv, dout, out, lse, qkv, cuda.attention_scratch);
}

}  // namespace stepladder
