#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>
#include <utility>

#include "model/error.h"
#include "model/mapped_file.h"

namespace stepladder {
namespace {

constexpr int32_t kMerges = 50000, kVocabulary = 256 + kMerges + 1;
constexpr std::string_view kCure = "; get it with scripts/prepare_data.py";

// GPT-2's pattern (Radford et al. 2019, encoder.py). \s is spelled out as Unicode's White_Space, since
// PCRE2's also takes U+180E.
constexpr std::string_view kPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{Z}\t-\r\x{85}\p{L}\p{N}]+)"
    R"(|[\p{Z}\t-\r\x{85}]+(?![^\p{Z}\t-\r\x{85}])|[\p{Z}\t-\r\x{85}]+)";

// Whether GPT-2's files write a byte as itself; tokens of such bytes come first, in order, then the tokens of
// the other bytes.
constexpr bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<int32_t, 256> byte_tokens() {
  std::array<int32_t, 256> tokens{};
  int32_t next = 0;
  for (int byte = 0; byte < 256; ++byte)
    if (is_printable(byte)) tokens[byte] = next++;
  for (int byte = 0; byte < 256; ++byte)
    if (!is_printable(byte)) tokens[byte] = next++;
  return tokens;
}
constexpr auto kByteTokens = byte_tokens();

// The bytes behind GPT-2's spelling of a token: a printable byte is spelled as the code point of its value,
// the n-th other byte as code point 256 + n. Empty for an invalid spelling.
std::string unspell(std::string_view spelled) {
  static const auto bytes = [] {
    std::array<int, 512> map;
    map.fill(-1);
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) map[is_printable(byte) ? byte : next++] = byte;
    return map;
  }();
  std::string out;
  for (size_t i = 0; i < spelled.size(); ++i) {
    unsigned code = static_cast<unsigned char>(spelled[i]);
    if (code >= 0x80) {  // two bytes of UTF-8, as all of the alphabet is below U+0200
      if (code < 0xC0 || code >= 0xC8 || ++i == spelled.size()) return {};
      code = (code & 0x1F) << 6 | (static_cast<unsigned char>(spelled[i]) & 0x3F);
    }
    if (bytes[code] < 0) return {};
    out += static_cast<char>(bytes[code]);
  }
  return out;
}

constexpr uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

struct PcreFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::unique_ptr<pcre2_code, PcreFree> compile_pattern() {
  int error = 0;
  PCRE2_SIZE at = 0;
  std::unique_ptr<pcre2_code, PcreFree> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern.data()),
                                                           kPattern.size(), PCRE2_UTF, &error, &at, nullptr));
  if (!code)
    throw Error(cat("PCRE2 error ", error, " in the tokenizer's pattern at ", at, "; update libpcre2"));
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // a PCRE2 without JIT interprets
  return code;
}

std::string pcre2_text(uint32_t what) {
  std::string text(static_cast<size_t>(std::max(1, pcre2_config(what, nullptr))), '\0');
  pcre2_config(what, text.data());
  text.resize(text.find('\0'));
  return text;
}

MappedFile open(const std::string& path) {
  if (!std::filesystem::exists(path)) throw InputError(cat(path, ": missing", kCure));
  return MappedFile(path);
}

}  // namespace

struct Tokenizer::Impl {
  std::unique_ptr<pcre2_code, PcreFree> pattern;
  std::vector<std::string> bytes_of;  // bytes of each token
  std::unordered_map<uint64_t, int32_t>
      merged;  // pair_key -> token; a pair's rank is token - 256, the lowest merges first

  void read_vocabulary(const std::string& path);
  void read_merges(const std::string& path);
  void encode_valid(std::string_view text, std::vector<int32_t>& out) const;
  void encode_piece(std::string_view piece, std::vector<int32_t>& out) const;
};

void Tokenizer::Impl::read_vocabulary(const std::string& path) {
  const MappedFile file = open(path);
  const auto json = nlohmann::json::parse(file.text(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.size() != kVocabulary)
    throw InputError(cat(path, ": not GPT-2's vocabulary of ", kVocabulary, " tokens", kCure));
  bytes_of.resize(kVocabulary);
  for (const auto& [spelled, id] : json.items()) {
    const int64_t token = id.is_number_integer() ? id.get<int64_t>() : -1;
    std::string bytes = unspell(spelled);
    if (token < 0 || token >= kVocabulary || !bytes_of[token].empty() || bytes.empty())
      throw InputError(cat(path, ": entry '", spelled, "' is not GPT-2's", kCure));
    bytes_of[token] = std::move(bytes);
  }
  for (int byte = 0; byte < 256; ++byte)
    if (bytes_of[kByteTokens[byte]] != std::string(1, static_cast<char>(byte)))
      throw InputError(cat(path, ": token ", kByteTokens[byte], " is not GPT-2's byte ", byte, kCure));
}

void Tokenizer::Impl::read_merges(const std::string& path) {
  std::unordered_map<std::string_view, int32_t> token_of;
  for (int32_t token = 0; token < kVocabulary; ++token) token_of[bytes_of[token]] = token;
  const auto find = [&](const std::string& bytes) {
    const auto it = token_of.find(bytes);
    return it == token_of.end() ? -1 : it->second;
  };

  const MappedFile file = open(path);
  std::string_view rest = file.text();
  merged.reserve(kMerges);
  for (int32_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.starts_with("#version") || line.empty()) continue;
    const size_t space = std::min(line.find(' '), line.size());
    const std::string left = unspell(line.substr(0, space));
    const std::string right = unspell(line.substr(std::min(space + 1, line.size())));
    const auto token = static_cast<int32_t>(256 + merged.size());
    if (left.empty() || right.empty() || find(left) < 0 || find(right) < 0 || find(left + right) != token)
      throw InputError(cat(path, ": line ", number, " is not GPT-2's merge", kCure));
    merged[pair_key(find(left), find(right))] = token;
  }
  if (merged.size() != kMerges)
    throw InputError(cat(path, ": ", merged.size(), " merges, GPT-2 has ", kMerges, kCure));
}

// Appends the tokens of `text`, which is valid UTF-8, to `out`.
void Tokenizer::Impl::encode_valid(std::string_view text, std::vector<int32_t>& out) const {
  const std::unique_ptr<pcre2_match_data, PcreFree> match(pcre2_match_data_create(1, nullptr));
  std::unordered_map<std::string_view, std::pair<size_t, size_t>>
      seen;  // piece -> where `out` has its tokens
  for (size_t at = 0; at < text.size();) {
    const int found = pcre2_match(pattern.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (found < 0) throw Error(cat("PCRE2 error ", found, " while tokenising; update libpcre2"));
    const std::string_view piece = text.substr(at, pcre2_get_ovector_pointer(match.get())[1] - at);
    at += piece.size();

    const size_t begin = out.size();
    const auto [it, is_new] = seen.try_emplace(piece);
    if (is_new) {
      encode_piece(piece, out);
      it->second = {begin, out.size()};
    } else {
      for (size_t i = it->second.first; i < it->second.second; ++i) out.push_back(out[i]);
    }
  }
}

// Byte-pair encoding (Sennrich et al. 2016): merges the pair of lowest rank, leftmost first, until none is
// left. O(n log n): `piece` may be a whole file without a blank.
void Tokenizer::Impl::encode_piece(std::string_view piece, std::vector<int32_t>& out) const {
  struct Symbol {
    int32_t token;  // -1 once merged into its left neighbour
    int32_t previous, next;
  };
  struct Merge {
    int32_t token, at;  // position of the left symbol
    int32_t left, right;
    bool operator>(const Merge& o) const { return std::pair(token, at) > std::pair(o.token, o.at); }
  };
  const auto size = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  std::priority_queue<Merge, std::vector<Merge>, std::greater<>> merges;
  const auto consider = [&](int32_t at) {
    if (at < 0 || symbols[at].next >= size) return;
    const int32_t left = symbols[at].token, right = symbols[symbols[at].next].token;
    const auto it = merged.find(pair_key(left, right));
    if (it != merged.end()) merges.push({it->second, at, left, right});
  };

  for (int32_t i = 0; i < size; ++i)
    symbols[i] = {kByteTokens[static_cast<unsigned char>(piece[i])], i - 1, i + 1};
  for (int32_t i = 0; i < size; ++i) consider(i);
  while (!merges.empty()) {
    const Merge merge = merges.top();
    merges.pop();
    Symbol& left = symbols[merge.at];
    if (left.token != merge.left || left.next >= size) continue;  // stale: its symbol was merged since
    Symbol& right = symbols[left.next];
    if (right.token != merge.right) continue;
    left.token = merge.token;
    left.next = right.next;
    right.token = -1;
    if (left.next < size) symbols[left.next].previous = merge.at;
    consider(left.previous);
    consider(merge.at);
  }
  for (int32_t i = 0; i < size; i = symbols[i].next) out.push_back(symbols[i].token);
}

Tokenizer::Tokenizer(const std::string& dir) : impl_(std::make_unique<Impl>()) {
  impl_->read_vocabulary(dir + "/encoder.json");
  impl_->read_merges(dir + "/vocab.bpe");
  impl_->pattern = compile_pattern();
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, PcreFree> match(pcre2_match_data_create(1, nullptr));
  std::vector<int32_t> tokens;
  while (!text.empty()) {
    // PCRE2 checks the text before it matches. A byte that is not UTF-8 becomes its byte token, and splits
    // the text there.
    const int found = pcre2_match(impl_->pattern.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), 0, 0, match.get(), nullptr);
    const bool valid = found < PCRE2_ERROR_UTF8_ERR21 || found > PCRE2_ERROR_UTF8_ERR1;
    const size_t size = valid ? text.size() : pcre2_get_startchar(match.get());
    impl_->encode_valid(text.substr(0, size), tokens);
    if (!valid) tokens.push_back(kByteTokens[static_cast<unsigned char>(text[size])]);
    text.remove_prefix(valid ? size : size + 1);
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens)
    text += token >= 0 && token < kVocabulary ? impl_->bytes_of[token] : "\xEF\xBF\xBD";
  return text;
}

std::string tokenizer_unicode() {
  return cat("Unicode ", pcre2_text(PCRE2_CONFIG_UNICODE_VERSION), " (PCRE2 ",
             pcre2_text(PCRE2_CONFIG_VERSION), ')');
}

std::vector<int32_t> encode_bytes(std::string_view text) {
  std::vector<int32_t> tokens(text.size());
  std::ranges::transform(text, tokens.begin(),
                         [](char c) { return kByteTokens[static_cast<unsigned char>(c)]; });
  return tokens;
}

std::string decode_bytes(std::span<const int32_t> tokens) {
  std::string text;
  for (const int32_t token : tokens) {
    const auto byte = std::ranges::find(kByteTokens, token);
    if (byte == kByteTokens.end()) {
      text += "\xEF\xBF\xBD";
    } else {
      text += static_cast<char>(byte - kByteTokens.begin());
    }
  }
  return text;
}

}  // namespace stepladder
