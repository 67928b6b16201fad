// Tokens on disk and batches of them.
//
// Formats, told apart by content: llm.c .bin (256 int32 header: 20240520, version 1, token count; then
// uint16; size exactly 1024 + 2 n), build-nanogpt .npy shards (1-D '<u2'), nanoGPT raw uint16 .bin.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace stepladder {

/// A file of GPT-2 tokens, memory-mapped.
class TokenFile {
 public:
  /// Throws InputError naming the file and what is wrong: missing, truncated, oversized, wrong magic or
  /// version, an .npy of another type, or a token >= vocabulary (with its position).
  TokenFile(const std::string& path, int64_t vocabulary);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  std::span<const uint16_t> tokens() const { return tokens_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  void* map_ = nullptr;
  size_t map_bytes_ = 0;
  std::span<const uint16_t> tokens_;
};

/// Writes llm.c's format, atomically. Throws InputError naming the path (unwritable, disk full).
void write_token_file(const std::string& path, std::span<const uint16_t> tokens);

/// A batch in host memory, valid until the loader's next call.
struct Batch {
  const int32_t* tokens;   // (B,T)
  const int32_t* targets;  // (B,T): tokens shifted by one
};

/// Sequential batches that wrap around at the end of the file. Batch i is a function of i alone, so a resumed
/// run sees the same data.
class Loader {
 public:
  /// Throws InputError when the file holds fewer than B*T + 1 tokens.
  Loader(std::shared_ptr<const TokenFile> file, int64_t B, int64_t T);
  /// The next batch.
  Batch next();
  /// Makes batch `index` the next one.
  void seek(int64_t index) { index_ = index; }
  int64_t index() const { return index_; }
  int64_t batches_per_epoch() const;

 private:
  std::shared_ptr<const TokenFile> file_;
  int64_t B_, T_, index_ = 0;
  std::vector<int32_t> tokens_, targets_;
};

}  // namespace stepladder
