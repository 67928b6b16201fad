// Files of matmul algorithms: a round trip, and damaged or foreign files that are ignored.
#include "model/algorithm_cache.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/files.h"

namespace stepladder {
namespace {

const AlgorithmSource kSource{"NVIDIA H200", 90, "cuBLASLt 130100", "1a2b"};

FoundAlgorithms some_algorithms() {
  constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  return {{"TN 768x16384x768 bf16", {"bias", {1, kAll, 0xdeadbeef, 0, 7, kAll - 1, 1ULL << 63, 42}, 35.25}},
          {"NT 768x3072x16384 f16 += \"quoted\"", {"separate", {}, 0.1}}};
}

class AlgorithmCacheTest : public testing::Test {
 protected:
  void SetUp() override { write_algorithm_cache(path_, kSource, some_algorithms()); }

  FoundAlgorithms read() const { return read_algorithm_cache(path_, kSource); }
  /// The text of the good file with the first `from` replaced by `to`.
  std::string damaged(const std::string& from, const std::string& to) const {
    std::string text = read_file(path_);
    const size_t at = text.find(from);
    if (at == std::string::npos) throw Error(cat("no ", from, " in ", text));
    return text.replace(at, from.size(), to);
  }
  void expect_ignored(const std::string& text) {
    write_file(path_, text);
    EXPECT_TRUE(read().empty()) << text.substr(0, 1000);
  }

  TempFolder folder_;
  std::string path_ = algorithm_cache_path(folder_ / "not/there/yet", kSource);
};

TEST_F(AlgorithmCacheTest, ReadsWhatItWrote) {
  EXPECT_EQ(read(), some_algorithms());
  const FoundAlgorithms fewer{*some_algorithms().begin()};
  write_algorithm_cache(path_, kSource, fewer);
  EXPECT_EQ(read(), fewer);
}

TEST(Fingerprint, IsThatOfTheAlgorithmsNotOfTheirTimes) {
  FoundAlgorithms found = some_algorithms();
  const std::string before = fingerprint(found);
  EXPECT_EQ(before.size(), 16U);
  found.begin()->second.us = 7.0;
  EXPECT_EQ(fingerprint(found), before);
  ++found.begin()->second.algorithm[3];
  EXPECT_NE(fingerprint(found), before);
  found = some_algorithms();
  found.begin()->second.strategy = "another";
  EXPECT_NE(fingerprint(found), before);
  found.erase(found.begin());
  EXPECT_NE(fingerprint(found), before);
  EXPECT_EQ(fingerprint({}), "");
}

TEST_F(AlgorithmCacheTest, HasAFileForEachDeviceLibraryAndBuild) {
  const std::string path = algorithm_cache_path("a", kSource);
  EXPECT_TRUE(path.starts_with("a/matmul-NVIDIA_H200-sm90-cuBLASLt_130100-")) << path;
  AlgorithmSource rebuilt = kSource;
  rebuilt.kernels = "3c4d";
  EXPECT_NE(algorithm_cache_path("a", rebuilt), path);
  EXPECT_TRUE(algorithm_cache_path("a", {"../x/\xff$", 75, ""}).starts_with("a/matmul-.._x___-sm75--"));
}

TEST_F(AlgorithmCacheTest, IgnoresAFileOfAnotherDeviceLibraryOrBuild) {
  EXPECT_TRUE(read_algorithm_cache(path_, {"NVIDIA H100", 90, kSource.library, kSource.kernels}).empty());
  EXPECT_TRUE(read_algorithm_cache(path_, {kSource.device, 75, kSource.library, kSource.kernels}).empty());
  EXPECT_TRUE(read_algorithm_cache(path_, {kSource.device, 90, "cuBLASLt 130200", kSource.kernels}).empty());
  EXPECT_TRUE(read_algorithm_cache(path_, {kSource.device, 90, kSource.library, "3c4d"}).empty());
}

TEST_F(AlgorithmCacheTest, IgnoresWhatIsNoFile) {
  EXPECT_TRUE(read_algorithm_cache(folder_ / "missing", kSource).empty());
  EXPECT_TRUE(read_algorithm_cache(folder_ / ".", kSource).empty());
  EXPECT_TRUE(read_algorithm_cache("/dev/zero", kSource).empty());
  EXPECT_TRUE(read_algorithm_cache("", kSource).empty());
}

TEST_F(AlgorithmCacheTest, IgnoresAFileCutShortAnywhere) {
  const std::string text = read_file(path_);
  for (size_t length = 0; length < text.rfind('}'); ++length) expect_ignored(text.substr(0, length));
}

TEST_F(AlgorithmCacheTest, IgnoresAFileWithAnotherDigitInAnAlgorithm) {
  const std::string text = read_file(path_);
  const size_t at = text.find("deadbeef");
  for (size_t i = 0; i < 8; ++i) {
    std::string other = text;
    other[at + i] = '0';
    expect_ignored(other);
  }
  expect_ignored(damaged("35.25", "35.26"));
  expect_ignored(damaged("\"bias\"", "\"bgra\""));
  expect_ignored(damaged("768x16384x768", "768x16384x769"));
}

TEST_F(AlgorithmCacheTest, IgnoresWhatIsNotAsWritten) {
  for (const std::string key :
       {"format", "device", "compute_capability", "library", "kernels", "checksum", "algorithms"})
    expect_ignored(damaged(cat('"', key, '"'), "\"x\""));
  expect_ignored("null");
  expect_ignored("[]");
  expect_ignored("{\"algorithms\": 1e999}");
  expect_ignored(std::string(1 << 20, '['));
  expect_ignored(std::string(1 << 20, '\0'));
  expect_ignored(read_file(path_) + "{}");
  expect_ignored(std::string((16 << 20) + 1, ' '));
}

// The checksum is valid though the entries are no algorithms: only malice or a bug would write such a file.
TEST_F(AlgorithmCacheTest, IgnoresEntriesThatAreNoAlgorithms) {
  const auto with = [&](const std::string& entries) {
    uint64_t hash = 0xcbf29ce484222325U;
    for (const char c : entries) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    std::string digits(16, '0');
    for (size_t i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[hash >> (60 - 4 * i) & 15];
    return cat(
        R"({"format":"stepladder matmul algorithms 2","device":"NVIDIA H200","compute_capability":90,)",
        R"("library":"cuBLASLt 130100","kernels":"1a2b","checksum":")", digits, R"(","algorithms":)", entries,
        "}");
  };
  const std::string zeros(128, '0');
  const auto entry = [&](const std::string& algorithm, const std::string& us, const std::string& way) {
    return with(cat(R"({"key":{"algorithm":")", algorithm, R"(","us":)", us, R"(,"way":)", way, "}}"));
  };
  write_file(path_, entry(zeros, "1.5", "\"bias\""));
  EXPECT_EQ(read(), (FoundAlgorithms{{"key", {"bias", {}, 1.5}}}));

  expect_ignored(entry(zeros.substr(1), "1.5", "\"bias\""));
  expect_ignored(entry(zeros + "0", "1.5", "\"bias\""));
  expect_ignored(entry("-" + zeros.substr(1), "1.5", "\"bias\""));
  expect_ignored(entry("x" + zeros.substr(1), "1.5", "\"bias\""));
  expect_ignored(entry(zeros.substr(1) + "g", "1.5", "\"bias\""));
  expect_ignored(entry(zeros, "-1.5", "\"bias\""));
  expect_ignored(entry(zeros, "null", "\"bias\""));
  expect_ignored(entry(zeros, "\"1.5\"", "\"bias\""));
  expect_ignored(entry(zeros, "1.5", "\"\""));
  expect_ignored(entry(zeros, "1.5", "7"));
  expect_ignored(with(R"({"key":[]})"));
  expect_ignored(with(R"([])"));
  expect_ignored(with(R"("text")"));
}

TEST_F(AlgorithmCacheTest, WritesWhatCanBeReadWhateverTheNames) {
  const AlgorithmSource source{"\xff\xfe \"GPU\"\n", 90, ""};
  const std::string path = algorithm_cache_path(folder_ / "odd", source);
  EXPECT_NO_THROW(write_algorithm_cache(path, source, some_algorithms()));
  EXPECT_NO_THROW(read_algorithm_cache(path, source));
}

TEST_F(AlgorithmCacheTest, SaysWhereItCannotWrite) {
  const std::string path = algorithm_cache_path("/proc", kSource);
  EXPECT_TRUE(says(input_error([&] { write_algorithm_cache(path, kSource, {}); }), {path, "cannot write"}));
}

}  // namespace
}  // namespace stepladder
