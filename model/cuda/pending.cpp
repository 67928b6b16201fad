// Ops that this backend does not provide yet.
#include "model/cuda/cuda_ops.h"

namespace stepladder {
namespace {

[[noreturn]] void pending(const char* op) {
  throw std::logic_error(cat(op, " is not provided yet"));
}

}  // namespace

void CudaOps::search(const std::function<void()>&) {
  pending("search");
}
std::function<void()> CudaOps::record(const std::function<void()>&) {
  pending("record");
}
CompileInfo CudaOps::compile_info() const {
  pending("compile_info");
}
void CudaOps::linear_forward(Tensor, Tensor, Tensor, Tensor) {
  pending("linear_forward");
}
void CudaOps::linear_gelu_forward(Tensor, Tensor, Tensor, Tensor, Tensor) {
  pending("linear_gelu_forward");
}
void CudaOps::linear_gelu_backward(Tensor, Tensor, Tensor, Tensor, Tensor, Write) {
  pending("linear_gelu_backward");
}
void CudaOps::linear_weight_backward(Tensor, Tensor, Tensor, Tensor, Write) {
  pending("linear_weight_backward");
}
void CudaOps::encoder_forward(Tensor, Tensor, Tensor, Tensor) {
  pending("encoder_forward");
}
void CudaOps::layernorm_forward(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor) {
  pending("layernorm_forward");
}
void CudaOps::residual_layernorm_forward(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                                         Tensor) {
  pending("residual_layernorm_forward");
}
void CudaOps::layernorm_backward(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor) {
  pending("layernorm_backward");
}
void CudaOps::bias_gelu_forward(Tensor, Tensor, Tensor) {
  pending("bias_gelu_forward");
}
void CudaOps::gelu_backward(Tensor, Tensor, Tensor) {
  pending("gelu_backward");
}
void CudaOps::bias_split_qkv(Tensor, Tensor, Tensor, Tensor, Tensor) {
  pending("bias_split_qkv");
}
void CudaOps::scaled_causal_softmax_forward(Tensor, Tensor, float) {
  pending("scaled_causal_softmax_forward");
}
void CudaOps::scaled_causal_softmax_backward(Tensor, Tensor, Tensor, float) {
  pending("scaled_causal_softmax_backward");
}
void CudaOps::attention_forward(Tensor, Tensor, Tensor) {
  pending("attention_forward");
}
void CudaOps::attention_backward(Tensor, Tensor, Tensor, Tensor, Tensor) {
  pending("attention_backward");
}
void CudaOps::cross_entropy_forward(Tensor, Tensor, Tensor, int64_t) {
  pending("cross_entropy_forward");
}
void CudaOps::cross_entropy_forward_backward(Tensor, Tensor, Tensor, int64_t, float, Tensor) {
  pending("cross_entropy_forward_backward");
}

}  // namespace stepladder
