// Squared ReLU as functors for maps over elements.
#pragma once

namespace stepladder {

struct ReluSquared {  // max(x, 0)^2; NaN stays NaN
  __device__ float operator()(const float (&x)[1]) const { return x[0] < 0.0F ? 0.0F : x[0] * x[0]; }
};
struct ReluSquaredBackwardFunctor {  // dout * 2 max(x, 0)
  __device__ float operator()(const float (&dout_x)[2]) const {
    return dout_x[0] * 2.0F * (dout_x[1] < 0.0F ? 0.0F : dout_x[1]);
  }
};

}  // namespace stepladder
