#include "model/algorithm_cache.h"

#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "model/atomic_file.h"
#include "model/error.h"
#include "model/mapped_file.h"
#include "model/number.h"
#include "model/random.h"

namespace stepladder {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "stepladder matmul algorithms 2";
constexpr size_t kMaxBytes = 16 << 20;  // some 50 000 algorithms; a GPT-2 step has about 20
constexpr size_t kWordDigits = 16;

std::string hex(uint64_t word) {
  char digits[kWordDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(word));
  return digits;
}

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json header(const AlgorithmSource& source) {
  return {{"format", kFormat},
          {"device", source.device},
          {"compute_capability", source.compute_capability},
          {"library", source.library},
          {"kernels", source.kernels}};
}

/// Reads one algorithm. Throws unless `entry` is as write_algorithm_cache() writes it.
FoundAlgorithm parse(const json& entry) {
  FoundAlgorithm found{.strategy = entry.at("way"), .us = entry.at("us")};
  const auto digits = entry.at("algorithm").get<std::string>();
  check(!found.strategy.empty() && std::isfinite(found.us) && found.us >= 0.0, "not an algorithm");
  check(digits.size() == found.algorithm.size() * kWordDigits, "not an algorithm");
  for (size_t i = 0; i < found.algorithm.size(); ++i) {
    const auto word =
        number_from<uint64_t>(std::string_view(digits).substr(i * kWordDigits, kWordDigits), 16);
    check(word.has_value(), "not an algorithm");
    found.algorithm[i] = *word;
  }
  return found;
}

std::string digits_of(const FoundAlgorithm& found) {
  std::string digits;
  for (const uint64_t word : found.algorithm) digits += hex(word);
  return digits;
}

}  // namespace

std::string fingerprint(const FoundAlgorithms& found) {
  std::string text;
  for (const auto& [key, one] : found) text += cat(key, '\n', one.strategy, '\n', digits_of(one), '\n');
  return text.empty() ? "" : hex(fnv1a(text));
}

std::string algorithm_cache_path(const std::string& folder, const AlgorithmSource& source) {
  std::string name = cat("matmul-", source.device, "-sm", source.compute_capability, "-", source.library, "-",
                         hex(fnv1a(source.kernels)).substr(0, 8), ".json");
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return (std::filesystem::path(folder) / name).string();
}

FoundAlgorithms read_algorithm_cache(const std::string& path, const AlgorithmSource& source) {
  try {
    const MappedFile file(path);
    if (file.bytes().size() > kMaxBytes) return {};
    const json root = json::parse(file.text()), expected = header(source);
    for (const auto& [name, value] : expected.items())
      if (root.at(name) != value) return {};
    const json& algorithms = root.at("algorithms");
    if (root.at("checksum") != hex(fnv1a(text_of(algorithms)))) return {};
    FoundAlgorithms found;
    for (const auto& [key, entry] : algorithms.items()) found.emplace(key, parse(entry));
    return found;
  } catch (const std::exception&) {
    return {};
  }
}

void write_algorithm_cache(const std::string& path, const AlgorithmSource& source,
                           const FoundAlgorithms& found) {
  json algorithms = json::object();
  for (const auto& [key, one] : found)
    algorithms[key] = {{"way", one.strategy}, {"algorithm", digits_of(one)}, {"us", one.us}};
  json root = header(source);
  root["checksum"] = hex(fnv1a(text_of(algorithms)));
  root["algorithms"] = std::move(algorithms);

  std::error_code error;  // ignored: without a folder, writing the file throws
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  write_atomically(path, root.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace stepladder
