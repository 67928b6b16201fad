// Ops that this backend does not provide yet.
#include "model/cuda/cuda_ops.h"

namespace stepladder {
namespace {

[[noreturn]] void pending(const char* op) {
  throw std::logic_error(cat(op, " is not provided yet"));
}

}  // namespace

void CudaOps::copy(Tensor, Tensor) {
  pending("copy");
}
void CudaOps::write(Tensor, std::initializer_list<float>) {
  pending("write");
}
std::shared_ptr<void> CudaOps::allocate_host(size_t) {
  pending("allocate_host");
}
void CudaOps::stage(Tensor, const void*) {
  pending("stage");
}
void CudaOps::receive(Tensor, Tensor) {
  pending("receive");
}
void CudaOps::encoder_forward(Tensor, Tensor, Tensor, Tensor) {
  pending("encoder_forward");
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
void CudaOps::clip_grad_norm(Tensor, Tensor, std::span<const Tensor>, float, Tensor) {
  pending("clip_grad_norm");
}
void CudaOps::adamw(std::span<const AdamWTensor>, Tensor, Tensor, const AdamW&, Tensor) {
  pending("adamw");
}

}  // namespace stepladder
