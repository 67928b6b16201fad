#include "model/data.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "model/atomic_file.h"
#include "model/error.h"
#include "model/mapped_file.h"
#include "model/tokenizer.h"

namespace stepladder {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::string_view kSeparator = "<|endoftext|>";

// A text as it was when it was tokenised.
struct Stamp {
  int64_t bytes = 0, modified = 0;  // the latter in clock ticks
  bool operator==(const Stamp&) const = default;
};

// llm.c's header. It leaves all after the count unused; we note there which text the tokens are of.
struct TokenHeader {
  int32_t magic = 20240520, version = 1, count = 0, unused = 0;
  Stamp source;
  std::array<int32_t, 248> rest{};
};
static_assert(sizeof(TokenHeader) == 256 * sizeof(int32_t));

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Where a token file of any format holds its tokens.
struct Extent {
  size_t offset, count;
};

Extent llmc_extent(const std::string& path, std::span<const std::byte> file) {
  TokenHeader header;
  if (file.size() < sizeof header)
    throw InputError(cat(path, ": truncated: ", file.size(), " bytes, an llm.c header alone has ",
                         sizeof header, "; write it again"));
  std::memcpy(&header, file.data(), sizeof header);
  if (header.version != TokenHeader{}.version)
    throw InputError(cat(path, ": llm.c tokens of version ", header.version, ", want version ",
                         TokenHeader{}.version, " (uint16 GPT-2 tokens); prepare it for GPT-2"));
  const auto count = static_cast<size_t>(static_cast<uint32_t>(header.count));
  const size_t expected = sizeof header + count * sizeof(uint16_t);
  if (file.size() != expected)
    throw InputError(cat(path, ": ", file.size() < expected ? "truncated: " : "oversized: ", file.size(),
                         " bytes, its header's ", count, " tokens make ", expected, "; write it again"));
  return {sizeof header, count};
}

// What follows `key` in the dict of an .npy header, blanks skipped; empty when absent.
std::string_view npy_value(std::string_view dict, std::string_view key) {
  const size_t at = dict.find(key);
  if (at == std::string_view::npos) return {};
  dict.remove_prefix(at + key.size());
  dict.remove_prefix(std::min(dict.find_first_not_of(" :"), dict.size()));
  return dict;
}

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
Extent npy_extent(const std::string& path, std::span<const std::byte> file) {
  const auto byte = [&](size_t i) { return i < file.size() ? static_cast<size_t>(file[i]) : size_t{0}; };
  const size_t major = byte(6);
  const size_t dict_at = major == 1 ? 10 : 12;
  size_t dict_size = byte(8) | byte(9) << 8;
  if (major > 1) dict_size |= byte(10) << 16 | byte(11) << 24;
  const size_t offset = dict_at + dict_size;
  if (major < 1 || major > 3 || offset > file.size())
    throw InputError(cat(path, ": damaged .npy header; write it again with numpy.save"));

  const std::string_view dict = text_of(file.subspan(dict_at, dict_size));
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
  if (count != (file.size() - offset) / sizeof(uint16_t) || (file.size() - offset) % sizeof(uint16_t))
    throw InputError(cat(
        path, ": ", (file.size() - offset) / 2 < count ? "truncated: " : "oversized: ", file.size() - offset,
        " bytes of tokens, its header says ", count, " tokens of 2; write it again"));
  return {offset, count};
}

Extent raw_extent(const std::string& path, std::span<const std::byte> file) {
  if (file.empty()) throw InputError(cat(path, ": empty; write it again"));
  if (file.size() % sizeof(uint16_t) != 0)
    throw InputError(cat(path, ": ", file.size(),
                         " bytes is no whole number of uint16 tokens, and the file is ",
                         "neither llm.c's .bin nor .npy; write it again"));
  return {0, file.size() / sizeof(uint16_t)};
}

Extent extent_of(const std::string& path, std::span<const std::byte> file) {
  if (text_of(file).starts_with(kNpyMagic)) return npy_extent(path, file);
  int32_t magic = 0;
  if (file.size() >= sizeof magic) std::memcpy(&magic, file.data(), sizeof magic);
  if (magic == TokenHeader{}.magic) return llmc_extent(path, file);
  if (magic == 20240326) throw InputError(cat(path, ": llm.c weights, not tokens; name a token file"));
  if (magic == 20240801)
    throw InputError(cat(path, ": llm.c tokens of Llama 3 (uint32), not GPT-2; prepare it for GPT-2"));
  return raw_extent(path, file);
}

void check_range(const std::string& path, std::span<const uint16_t> tokens, int64_t vocabulary) {
  uint16_t largest = 0;
  for (const uint16_t token : tokens) largest = std::max(largest, token);
  if (tokens.empty() || largest < vocabulary) return;
  const auto bad = std::ranges::find_if(tokens, [&](uint16_t token) { return token >= vocabulary; });
  throw InputError(cat(path, ": token ", *bad, " at position ", bad - tokens.begin(),
                       " is outside the vocabulary of ", vocabulary,
                       "; not GPT-2 tokens, or a model with a smaller vocabulary"));
}

void write_tokens(const std::string& path, std::span<const uint16_t> tokens, Stamp source) {
  check(tokens.size() <= INT32_MAX, tokens.size(), " tokens, llm.c's header counts to ", INT32_MAX);
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
         std::filesystem::file_size(path, error) == sizeof header + sizeof(uint16_t) * header.count;
}

// `vocab_dir` is empty for byte tokens.
Tokens open_text(const std::string& path, const std::string& vocab_dir, int64_t vocabulary) {
  const MappedFile file(path);
  const Stamp stamp{static_cast<int64_t>(file.bytes().size()),
                    std::filesystem::last_write_time(path).time_since_epoch().count()};
  const std::string kept = path + (vocab_dir.empty() ? ".bytes.bin" : ".gpt2.bin");
  if (is_current(kept, stamp)) return {kept, vocabulary};

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
    // A read-only or full disk costs the next run a second, not this one its data.
    return {path, std::move(tokens), vocabulary};
  }
  return {kept, vocabulary};
}

}  // namespace

Tokens::Tokens(const std::string& path, int64_t vocabulary) : path_(path) {
  const auto file = std::make_shared<const MappedFile>(path);
  const auto [offset, count] = extent_of(path, file->bytes());
  tokens_ = {reinterpret_cast<const uint16_t*>(file->bytes().data() + offset), count};
  memory_ = file;
  check_range(path, tokens_, vocabulary);
}

Tokens::Tokens(const std::string& path, std::vector<uint16_t> tokens, int64_t vocabulary) : path_(path) {
  const auto memory = std::make_shared<const std::vector<uint16_t>>(std::move(tokens));
  tokens_ = *memory;
  memory_ = memory;
  check_range(path, tokens_, vocabulary);
}

Tokens Tokens::part(size_t begin, size_t end) const {
  check(begin <= end && end <= tokens_.size(), "part [", begin, ",", end, ") of ", tokens_.size(), " tokens");
  Tokens part = *this;
  part.tokens_ = tokens_.subspan(begin, end - begin);
  return part;
}

void write_token_file(const std::string& path, std::span<const uint16_t> tokens) {
  write_tokens(path, tokens, {});
}

Dataset open_dataset(const std::string& path, const std::string& val_path, const std::string& vocab_dir,
                     int64_t vocabulary) {
  const auto encoding_of = [&](const std::string& file) {
    if (!file.ends_with(".txt")) return "tokens";
    return std::filesystem::exists(vocab_dir + "/vocab.bpe") ? "gpt2-bpe" : "bytes";
  };
  const auto open = [&](const std::string& file) {
    const std::string encoding = encoding_of(file);
    if (encoding == "tokens") return Tokens(file, vocabulary);
    return open_text(file, encoding == "bytes" ? "" : vocab_dir, vocabulary);
  };
  const auto share = [](Tokens tokens) { return std::make_shared<const Tokens>(std::move(tokens)); };

  Dataset data{nullptr, nullptr, encoding_of(path)};
  const Tokens train = open(path);
  if (val_path.empty()) {
    const size_t size = train.tokens().size(), cut = size - size / 10;
    data.train = share(train.part(0, cut));
    data.val = share(train.part(cut, size));
    return data;
  }
  if ((data.encoding == "bytes") != (encoding_of(val_path) == std::string_view("bytes")))
    throw InputError(cat(val_path, " and ", path,
                         " differ in encoding: without GPT-2's vocabulary a text is byte ",
                         "tokens; get the vocabulary with scripts/prepare_data.py"));
  data.train = share(train);
  data.val = share(open(val_path));
  return data;
}

Loader::Loader(std::shared_ptr<const Tokens> data, int64_t B, int64_t T, int rank, int world)
    : data_(std::move(data)), B_(B), T_(T), rank_(rank), world_(world) {
  check(B > 0 && T > 0, "batch of ", B, " x ", T);
  const auto have = static_cast<int64_t>(data_->tokens().size());
  if ((have - 1) / T < B)
    throw InputError(cat(data_->path(), ": ", have, " tokens, a batch of B=", B, " x T=", T, " needs ",
                         B * T + 1, "; use a larger file or a smaller --batch or --seq"));
  tokens_.resize(static_cast<size_t>(B * T));
  targets_.resize(static_cast<size_t>(B * T));
}

Batch Loader::next() {
  if (on_next_) on_next_();
  const size_t size = tokens_.size();
  const auto from = static_cast<size_t>((index_ + rank_) % batches_per_epoch()) * size;
  const auto window = data_->tokens().subspan(from, size + 1);
  std::ranges::copy(window.first(size), tokens_.begin());
  std::ranges::copy(window.last(size), targets_.begin());
  index_ += world_;
  return {tokens_.data(), targets_.data()};
}

int64_t Loader::batches_per_epoch() const {
  return (static_cast<int64_t>(data_->tokens().size()) - 1) / (B_ * T_);
}

}  // namespace stepladder
