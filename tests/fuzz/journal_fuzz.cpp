// A results file and its journal as a kill may have left them: the input is the one, a NUL, and the other.
#include "bench/results_file.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stepladder;
  const auto [results, journal] = fuzz::halves(fuzz::text_of(data, size));
  const std::string path = fuzz::folder() + "/results.json";
  fuzz::write_file(path, results);
  fuzz::write_file(path + ".journal", journal);
  fuzz::accepts([&] { load_results(path); });
  return 0;
}
