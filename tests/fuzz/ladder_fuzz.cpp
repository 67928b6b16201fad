// A ladder's table, parsed as one of ours and as one from a user's file.
#include "bench/plan/ladder.h"
#include "bench/results/json.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stepladder;
  for (const char* folder : {"", "/"})
    fuzz::accepts([&] {
      for (const Rung& rung : ladder_from(parse_json(std::string(fuzz::text_of(data, size))), folder).rungs)
        fuzz::require(rung.tolerance >= 0.0 && rung.compute_capability >= 0, "a row that makes no sense");
    });
  return 0;
}
