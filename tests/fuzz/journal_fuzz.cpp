// A results file and its journal as a kill may have left them: the input is the one, a NUL, and the other.
#include "bench/results/file.h"
#include "bench/results/json.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stepladder;
  const auto texts = fuzz::halves(fuzz::text_of(data, size));
  fuzz::accepts([&] {
    Results results = results_from(parse_json(std::string(texts.first)));
    if (!results.complete) add_journal(results, std::string(texts.second));
  });
  return 0;
}
