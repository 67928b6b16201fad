// Tokens on disk and batches of them.
//
// Token files, told apart by content: llm.c .bin (256 int32 header: 20240520, version 1, token count; then
// uint16; size exactly 1024 + 2 n), build-nanogpt .npy shards (1-D '<u2'), nanoGPT raw uint16 .bin.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/mapped_file.h"

namespace stepladder {

/// The place and number of the tokens in a file.
struct TokenExtent {
  std::string_view layout;
  size_t offset = 0, count = 0;  // bytes, tokens
  bool operator==(const TokenExtent&) const = default;
};

/// The tokens of one file that is open, or of a text in memory.
class TokenFile {
 public:
  /// Opens the file, and reads no more than its ends. Throws InputError naming the file and what is wrong:
  /// missing, truncated, oversized, wrong magic or version, an .npy of another type, or something else by a
  /// wrong name (text, a Git LFS pointer, an HTML page, an archive, int32 or int64 tokens).
  explicit TokenFile(const std::string& path);
  explicit TokenFile(std::vector<uint16_t> tokens);

  const TokenExtent& extent() const { return extent_; }
  /// Copies the tokens from number `first` on. Throws InputError where the file has become shorter.
  void read(size_t first, std::span<uint16_t> tokens) const;

 private:
  std::optional<OpenFile> file_;
  std::vector<uint16_t> memory_;
  TokenExtent extent_;
};

/// Tokens [begin, begin + size) of a file.
struct Shard {
  std::string path;
  size_t begin, size;
  TokenExtent extent;
  std::shared_ptr<const TokenFile> kept;  // the file where it stays open, else null

  /// Opens the file. Throws InputError where it is gone or has changed since it was first opened.
  std::shared_ptr<const TokenFile> open() const;
};

/// GPT-2 tokens in one file or in several, the shards. One file stays open, several are opened when they are
/// read.
class Tokens {
 public:
  /// Opens files of one layout. Throws InputError as TokenFile does, and for a file of another layout than
  /// the first file's. Readers must check that every token is below `vocabulary`.
  Tokens(const std::vector<std::string>& paths, int64_t vocabulary);
  Tokens(const std::string& path, int64_t vocabulary) : Tokens(std::vector{path}, vocabulary) {}
  /// Tokens in memory; `path` is for messages.
  Tokens(const std::string& path, std::vector<uint16_t> tokens, int64_t vocabulary);

  const std::vector<Shard>& shards() const { return shards_; }
  /// Tokens in all shards.
  size_t size() const;
  int64_t vocabulary() const { return vocabulary_; }
  /// Path of the first shard.
  const std::string& path() const { return path_; }
  /// Tokens [begin, end), counted through all shards.
  Tokens part(size_t begin, size_t end) const;

 private:
  std::string path_;
  std::vector<Shard> shards_;
  int64_t vocabulary_;
};

/// Writes llm.c's format, atomically. Throws InputError naming the path (unwritable, disk full, 2^31 tokens
/// or more).
void write_token_file(const std::string& path, std::span<const uint16_t> tokens);

/// The tokens that a trainer learns from, and those that its validation loss is taken on.
struct Dataset {
  std::shared_ptr<const Tokens> train, val;
  std::string encoding;  // "gpt2-bpe", "bytes" (no vocabulary: GPT-2's byte tokens), or "tokens" as on disk
};

/// Opens `path`: a token file, a .txt, a glob pattern of token files, or a folder, whose .bin and .npy files
/// are all taken. Files are read in the order of their names.
///
/// In a pattern or folder, files with the word "val" in their name are for validation (llm.c's
/// fineweb_val_000000.bin, nanoGPT's val.bin), the others for training. `val_path` replaces the validation
/// files. Without validation files, the last of several files is for validation, or the last tenth of a
/// single file's tokens.
///
/// Text is UTF-8, documents separated by "<|endoftext|>". It is tokenised with the vocabulary in
/// `vocab_dir`, or as GPT-2's byte tokens where there is none, and kept beside the text as
/// <path>.gpt2.bin or <path>.bytes.bin for the next time (in memory where the folder is read-only).
/// Throws InputError as Tokens and Tokenizer do, for text that isn't UTF-8, and where there is no file, or
/// none to train on.
Dataset open_dataset(const std::string& path, const std::string& val_path, const std::string& vocab_dir,
                     int64_t vocabulary);

/// A batch in host memory, valid until the loader's next call.
struct Batch {
  const int32_t* tokens;   // (B,T)
  const int32_t* targets;  // (B,T): tokens shifted by one
};

/// Batches of B sequences of T tokens that follow each other and wrap around at the end. A batch lies within
/// one shard, as llm.c's and build-nanogpt's do: what is left at a shard's end, less than a batch, is not
/// read. Batch i is a function of i alone, so a resumed run sees the same data. `world` ranks take turns:
/// each gets every world-th batch, and together they get the batches of a world of 1.
///
/// One shard is open at a time. A batch is copied, then checked against the vocabulary.
class Loader {
 public:
  /// A loader for rank `rank` of `world`. Throws InputError when a shard has fewer than B*T + 1 tokens.
  Loader(std::shared_ptr<const Tokens> data, int64_t B, int64_t T, int rank = 0, int world = 1);
  /// From now on shards, and the sequences of T tokens within each, come in random order, a new order in each
  /// epoch (Fisher and Yates). Within a shard the order doesn't depend on B; what is left of a shard, less
  /// than a batch, is not read. Batch i is a function of i, B and `seed`.
  void shuffle(uint64_t seed);
  /// The next batch of this rank. Throws InputError, and stays where it is, for a token that is not in the
  /// vocabulary (with file and position), and as Shard::open() does.
  Batch next();
  /// Calls `hear` at each next(), also of copies of this loader.
  void on_next(std::function<void()> hear) { on_next_ = std::move(hear); }
  /// Makes batch `index` the next one of rank 0.
  void seek(int64_t index) { index_ = index; }
  int64_t index() const { return index_; }
  /// The number that next() adds to index(): the world's size.
  int64_t stride() const { return world_; }
  /// Whether both loaders have the same batch i, for every i.
  bool reads_as(const Loader& other) const {
    return data_ == other.data_ && B_ == other.B_ && T_ == other.T_ && rank_ == other.rank_ &&
           world_ == other.world_ && seed_ == other.seed_;
  }
  int64_t batches_per_epoch() const { return first_.back(); }

 private:
  void begin_epoch(int64_t epoch);
  void begin_shard(size_t turn);
  int64_t batches_in(size_t shard) const;

  std::shared_ptr<const Tokens> data_;
  int64_t B_, T_, rank_, world_, index_ = 0;
  std::optional<uint64_t> seed_;

  int64_t epoch_ = 0;
  std::vector<int64_t> order_;  // the shard of each turn
  std::vector<int64_t> first_;  // the first batch of each turn, and the end
  std::optional<size_t> turn_;  // the turn whose shard is open
  std::shared_ptr<const TokenFile> open_;
  std::vector<int64_t> sequences_;  // the order within the shard, where it is shuffled

  std::vector<uint16_t> window_;  // tokens as they lie in the file: at most a batch, and one more
  std::vector<int32_t> tokens_, targets_;
  std::function<void()> on_next_;
};

}  // namespace stepladder
