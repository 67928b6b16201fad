// Text through the tokenizer: GPT-2's byte tokens, and its vocabulary if present.
#include <filesystem>
#include <optional>

#include "model/tokenizer.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stepladder;
  static const std::optional<Tokenizer> bpe = [] {
    const std::string vocabulary = STEPLADDER_SOURCE_DIR "/data/gpt2";
    return std::filesystem::exists(vocabulary + "/vocab.bpe") ? std::optional<Tokenizer>(vocabulary)
                                                              : std::nullopt;
  }();
  const std::string text(fuzz::text_of(data, size));
  fuzz::require(decode_bytes(encode_bytes(text)) == text, "byte tokens that do not read back");
  if (!bpe) return 0;
  // Encoding reads invalid UTF-8 as U+FFFD; a second round trip must change nothing.
  const std::string valid = bpe->decode(bpe->encode(text));
  fuzz::require(bpe->decode(bpe->encode(valid)) == valid, "tokens that do not read back");
  return 0;
}
