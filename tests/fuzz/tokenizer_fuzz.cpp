// GPT-2's vocabulary files: the input is encoder.json, a NUL, and vocab.bpe.
#include "model/tokenizer.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stepladder;
  const auto [vocabulary, merges] = fuzz::halves(fuzz::text_of(data, size));
  fuzz::write_file(fuzz::folder() + "/encoder.json", vocabulary);
  fuzz::write_file(fuzz::folder() + "/vocab.bpe", merges);
  fuzz::accepts([&] { Tokenizer{fuzz::folder()}; });
  return 0;
}
