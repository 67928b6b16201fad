#include "model/ops/op.h"

#include <algorithm>
#include <array>

namespace stepladder {

const char* name_of(OpKind kind) {
  constexpr std::array kNames = {"GEMM",      "attention",   "LayerNorm", "softmax",      "cross-entropy",
                                 "embedding", "elementwise", "reduction", "clip",         "AdamW",
                                 "Muon",      "copy",        "memset",    "communication"};
  return kNames.at(static_cast<size_t>(kind));
}

double Work::bytes() const {
  double sum = 0.0;
  for (const std::vector<Operand>& operands : {read, written})
    for (auto at = operands.begin(); at != operands.end(); ++at) {
      const bool again = std::any_of(operands.begin(), at, [&](const Operand& before) {
        return before.whole && at->whole && before.tensor.data == at->tensor.data;
      });
      if (!again) sum += at->bytes;
    }
  return sum;
}

void expect(const AnyOp& op, bool fits, const std::string& form) {
  if (fits) return;
  std::string operands;
  try {
    const Work work = op.work();
    for (const std::vector<Operand>& list : {work.written, work.read})
      for (const Operand& operand : list)
        if (operand.tensor.shape.rank() > 0) operands += cat(operands.empty() ? ": " : ", ", operand.tensor);
  } catch (const std::invalid_argument&) {  // shapes so wrong that work() throws too: list no operands
  }
  throw std::invalid_argument(
      cat(op.name(), form.empty() ? "" : " ", form, ": shapes or types do not fit together", operands));
}

}  // namespace stepladder
