#include "model/file_kind.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <utility>

namespace stepladder {
namespace {

using namespace std::literals;

struct Magic {
  std::string_view bytes;
  FileKind kind;
};

constexpr std::string_view kUnpack = "unpack it";
constexpr std::string_view kTokenise = "write its text to a .txt";
constexpr std::string_view kDownload = "download the file itself, and look at the address";

constexpr Magic kMagics[] = {
    {"version https://git-lfs.github.com/spec/"sv,
     {"a Git LFS pointer", "`git lfs pull` in its repository gets the file itself"}},
    {"<?xml"sv, {"an XML page", kDownload}},
    {"PK\x03\x04"sv, {"a zip archive, as PyTorch's .pt and NumPy's .npz are", ""}},
    {"PK\x05\x06"sv, {"an empty zip archive", ""}},
    {"\x80\x02\x8A\x0Al\xFC\x9C"sv, {"a Python pickle, as PyTorch's .pt once was", ""}},
    {"\x1F\x8B\x08\x00"sv, {"a gzip archive", kUnpack}},
    {"\x1F\x8B\x08\x08"sv, {"a gzip archive", kUnpack}},
    {"\x28\xB5\x2F\xFD"sv, {"a Zstandard archive", kUnpack}},
    {"\xFD"
     "7zXZ"sv,
     {"an xz archive", kUnpack}},
    {"PAR1"sv, {"an Apache Parquet table", kTokenise}},
    {"ARROW1"sv, {"an Apache Arrow table", kTokenise}},
    {"\x89HDF"sv, {"an HDF5 file", ""}},
    {"GGUF"sv, {"llama.cpp's GGUF", ""}},
};

// The first int32 of llm.c's files.
constexpr std::pair<int32_t, std::string_view> kLlmc[] = {
    {kLlmcWeights, "llm.c's weights"},
    {20240327, "llm.c's state to test against"},
    {20240328, "llm.c's tokenizer"},
    {kLlmcTokens, "llm.c's tokens"},
    {kLlmcEvaluation, "llm.c's evaluation (HellaSwag, MMLU)"},
    {20240527, "llm.c's optimizer state"},
    {20240801, "llm.c's tokens of Llama 3 (uint32)"},
    {20240803, "llm.c's Llama 3"},
};

bool begins_as_html(std::string_view head) {
  head.remove_prefix(std::min(head.find_first_not_of("\xEF\xBB\xBF \t\r\n"), head.size()));
  constexpr std::string_view kTags[] = {"<!doctype html", "<html"};
  return std::ranges::any_of(kTags, [&](std::string_view tag) {
    return std::ranges::equal(head.substr(0, tag.size()), tag, {},
                              [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  });
}

}  // namespace

FileKind kind_of(std::string_view head) {
  if (head.size() > 9 && head.substr(4, 6) == "\0\0\0\0{\""sv) return {kSafetensors, ""};
  for (const auto& [bytes, kind] : kMagics)
    if (head.starts_with(bytes)) return kind;
  if (begins_as_html(head)) return {"an HTML page", kDownload};
  int32_t magic = 0;
  if (head.size() >= sizeof magic) std::memcpy(&magic, head.data(), sizeof magic);
  for (const auto& [number, what] : kLlmc)
    if (magic == number) return {what, ""};
  return {};
}

}  // namespace stepladder
