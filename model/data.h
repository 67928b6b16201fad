// Tokens on disk and batches of them.
//
// Token files, told apart by content: llm.c .bin (256 int32 header: 20240520, version 1, token count; then
// uint16; size exactly 1024 + 2 n), build-nanogpt .npy shards (1-D '<u2'), nanoGPT raw uint16 .bin.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace stepladder {

/// A read-only run of GPT-2 tokens. Copies and parts share the memory.
class Tokens {
 public:
  /// A token file, memory-mapped. Throws InputError naming the file and what is wrong: missing, truncated,
  /// oversized, wrong magic or version, an .npy of another type, or a token >= vocabulary (with its
  /// position).
  Tokens(const std::string& path, int64_t vocabulary);
  /// Tokens in memory; `path` is for messages. Throws InputError for a token >= vocabulary.
  Tokens(const std::string& path, std::vector<uint16_t> tokens, int64_t vocabulary);

  std::span<const uint16_t> tokens() const { return tokens_; }
  const std::string& path() const { return path_; }
  /// Tokens [begin, end) of this run.
  Tokens part(size_t begin, size_t end) const;

 private:
  std::string path_;
  std::shared_ptr<const void> memory_;
  std::span<const uint16_t> tokens_;
};

/// Writes llm.c's format, atomically. Throws InputError naming the path (unwritable, disk full).
void write_token_file(const std::string& path, std::span<const uint16_t> tokens);

/// What a trainer learns from, and what its validation loss is taken on.
struct Dataset {
  std::shared_ptr<const Tokens> train, val;
  std::string encoding;  // "gpt2-bpe", "bytes" (no vocabulary: GPT-2's byte tokens), or "tokens" as on disk
};

/// Opens `path`, a token file or a .txt. Without `val_path` the last tenth of the tokens is for validation.
///
/// Text is UTF-8, documents separated by "<|endoftext|>". It is tokenised with the vocabulary in
/// `vocab_dir`, or as GPT-2's byte tokens where there is none, and kept beside the text as
/// <path>.gpt2.bin or <path>.bytes.bin for the next time (in memory where the folder is read-only).
/// Throws InputError as Tokens and Tokenizer do.
Dataset open_dataset(const std::string& path, const std::string& val_path, const std::string& vocab_dir,
                     int64_t vocabulary);

/// A batch in host memory, valid until the loader's next call.
struct Batch {
  const int32_t* tokens;   // (B,T)
  const int32_t* targets;  // (B,T): tokens shifted by one
};

/// Sequential batches that wrap around at the end of the tokens. Batch i is a function of i alone, so a
/// resumed run sees the same data. Of `world` ranks that take turns, each gets every world-th, and all
/// together what a world of 1 would.
class Loader {
 public:
  /// Throws InputError when there are fewer than B*T + 1 tokens.
  Loader(std::shared_ptr<const Tokens> data, int64_t B, int64_t T, int rank = 0, int world = 1);
  /// The next batch of this rank.
  Batch next();
  /// `hear` is called at each next(), of copies too.
  void on_next(std::function<void()> hear) { on_next_ = std::move(hear); }
  /// Makes batch `index` the next one of rank 0.
  void seek(int64_t index) { index_ = index; }
  int64_t index() const { return index_; }
  /// What next() adds to index(): the world.
  int64_t stride() const { return world_; }
  /// Whether batch i of both is the same.
  bool reads_as(const Loader& other) const {
    return data_ == other.data_ && B_ == other.B_ && T_ == other.T_ && rank_ == other.rank_ &&
           world_ == other.world_;
  }
  int64_t batches_per_epoch() const;

 private:
  std::shared_ptr<const Tokens> data_;
  int64_t B_, T_, rank_, world_, index_ = 0;
  std::vector<int32_t> tokens_, targets_;
  std::function<void()> on_next_;
};

}  // namespace stepladder
