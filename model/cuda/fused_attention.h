// Attention without the (T,T) matrix, by cuDNN and by kernels of our own, between which AttentionForward and
// AttentionBackward choose. No cuDNN header is needed here.
#pragma once

#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "model/tensor.h"

namespace stepladder {

/// qkv (B,T,3*NH*HS), out (B,T,NH*HS), lse (B,NH,T), as stored: no transposition before or after.
struct AttentionShape {
  int64_t B, T, NH, HS;
  DType dtype;  // bf16 or f16
  auto operator<=>(const AttentionShape&) const = default;
};
enum class AttentionPass : uint8_t { forward, backward };

/// cuDNN's fused attention on one stream. Plans are built when a shape is first met and kept; running one
/// neither waits for the device nor allocates, so that it can be captured into a CUDA graph.
class CudnnAttention {
 public:
  CudnnAttention() = default;
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;
  virtual ~CudnnAttention() = default;

  /// The library and its version: "cuDNN 9.19.0".
  virtual const std::string& name() const = 0;
  /// Bytes of device scratch that a plan may take, at most.
  static int64_t workspace_bytes(int64_t B, int64_t T, int64_t NH, int64_t HS, bool deterministic);
  /// "" where cuDNN computes this within `workspace` bytes of scratch, else why it does not.
  virtual const std::string& refusal(const AttentionShape& shape, AttentionPass pass, int64_t workspace) = 0;
  /// Call forward() and backward() only after refusal() has returned "".
  virtual void forward(const AttentionShape& shape, Tensor out, Tensor lse, Tensor qkv, Tensor workspace) = 0;
  virtual void backward(const AttentionShape& shape, Tensor dqkv, Tensor dout, Tensor out, Tensor lse,
                        Tensor qkv, Tensor workspace) = 0;
};

/// Loads libcudnn. Throws UnsupportedError telling what is missing.
std::unique_ptr<CudnnAttention> make_cudnn_attention(cudaStream_t stream, bool deterministic);

struct Queue;

/// Our own kernels, for every device from sm_75 on (bf16: sm_80), any T, and HS a multiple of 8 up to 128;
/// bitwise reproducible.
void flash_attention_forward(Queue& queue, const AttentionShape& shape, Tensor out, Tensor lse, Tensor qkv);
/// delta (>= B*NH*T) f32 is scratch.
void flash_attention_backward(Queue& queue, const AttentionShape& shape, Tensor dqkv, Tensor dout, Tensor out,
                              Tensor lse, Tensor qkv, Tensor delta);

}  // namespace stepladder
