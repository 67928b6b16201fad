// Questions with several answers, in llm.c's file format.
#include "model/hellaswag.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stepladder;
  constexpr int64_t kVocabulary = 50257, kPositions = 64;
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::accepts([&] {
    const HellaSwag questions(file.path(), kVocabulary, kPositions);
    fuzz::require(questions.size() > 0, "a file without questions");
  });
  return 0;
}
