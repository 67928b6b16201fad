// Scaled causal softmax of rows that are too long for registers: softmax.cu's kernels, which take any length.
#pragma once

#include "model/cuda/handles.h"
#include "model/tensor.h"

namespace stepladder {

/// ScaledCausalSoftmaxForward and ScaledCausalSoftmaxBackward for rows of any length.
void long_softmax_forward(Queue& queue, Tensor p, Tensor x, float scale);
void long_softmax_backward(Queue& queue, Tensor dx, Tensor dp, Tensor p, float scale);

}  // namespace stepladder
