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
void CudaOps::attention_forward(Tensor, Tensor, Tensor) {
  pending("attention_forward");
}
void CudaOps::attention_backward(Tensor, Tensor, Tensor, Tensor, Tensor) {
  pending("attention_backward");
}
void CudaOps::clip_grad_norm(Tensor, Tensor, std::span<const Tensor>, float, Tensor) {
  pending("clip_grad_norm");
}
void CudaOps::adamw(std::span<const AdamWTensor>, Tensor, Tensor, const AdamW&, Tensor) {
  pending("adamw");
}

}  // namespace stepladder
