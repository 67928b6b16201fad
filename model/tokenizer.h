// GPT-2's byte-level BPE.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepladder {

class Tokenizer {
 public:
  static constexpr int32_t kEndOfText = 50256;

  /// Reads encoder.json and vocab.bpe from `dir`. Throws InputError naming the file and how to get it.
  explicit Tokenizer(const std::string& dir);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  /// GPT-2 tokens of `text`, as tiktoken's encode_ordinary: special tokens are plain text.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Bytes of `tokens`; ids outside the vocabulary become U+FFFD.
  std::string decode(std::span<const int32_t> tokens) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The tables by which Tokenizer tells letters and numbers from other characters: "Unicode 14.0.0 (PCRE2
/// 10.42 2022-12-11)". Characters that a later Unicode added are split differently by an older one.
std::string tokenizer_unicode();

/// GPT-2's byte tokens (no merges): a valid encoding of any text where the vocabulary is not to be had.
std::vector<int32_t> encode_bytes(std::string_view text);
/// The text of byte tokens, the inverse of encode_bytes(); other tokens become U+FFFD.
std::string decode_bytes(std::span<const int32_t> tokens);

}  // namespace stepladder
