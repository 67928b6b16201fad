// Token files: llm.c .bin, .npy, raw uint16.
#include <memory>

#include "model/data.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stepladder;
  constexpr int64_t kVocabulary = 50257, kBatch = 2, kSeq = 3;
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::accepts([&] {
    const auto tokens = std::make_shared<const Tokens>(file.path(), kVocabulary);
    Loader loader(tokens, kBatch, kSeq);
    const int64_t epoch = loader.batches_per_epoch();
    for (int64_t i = 0; i <= 2 * epoch; ++i) {
      if (i == epoch) loader.shuffle(size);
      const Batch batch = loader.next();
      for (int64_t j = 0; j < kBatch * kSeq; ++j)
        fuzz::require(batch.tokens[j] >= 0 && batch.targets[j] < kVocabulary,
                      "a token outside the vocabulary");
    }
  });
  return 0;
}
