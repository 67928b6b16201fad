#include "model/data.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "model/atomic_file.h"
#include "model/error.h"
#include "model/file_kind.h"
#include "model/mapped_file.h"
#include "model/random.h"
#include "model/tokenizer.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::string_view kSeparator = "<|endoftext|>";

// Identifies the text that was tokenised, by size and digest.
struct Stamp {
  int64_t bytes = 0;
  uint64_t digest = 0;
  bool operator==(const Stamp&) const = default;
};

// llm.c's header. llm.c leaves the fields after the count unused; we store the stamp of the source text
// there.
struct TokenHeader {
  int32_t magic = kLlmcTokens, version = 1, count = 0, unused = 0;
  Stamp source;
  std::array<int32_t, 248> rest{};
};
static_assert(sizeof(TokenHeader) == 256 * sizeof(int32_t));

// The digest covers the whole text: files that are unpacked or copied may share their length and time.
Stamp stamp_of(std::span<const std::byte> text) {
  uint64_t digest = 0, word = 0;
  size_t at = 0;
  for (; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    digest += random_bits(word, at);  // a sum, so that no word waits for the one before
  }
  word = 0;
  if (at < text.size()) std::memcpy(&word, text.data() + at, text.size() - at);
  return {static_cast<int64_t>(text.size()), digest + random_bits(word, at)};
}

// The first bytes of a file, and its size.
struct Head {
  std::string bytes;
  size_t file_size;
};

Head head_of(const OpenFile& file) {
  Head head{std::string(std::min(file.size(), kFileHead), '\0'), file.size()};
  file.read(0, std::as_writable_bytes(std::span(head.bytes)));
  return head;
}

void refuse_kind(const std::string& path, const FileKind& kind, std::string_view cure) {
  if (kind.known())
    throw InputError(cat(path, ": is ", kind.what, "; ", kind.cure.empty() ? cure : kind.cure));
}

TokenExtent llmc_extent(const std::string& path, const Head& head) {
  TokenHeader header;
  if (head.file_size < sizeof header)
    throw InputError(cat(path, ": truncated: ", head.file_size, " bytes, an llm.c header alone has ",
                         sizeof header, "; write it again"));
  std::memcpy(&header, head.bytes.data(), sizeof header);
  if (header.version != TokenHeader{}.version)
    throw InputError(cat(path, ": llm.c tokens of version ", header.version, ", want version ",
                         TokenHeader{}.version, " (uint16 GPT-2 tokens); prepare it for GPT-2"));
  const auto count = static_cast<size_t>(static_cast<uint32_t>(header.count));
  const size_t expected = sizeof header + count * sizeof(uint16_t);
  if (head.file_size != expected)
    throw InputError(cat(path, ": ",
                         head.file_size < expected ? "truncated: " : "oversized: ", head.file_size,
                         " bytes, its header's ", count, " tokens make ", expected, "; write it again"));
  return {"llm.c's .bin", sizeof header, count};
}

// The text after `key` in the dict of an .npy header, blanks skipped; empty when `key` is absent.
std::string_view npy_value(std::string_view dict, std::string_view key) {
  const size_t at = dict.find(key);
  if (at == std::string_view::npos) return {};
  dict.remove_prefix(at + key.size());
  dict.remove_prefix(std::min(dict.find_first_not_of(" :"), dict.size()));
  return dict;
}

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
TokenExtent npy_extent(const std::string& path, const Head& head) {
  const auto byte = [&](size_t i) {
    return i < head.bytes.size() ? static_cast<size_t>(static_cast<unsigned char>(head.bytes[i])) : size_t{0};
  };
  const size_t major = byte(6);
  const size_t dict_at = major == 1 ? 10 : 12;
  size_t dict_size = byte(8) | byte(9) << 8;
  if (major > 1) dict_size |= byte(10) << 16 | byte(11) << 24;
  const size_t offset = dict_at + dict_size;
  if (major < 1 || major > 3 || offset > head.bytes.size())
    throw InputError(cat(path, ": damaged .npy header; write it again with numpy.save"));

  const std::string_view dict = std::string_view(head.bytes).substr(dict_at, dict_size);
  const std::string_view descr = npy_value(dict, "'descr'");
  std::string_view shape = npy_value(dict, "'shape'");
  size_t count = 0;
  bool vector = shape.starts_with('(');
  if (vector) {
    const auto [end, error] = std::from_chars(shape.data() + 1, shape.data() + shape.size(), count);
    shape.remove_prefix(static_cast<size_t>(end - shape.data()));
    vector = error == std::errc{} && shape.starts_with(",)");
  }
  if (!descr.starts_with("'<u2'") || !vector || offset % alignof(uint16_t) != 0)
    throw InputError(cat(path, ": .npy is not a vector of uint16 ('<u2'); save tokens as such"));
  const size_t bytes = head.file_size - offset;
  if (count != bytes / sizeof(uint16_t) || bytes % sizeof(uint16_t) != 0)
    throw InputError(cat(path, ": ", bytes / sizeof(uint16_t) < count ? "truncated: " : "oversized: ", bytes,
                         " bytes of tokens, its header says ", count, " tokens of 2; write it again"));
  return {".npy", offset, count};
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < ' ' && c != '\t' && c != '\n' && c != '\r';
}

// Guesses the bytes of a raw token, 2, 4 or 8: of int32 tokens every second uint16 is 0, of int64 three of
// four. Most of the other uint16 must not be 0, so that zeros that fill up a file don't count.
int bytes_per_token(std::string_view sample) {
  constexpr size_t kFewest = 32;  // bytes
  if (sample.size() < kFewest) return 2;
  size_t count = 0, nonzero = 0, odd_nonzero = 0;
  for (uint32_t word = 0; (count + 1) * sizeof word <= sample.size(); ++count) {
    std::memcpy(&word, sample.data() + count * sizeof word, sizeof word);
    if (word > 0xFFFF) return 2;
    nonzero += word != 0;
    odd_nonzero += count % 2 == 1 && word != 0;
  }
  if (2 * nonzero > count) return 4;
  return odd_nonzero == 0 && 4 * nonzero > count ? 8 : 2;
}

TokenExtent raw_extent(const OpenFile& file, const Head& head) {
  const std::string& path = file.path();
  if (head.file_size == 0) throw InputError(cat(path, ": empty; write it again"));
  refuse_kind(path, kind_of(head.bytes), "name a token file or a .txt");
  if (head.bytes.starts_with("\xFF\xFE") || head.bytes.starts_with("\xFE\xFF"))
    throw InputError(cat(path, ": is text in UTF-16; `iconv -f UTF-16 -t UTF-8 ", path,
                         "` writes the UTF-8 that a ", ".txt has"));
  if (std::ranges::none_of(head.bytes, is_control))
    throw InputError(cat(path, ": is text: call it ", fs::path(path).stem().string(),
                         ".txt, and its tokens are trained on"));
  if (head.file_size % sizeof(uint16_t) != 0)
    throw InputError(cat(path, ": ", head.file_size,
                         " bytes is no whole number of uint16 tokens, and the file is ",
                         "neither llm.c's .bin nor .npy; write it again"));
  if (const int width = bytes_per_token(head.bytes);
      width > 2 && head.file_size % static_cast<size_t>(width) == 0) {
    std::string tail(head.bytes.size() / 8 * 8, '\0');
    file.read((head.file_size - tail.size()) / 8 * 8, std::as_writable_bytes(std::span(tail)));
    if (bytes_per_token(tail) == width)
      throw InputError(cat(path, ": seems to be int", 8 * width, " tokens, as every ",
                           width == 4 ? "second uint16 is" : "four uint16 have three that are",
                           " 0; write them as uint16 (NumPy: .astype('uint16').tofile)"));
  }
  return {"raw uint16", 0, head.file_size / sizeof(uint16_t)};
}

TokenExtent extent_of(const OpenFile& file) {
  const Head head = head_of(file);
  if (head.bytes.starts_with(kNpyMagic)) return npy_extent(file.path(), head);
  int32_t magic = 0;
  if (head.bytes.size() >= sizeof magic) std::memcpy(&magic, head.bytes.data(), sizeof magic);
  if (magic == TokenHeader{}.magic) return llmc_extent(file.path(), head);
  if (file.path().ends_with(".npy")) {
    refuse_kind(file.path(), kind_of(head.bytes), "name a token file or a .txt");
    throw InputError(cat(file.path(), ": does not begin as .npy does; write it again with numpy.save"));
  }
  return raw_extent(file, head);
}

// Throws InputError for a token outside the vocabulary. `first` is the position of tokens[0] in the file.
void check_range(const std::string& path, size_t first, std::span<const uint16_t> tokens,
                 int64_t vocabulary) {
  uint16_t largest = 0;  // a loop that is vectorised, as max_element is not
  for (const uint16_t token : tokens) largest = std::max(largest, token);
  if (largest < vocabulary) return;
  const auto bad = std::ranges::find_if(tokens, [&](uint16_t token) { return token >= vocabulary; });
  throw InputError(cat(path, ": token ", *bad, " at position ", first + (bad - tokens.begin()),
                       " is outside the vocabulary of ", vocabulary,
                       "; not GPT-2 tokens, or a model with a smaller vocabulary"));
}

void write_tokens(const std::string& path, std::span<const uint16_t> tokens, Stamp source) {
  if (tokens.size() > INT32_MAX)
    throw InputError(
        cat(path, ": ", tokens.size(), " tokens, llm.c's header counts to ", INT32_MAX, "; split the text"));
  TokenHeader header;
  header.count = static_cast<int32_t>(tokens.size());
  header.source = source;
  AtomicFile file(path);
  file.write(&header, sizeof header);
  file.write(tokens.data(), tokens.size_bytes());
  file.commit();
}

// Whether `path` holds all tokens of the text as it is now.
bool is_current(const std::string& path, Stamp source) {
  TokenHeader header;
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return false;
  std::error_code error;
  return header.magic == TokenHeader{}.magic && header.source == source &&
         fs::file_size(path, error) == sizeof header + sizeof(uint16_t) * header.count;
}

// Bytes of the UTF-8 character that `text` begins with; 0 where it begins with none. A character cut off at
// the end of `text` counts as whole.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  const size_t there = std::min(length, text.size());
  for (size_t i = 1; i < there; ++i)
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  if (there < 2) return there;
  const unsigned second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool no_character = (first == 0xED && second >= 0xA0) || (first == 0xF4 && second >= 0x90);
  return overlong || no_character ? 0 : there;
}

// Throws InputError where `text` isn't UTF-8.
void check_utf8(const std::string& path, std::string_view text) {
  bool foreign = false;  // characters beyond ASCII came before
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text.substr(at));
    if (length == 0)
      throw InputError(cat(path, ": is not UTF-8 at position ", at, "; `iconv ",
                           foreign ? "-c -f UTF-8" : "-f LATIN1", " -t UTF-8 ", path, "` ",
                           foreign ? "leaves out what isn't" : "converts it if it is Latin-1"));
    foreign |= length > 1;
    at += length;
  }
}

// Throws InputError where a .txt begins like a file of another kind.
void check_is_text(const std::string& path, std::string_view head) {
  refuse_kind(path, kind_of(head), "name a text");
  const std::string_view mark = head.substr(0, 2);
  const auto controls_at = [&](size_t parity) {
    size_t count = 0;
    for (size_t i = parity; i < head.size(); i += 2) count += is_control(head[i]) ? 1 : 0;
    return count;
  };
  const size_t even = controls_at(0), odd = controls_at(1);
  const bool marked = mark == "\xFF\xFE" || mark == "\xFE\xFF";
  if (!marked && 8 * (even + odd) <= head.size()) return;
  throw InputError(cat(path, marked ? ": is" : ": seems to be", " UTF-16; `iconv -f UTF-16",
                       marked       ? ""
                       : even > odd ? "BE"
                                    : "LE",
                       " -t UTF-8 ", path, "` converts it"));
}

// The tokens of a text: those kept beside it where they are current, else tokenised now. `vocab_dir` is empty
// for byte tokens.
Tokens open_text(const std::string& path, const std::string& vocab_dir, int64_t vocabulary) {
  const MappedFile file(path);
  check_is_text(path, file.text().substr(0, kFileHead));
  const Stamp stamp = stamp_of(file.bytes());
  const std::string kept = path + (vocab_dir.empty() ? ".bytes.bin" : ".gpt2.bin");
  if (is_current(kept, stamp)) return {kept, vocabulary};

  check_utf8(path, file.text());
  std::optional<Tokenizer> bpe;
  if (!vocab_dir.empty()) bpe.emplace(vocab_dir);
  std::vector<uint16_t> tokens;
  for (std::string_view rest = file.text();;) {
    const size_t end = std::min(rest.find(kSeparator), rest.size());
    const std::string_view document = rest.substr(0, end);
    for (const int32_t token : bpe ? bpe->encode(document) : encode_bytes(document))
      tokens.push_back(static_cast<uint16_t>(token));
    if (end == rest.size()) break;
    tokens.push_back(Tokenizer::kEndOfText);
    rest.remove_prefix(end + kSeparator.size());
  }

  try {
    write_tokens(kept, tokens, stamp);
  } catch (const InputError&) {
    // With a read-only or full disk, or a text too long for one file, keep the tokens in memory: the next run
    // tokenises again.
    return {path, std::move(tokens), vocabulary};
  }
  return {kept, vocabulary};
}

bool is_text(const std::string& path) {
  return path.ends_with(".txt");
}

// Whether "val" is a word of the file's name: fineweb_val_000000.bin, TinyStories_val.bin, val.bin.
bool is_validation(const std::string& path) {
  const std::string name = fs::path(path).stem().string();
  for (size_t at = name.find("val"); at != std::string::npos; at = name.find("val", at + 1)) {
    const auto in_word = [&](size_t i) {
      return i < name.size() && std::isalnum(static_cast<unsigned char>(name[i])) != 0;
    };
    if (!(at > 0 && in_word(at - 1)) && !in_word(at + 3)) return true;
  }
  return false;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path path = at->path(), suffix = path.extension();
    if ((suffix == ".bin" || suffix == ".npy") && !path.filename().string().starts_with('.'))
      files.push_back(path.string());
  }
  if (error) throw InputError(cat(folder, ": cannot list: ", error.message(), "; check the folder"));
  if (files.empty())
    throw InputError(cat(folder, ": no token file (.bin, .npy) in this folder; name one that has some"));
  return files;
}

std::vector<std::string> files_matching(const std::string& pattern) {
  glob_t found{};
  ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (files.empty()) throw InputError(cat(pattern, ": no file matches this pattern; check the path"));
  return files;
}

struct Split {
  std::vector<std::string> train, val;
};

// The files that `path` names, each list sorted.
Split files_of(const std::string& path) {
  std::error_code unreadable;  // ignored: opening the file reports it
  const bool folder = fs::is_directory(path, unreadable);
  if (!folder && (fs::exists(path, unreadable) || path.find_first_of("*?[") == std::string::npos))
    return {{path}, {}};
  Split split;
  for (std::string& file : folder ? files_in(path) : files_matching(path))
    (is_validation(file) ? split.val : split.train).push_back(std::move(file));
  std::ranges::sort(split.train);
  std::ranges::sort(split.val);
  return split;
}

// 0 .. count - 1 in random order (Fisher and Yates).
std::vector<int64_t> permutation(int64_t count, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_bits(seed, i) % i]);
  return order;
}

}  // namespace

TokenFile::TokenFile(const std::string& path) : file_(path), extent_(extent_of(*file_)) {}

TokenFile::TokenFile(std::vector<uint16_t> tokens)
    : memory_(std::move(tokens)), extent_{.layout = "", .count = memory_.size()} {}

void TokenFile::read(size_t first, std::span<uint16_t> tokens) const {
  check(first + tokens.size() <= extent_.count, "tokens from ", first, " of ", extent_.count);
  if (file_)
    file_->read(extent_.offset + first * sizeof(uint16_t), std::as_writable_bytes(tokens));
  else
    std::ranges::copy(std::span(memory_).subspan(first, tokens.size()), tokens.begin());
}

std::shared_ptr<const TokenFile> Shard::open() const {
  if (kept) return kept;
  auto file = std::make_shared<const TokenFile>(path);
  if (file->extent() != extent)
    throw InputError(cat(path, ": has changed since the run began; leave token files alone while one reads"));
  return file;
}

Tokens::Tokens(const std::vector<std::string>& paths, int64_t vocabulary)
    : path_(paths.at(0)), vocabulary_(vocabulary) {
  for (const std::string& path : paths) {
    auto file = std::make_shared<const TokenFile>(path);
    const TokenExtent extent = file->extent();
    shards_.push_back({path, 0, extent.count, extent, paths.size() == 1 ? std::move(file) : nullptr});
    const TokenExtent& first = shards_.front().extent;
    if (extent.layout != first.layout)
      throw InputError(cat(path, ": is ", extent.layout, ", but ", path_, " is ", first.layout,
                           "; one of them is damaged, or they are not of one text"));
  }
}

Tokens::Tokens(const std::string& path, std::vector<uint16_t> tokens, int64_t vocabulary)
    : path_(path), vocabulary_(vocabulary) {
  const auto memory = std::make_shared<const TokenFile>(std::move(tokens));
  shards_.push_back({path, 0, memory->extent().count, memory->extent(), memory});
}

size_t Tokens::size() const {
  size_t size = 0;
  for (const Shard& shard : shards_) size += shard.size;
  return size;
}

Tokens Tokens::part(size_t begin, size_t end) const {
  check(begin <= end && end <= size(), "part [", begin, ",", end, ") of ", size(), " tokens");
  Tokens part = *this;
  part.shards_.clear();
  size_t first = 0;  // token of the shard
  for (Shard shard : shards_) {
    const size_t from = std::clamp(begin, first, first + shard.size) - first;
    const size_t to = std::clamp(end, first, first + shard.size) - first;
    first += shard.size;
    shard.begin += from;
    shard.size = to - from;
    if (shard.size > 0) part.shards_.push_back(std::move(shard));
  }
  if (!part.shards_.empty()) part.path_ = part.shards_.front().path;
  return part;
}

void write_token_file(const std::string& path, std::span<const uint16_t> tokens) {
  write_tokens(path, tokens, {});
}

Dataset open_dataset(const std::string& path, const std::string& val_path, const std::string& vocab_dir,
                     int64_t vocabulary) {
  const auto encoding_of = [&](const std::string& file) -> std::string_view {
    if (!is_text(file)) return "tokens";
    return fs::exists(vocab_dir + "/vocab.bpe") ? "gpt2-bpe" : "bytes";
  };
  const auto open = [&](const std::vector<std::string>& files) {
    const auto text = std::ranges::find_if(files, is_text);
    if (text == files.end()) return Tokens(files, vocabulary);
    if (files.size() > 1)
      throw InputError(cat(*text, ": a text is trained on by itself; leave it out, or name it alone"));
    return open_text(*text, encoding_of(*text) == "bytes" ? "" : vocab_dir, vocabulary);
  };
  const auto share = [](Tokens tokens) { return std::make_shared<const Tokens>(std::move(tokens)); };

  Split files = files_of(path);
  if (files.train.empty())
    throw InputError(cat(path, ": ", files.val.front(), files.val.size() > 1 ? " and the others are" : " is",
                         " for validation by name, none is left to train on; name training files too"));
  if (!val_path.empty()) {
    Split other = files_of(val_path);
    files.val = other.val.empty() ? other.train : other.val;
  }

  Dataset data{nullptr, nullptr, std::string(encoding_of(files.train.front()))};
  const Tokens train = open(files.train);
  if (files.val.empty()) {
    const size_t size = train.size(), shards = train.shards().size();
    const size_t cut = size - (shards > 1 ? train.shards().back().size : size / 10);
    data.train = share(train.part(0, cut));
    data.val = share(train.part(cut, size));
    return data;
  }
  if ((data.encoding == "bytes") != (encoding_of(files.val.front()) == "bytes"))
    throw InputError(cat(files.val.front(), " and ", files.train.front(),
                         " differ in encoding: without GPT-2's vocabulary a text is byte ",
                         "tokens; get the vocabulary with scripts/prepare_data.py"));
  data.train = share(train);
  data.val = share(open(files.val));
  return data;
}

Loader::Loader(std::shared_ptr<const Tokens> data, int64_t B, int64_t T, int rank, int world)
    : data_(std::move(data)), B_(B), T_(T), rank_(rank), world_(world) {
  check(B > 0 && T > 0, "batch of ", B, " x ", T);
  const auto refuse = [&](const std::string& path, size_t have) {
    throw InputError(cat(path, ": ", have, " tokens, a batch of B=", B, " x T=", T, " needs ", B * T + 1,
                         "; use a larger file or a smaller --batch or --seq"));
  };
  if (data_->shards().empty()) refuse(data_->path(), 0);
  for (size_t i = 0; i < data_->shards().size(); ++i)
    if (batches_in(i) < 1) refuse(data_->shards()[i].path, data_->shards()[i].size);
  window_.resize(static_cast<size_t>(B * T + 1));
  tokens_.resize(static_cast<size_t>(B * T));
  targets_.resize(static_cast<size_t>(B * T));
  begin_epoch(0);
}

int64_t Loader::batches_in(size_t shard) const {
  return (static_cast<int64_t>(data_->shards()[shard].size) - 1) / (B_ * T_);
}

void Loader::shuffle(uint64_t seed) {
  seed_ = seed;
  begin_epoch(0);
}

void Loader::begin_epoch(int64_t epoch) {
  const std::vector<Shard>& shards = data_->shards();
  epoch_ = epoch;
  turn_.reset();
  order_.resize(shards.size());
  std::iota(order_.begin(), order_.end(), 0);
  if (seed_) order_ = permutation(std::ssize(shards), random_bits(*seed_, static_cast<uint64_t>(epoch)));
  first_ = {0};
  for (const int64_t shard : order_) first_.push_back(first_.back() + batches_in(static_cast<size_t>(shard)));
}

void Loader::begin_shard(size_t turn) {
  const auto shard = static_cast<size_t>(order_[turn]);
  open_ = data_->shards()[shard].open();
  if (seed_) {
    // Counters up to the number of shards drew the order of the shards; the order of sequences uses higher
    // counters.
    const uint64_t epoch_seed = random_bits(*seed_, static_cast<uint64_t>(epoch_));
    const int64_t sequences = (static_cast<int64_t>(data_->shards()[shard].size) - 1) / T_;
    sequences_ = permutation(sequences, random_bits(epoch_seed, order_.size() + 1 + shard));
  }
  turn_ = turn;
}

Batch Loader::next() {
  if (on_next_) on_next_();
  const int64_t epoch = (index_ + rank_) / batches_per_epoch(),
                batch = (index_ + rank_) % batches_per_epoch();
  if (seed_ && epoch != epoch_) begin_epoch(epoch);
  const auto turn = static_cast<size_t>(std::ranges::upper_bound(first_, batch) - first_.begin()) - 1;
  if (turn != turn_) begin_shard(turn);

  const Shard& shard = data_->shards()[static_cast<size_t>(order_[turn])];
  const auto first = static_cast<size_t>((batch - first_[turn]) * B_), T = static_cast<size_t>(T_);
  const size_t span = seed_ ? T : tokens_.size();  // what is read at once
  for (size_t done = 0; done < tokens_.size(); done += span) {
    const size_t sequence = first + done / T;
    const size_t from = shard.begin + (seed_ ? static_cast<size_t>(sequences_[sequence]) : sequence) * T;
    const std::span<uint16_t> window = std::span(window_).first(span + 1);
    open_->read(from, window);
    check_range(shard.path, from, window, data_->vocabulary());
    std::copy_n(window.begin(), span, tokens_.begin() + static_cast<int64_t>(done));
    std::copy_n(window.begin() + 1, span, targets_.begin() + static_cast<int64_t>(done));
  }
  index_ += world_;
  return {tokens_.data(), targets_.data()};
}

}  // namespace stepladder
