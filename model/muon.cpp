#include "model/muon.h"

#include <algorithm>
#include <utility>

namespace stepladder {

NewtonSchulz NewtonSchulz::like(const Shape& matrices) const {
  const int64_t n = matrices[0], S = std::min(matrices[1], matrices[2]);
  return {x.first(matrices), y.first(matrices), gram.first({n, S, S}), poly.first({n, S, S})};
}

Tensor newton_schulz(Ops& ops, const NewtonSchulz& of) {
  constexpr int kIterations = 5;
  constexpr float a = 3.4445F, b = -4.7750F, c = 2.0315F;
  Tensor x = of.x, y = of.y;
  const bool tall = x.shape[-2] > x.shape[-1];
  for (int i = 0; i < kIterations; ++i) {
    ops(SymmetricMatmul{of.gram, x, tall ? MatOp::TN : MatOp::NT});
    ops(SymmetricMatmul{of.poly, of.gram, MatOp::NT, of.gram, c, b});
    ops(tall ? MatmulAdd{y, x, of.poly, MatOp::NN, x, 1.0F, a}
             : MatmulAdd{y, of.poly, x, MatOp::NN, x, 1.0F, a});
    std::swap(x, y);
  }
  return x;
}

}  // namespace stepladder
