// The ladder table.
#include "bench/plan/ladder.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stepladder;
  fuzz::accepts([&] {
    for (const Rung& rung : ladder_from(std::string(fuzz::text_of(data, size))))
      fuzz::require(rung.tolerance >= 0.0 && rung.compute_capability >= 0, "a row that makes no sense");
  });
  return 0;
}
