// Ops that this backend does not provide yet.
#include "model/cpu/cpu_ops.h"

namespace stepladder {
namespace {

[[noreturn]] void pending(const char* op) {
  throw std::logic_error(cat(op, " is not provided yet"));
}

}  // namespace

void CpuOps::copy(Tensor, Tensor) {
  pending("copy");
}
void CpuOps::write(Tensor, std::initializer_list<float>) {
  pending("write");
}
std::shared_ptr<void> CpuOps::allocate_host(size_t) {
  pending("allocate_host");
}
void CpuOps::stage(Tensor, const void*) {
  pending("stage");
}
void CpuOps::receive(Tensor, Tensor) {
  pending("receive");
}
void CpuOps::search(const std::function<void()>&) {
  pending("search");
}
std::function<void()> CpuOps::record(const std::function<void()>&) {
  pending("record");
}
CompileInfo CpuOps::compile_info() const {
  pending("compile_info");
}
void CpuOps::linear_forward(Tensor, Tensor, Tensor, Tensor) {
  pending("linear_forward");
}
void CpuOps::linear_gelu_forward(Tensor, Tensor, Tensor, Tensor, Tensor) {
  pending("linear_gelu_forward");
}
void CpuOps::linear_gelu_backward(Tensor, Tensor, Tensor, Tensor, Tensor, Write) {
  pending("linear_gelu_backward");
}
void CpuOps::linear_weight_backward(Tensor, Tensor, Tensor, Tensor, Write) {
  pending("linear_weight_backward");
}
void CpuOps::encoder_forward(Tensor, Tensor, Tensor, Tensor) {
  pending("encoder_forward");
}
void CpuOps::layernorm_forward(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor) {
  pending("layernorm_forward");
}
void CpuOps::residual_layernorm_forward(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                                        Tensor) {
  pending("residual_layernorm_forward");
}
void CpuOps::layernorm_backward(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor) {
  pending("layernorm_backward");
}
void CpuOps::bias_gelu_forward(Tensor, Tensor, Tensor) {
  pending("bias_gelu_forward");
}
void CpuOps::gelu_backward(Tensor, Tensor, Tensor) {
  pending("gelu_backward");
}
void CpuOps::bias_split_qkv(Tensor, Tensor, Tensor, Tensor, Tensor) {
  pending("bias_split_qkv");
}
void CpuOps::scaled_causal_softmax_forward(Tensor, Tensor, float) {
  pending("scaled_causal_softmax_forward");
}
void CpuOps::scaled_causal_softmax_backward(Tensor, Tensor, Tensor, float) {
  pending("scaled_causal_softmax_backward");
}
void CpuOps::attention_forward(Tensor, Tensor, Tensor) {
  pending("attention_forward");
}
void CpuOps::attention_backward(Tensor, Tensor, Tensor, Tensor, Tensor) {
  pending("attention_backward");
}
void CpuOps::cross_entropy_forward(Tensor, Tensor, Tensor, int64_t) {
  pending("cross_entropy_forward");
}
void CpuOps::cross_entropy_forward_backward(Tensor, Tensor, Tensor, int64_t, float, Tensor) {
  pending("cross_entropy_forward_backward");
}
void CpuOps::clip_grad_norm(Tensor, Tensor, std::span<const Tensor>, float, Tensor) {
  pending("clip_grad_norm");
}
void CpuOps::adamw(std::span<const AdamWTensor>, Tensor, Tensor, const AdamW&, Tensor) {
  pending("adamw");
}

}  // namespace stepladder
