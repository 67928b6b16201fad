#include "tests/padded_rows.h"

namespace stepladder {
namespace {

TEST(Matmul, LeavesThePaddingOfRowsAlone) {
  expect_padding_is_left_alone(*make_cpu_ops());
}

}  // namespace
}  // namespace stepladder
