#include "tests/padded_rows.h"

namespace stepladder {
namespace {

TEST(LogSoftmax, LeavesThePaddingOfRowsAlone) {
  expect_log_softmax_leaves_padding_alone(*make_cpu_ops());
}

}  // namespace
}  // namespace stepladder
