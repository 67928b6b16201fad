// Token files: the three formats, damage to each, text, and batches.
#include "model/data.h"

#include <signal.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <numeric>

#include "model/atomic_file.h"
#include "model/tokenizer.h"
#include "tests/files.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kV = 50257;

std::vector<uint16_t> counting(size_t count, uint16_t first = 0) {
  std::vector<uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<uint16_t> read(const std::string& path, int64_t vocabulary = kV) {
  const Tokens tokens(path, vocabulary);
  return {tokens.tokens().begin(), tokens.tokens().end()};
}

std::string raw(const std::vector<uint16_t>& tokens) {
  return bytes_of<uint16_t>(tokens);
}

std::string llmc(int32_t magic, int32_t version, int32_t count, const std::vector<uint16_t>& tokens) {
  std::array<int32_t, 256> header{magic, version, count};
  return bytes_of<int32_t>(header) + raw(tokens);
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  std::string dict = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  dict.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict + "\n" + data;
}

// ---- formats ---------------------------------------------------------------------------------------------

TEST(TokenFile, ReadsLlmc) {
  const TempFolder folder;
  write_file(folder / "t.bin", llmc(20240520, 1, 5, counting(5, 7)));
  EXPECT_EQ(read(folder / "t.bin"), counting(5, 7));
}

TEST(TokenFile, WritesWhatLlmcReads) {
  const TempFolder folder;
  write_token_file(folder / "t.bin", counting(5, 7));
  EXPECT_EQ(read_file(folder / "t.bin"), llmc(20240520, 1, 5, counting(5, 7)));
}

TEST(TokenFile, ReadsRawUint16) {
  const TempFolder folder;
  write_file(folder / "t.bin", raw(counting(5, 7)));
  EXPECT_EQ(read(folder / "t.bin"), counting(5, 7));
}

TEST(TokenFile, ReadsNumpysNpy) {
  EXPECT_EQ(read(STEPLADDER_TEST_DATA "/tokens.npy"), counting(64, 100));
}

TEST(TokenFile, ReadsNpyOfVersionTwo) {
  const TempFolder folder;
  std::string file = npy("<u2", "(5,)", raw(counting(5)));
  file.replace(6, 4, std::string("\x02\x00\x76\x00\x00\x00", 6));
  write_file(folder / "t.npy", file);
  EXPECT_EQ(read(folder / "t.npy"), counting(5));
}

struct Damage {
  const char* name;
  std::string bytes;
  std::string says;
};

class DamagedTokenFile : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedTokenFile, IsRefusedByNameAndReason) {
  const TempFolder folder;
  write_file(folder / "damaged.bin", GetParam().bytes);
  const std::string what = input_error([&] { Tokens(folder / "damaged.bin", kV); });
  EXPECT_TRUE(says(what, {"damaged.bin", GetParam().says}));
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedTokenFile,
    ::testing::Values(
        Damage{"empty", "", "empty"}, Damage{"odd", "abc", "3 bytes"},
        Damage{"llmc_header_cut", llmc(20240520, 1, 0, {}).substr(0, 1023), "truncated: 1023 bytes"},
        Damage{"llmc_truncated", llmc(20240520, 1, 6, counting(5)), "truncated: 1034 bytes, its header's 6"},
        Damage{"llmc_oversized", llmc(20240520, 1, 4, counting(5)), "oversized: 1034 bytes, its header's 4"},
        Damage{"llmc_odd", llmc(20240520, 1, 5, counting(5)) + "x", "oversized: 1035"},
        Damage{"llmc_negative", llmc(20240520, 1, -1, counting(5)), "truncated"},
        Damage{"llmc_version", llmc(20240520, 2, 5, counting(5)), "version 2"},
        Damage{"llmc_weights", llmc(20240326, 3, 5, counting(5)), "weights"},
        Damage{"llmc_llama", llmc(20240801, 7, 5, counting(5)), "Llama"},
        Damage{"npy_int32", npy("<i4", "(5,)", raw(counting(10))), "not a vector of uint16"},
        Damage{"npy_big_endian", npy(">u2", "(5,)", raw(counting(5))), "not a vector of uint16"},
        Damage{"npy_matrix", npy("<u2", "(5, 1)", raw(counting(5))), "not a vector of uint16"},
        Damage{"npy_scalar", npy("<u2", "()", raw(counting(1))), "not a vector of uint16"},
        Damage{"npy_truncated", npy("<u2", "(6,)", raw(counting(5))), "truncated: 10 bytes"},
        Damage{"npy_oversized", npy("<u2", "(4,)", raw(counting(5))), "oversized: 10 bytes"},
        Damage{"npy_odd", npy("<u2", "(5,)", raw(counting(5)) + "x"), "oversized: 11 bytes"},
        Damage{"npy_huge", npy("<u2", "(99999999999999999999,)", ""), "not a vector of uint16"},
        Damage{"npy_no_shape", std::string("\x93NUMPY\x01\x00\x02\x00{}", 12), "not a vector of uint16"},
        Damage{"npy_header_cut", std::string("\x93NUMPY\x01\x00\x76\x00{'de", 14), "damaged .npy header"},
        Damage{"npy_magic_only", "\x93NUMPY", "damaged .npy header"},
        Damage{"npy_version", std::string("\x93NUMPY\x09\x00\x02\x00{}", 12), "damaged .npy header"},
        Damage{"out_of_range", raw({1, 2, 50256, 50257, 60000}), "token 50257 at position 3"}),
    [](const auto& test) { return test.param.name; });

TEST(TokenFile, RefusesWhatIsNoFile) {
  const TempFolder folder;
  EXPECT_TRUE(says(input_error([&] { Tokens(folder / "none.bin", kV); }), {"none.bin", "No such file"}));
  fs::create_directory(folder / "sub");
  EXPECT_TRUE(says(input_error([&] { Tokens(folder / "sub", kV); }), {"sub", "not a regular file"}));
}

TEST(TokenFile, ChecksTokensAgainstTheModelsVocabulary) {
  EXPECT_EQ(Tokens("memory", {0, 127}, 128).tokens().size(), 2U);
  EXPECT_TRUE(says(input_error([] { Tokens("memory", {0, 127}, 127); }), {"memory", "token 127", "127"}));
}

TEST(TokenFile, PartsOutliveTheWhole) {
  const Tokens part = Tokens("memory", counting(10), kV).part(3, 5);
  EXPECT_EQ(std::vector(part.tokens().begin(), part.tokens().end()), counting(2, 3));
  EXPECT_THROW(part.part(1, 3), std::invalid_argument);
}

// ---- atomic writing --------------------------------------------------------------------------------------

TEST(AtomicFile, LeavesTheOldFileUnlessCommitted) {
  const TempFolder folder;
  write_file(folder / "f", "old");
  {
    AtomicFile file(folder / "f");
    file.write("new");
    EXPECT_EQ(read_file(folder / "f"), "old");
  }
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(folder.count(), 1U) << "the temporary file is left";

  AtomicFile file(folder / "f");
  file.write("new");
  file.commit();
  EXPECT_EQ(read_file(folder / "f"), "new");
  EXPECT_EQ(folder.count(), 1U);
}

TEST(AtomicFile, KeepsALinkALink) {
  const TempFolder folder;
  write_file(folder / "f", "old");
  fs::create_symlink(folder / "f", folder / "link");
  AtomicFile file(folder / "link");
  file.write("new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "f"), "new");
}

TEST(AtomicFile, RefusesWhatCannotBeReplaced) {
  const TempFolder folder;
  EXPECT_TRUE(says(input_error([] { AtomicFile("/dev/null"); }), {"/dev/null", "not a regular file"}));
  EXPECT_TRUE(says(input_error([&] { AtomicFile(folder / "no/f"); }), {"no/f", "create the folder"}));
}

// A limit on file size fails a write as a full disk does.
TEST(AtomicFile, AFullDiskLeavesTheOldFile) {
  const TempFolder folder;
  write_file(folder / "t.bin", "old");
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{2000, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string what = input_error([&] { write_token_file(folder / "t.bin", counting(1000)); });
  setrlimit(RLIMIT_FSIZE, &old_limit);
  signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(says(what, {"t.bin", "cannot write", "name another"}));
  EXPECT_EQ(read_file(folder / "t.bin"), "old");
  EXPECT_EQ(folder.count(), 1U) << "the temporary file is left";
}

// ---- data sets -------------------------------------------------------------------------------------------

TEST(Dataset, HoldsOutTheLastTenth) {
  const TempFolder folder;
  write_token_file(folder / "t.bin", counting(109));
  const Dataset data = open_dataset(folder / "t.bin", "", "", kV);
  EXPECT_EQ(data.encoding, "tokens");
  EXPECT_EQ(data.train->tokens().size(), 99U);
  EXPECT_EQ(data.val->tokens().size(), 10U);
  EXPECT_EQ(data.val->tokens()[0], 99);
}

TEST(Dataset, TakesASeparateValidationFile) {
  const TempFolder folder;
  write_token_file(folder / "t.bin", counting(100));
  write_token_file(folder / "v.bin", counting(7));
  const Dataset data = open_dataset(folder / "t.bin", folder / "v.bin", "", kV);
  EXPECT_EQ(data.train->tokens().size(), 100U);
  EXPECT_EQ(data.val->tokens().size(), 7U);
}

TEST(Dataset, TextWithoutAVocabularyIsByteTokens) {
  const TempFolder folder;
  write_file(folder / "t.txt", "Hello<|endoftext|>world!!");
  const Dataset data = open_dataset(folder / "t.txt", "", folder / "none", kV);
  EXPECT_EQ(data.encoding, "bytes");
  EXPECT_EQ(data.train->tokens().size() + data.val->tokens().size(), 13U);
  const auto hello = encode_bytes("Hello");
  EXPECT_TRUE(std::equal(hello.begin(), hello.end(), data.train->tokens().begin()));
  EXPECT_EQ(data.train->tokens()[5], Tokenizer::kEndOfText);
  EXPECT_EQ(Tokens(folder / "t.txt.bytes.bin", kV).tokens().size(), 13U) << "not kept for the next time";
}

TEST(Dataset, TokensOfATextAreKeptUntilItChanges) {
  const TempFolder folder;
  const auto first_token = [&] { return open_dataset(folder / "t.txt", "", "", kV).train->tokens()[0]; };
  write_file(folder / "t.txt", std::string(20, 'a'));
  const auto time = fs::last_write_time(folder / "t.txt");
  EXPECT_EQ(first_token(), encode_bytes("a")[0]);
  const auto kept = fs::last_write_time(folder / "t.txt.bytes.bin");
  EXPECT_EQ(first_token(), encode_bytes("a")[0]);
  EXPECT_EQ(fs::last_write_time(folder / "t.txt.bytes.bin"), kept) << "tokenised again";

  write_file(folder / "t.txt", std::string(20, 'b'));  // an older file of the same size
  fs::last_write_time(folder / "t.txt", time - std::chrono::hours(1));
  EXPECT_EQ(first_token(), encode_bytes("b")[0]);
  write_file(folder / "t.txt", std::string(21, 'c'));  // another size, the same time
  fs::last_write_time(folder / "t.txt", time - std::chrono::hours(1));
  EXPECT_EQ(first_token(), encode_bytes("c")[0]);
  fs::resize_file(folder / "t.txt.bytes.bin", 1030);  // damaged
  EXPECT_EQ(first_token(), encode_bytes("c")[0]);
}

TEST(Dataset, TextInAReadOnlyFolderStaysInMemory) {
  const TempFolder folder;
  write_file(folder / "t.txt", std::string(20, 'a'));
  fs::create_directory(folder / "t.txt.bytes.bin");  // nothing can be put there
  EXPECT_EQ(open_dataset(folder / "t.txt", "", "", kV).train->tokens().size(), 18U);
}

TEST(Dataset, EncodingsDoNotMix) {
  const TempFolder folder;
  write_file(folder / "t.txt", std::string(20, 'a'));
  write_token_file(folder / "v.bin", counting(100));
  const std::string what = input_error([&] { open_dataset(folder / "t.txt", folder / "v.bin", "", kV); });
  EXPECT_TRUE(says(what, {"t.txt", "v.bin", "byte tokens"}));
}

// ---- batches ---------------------------------------------------------------------------------------------

std::vector<int32_t> tokens_of(const Batch& batch, size_t size) {
  return {batch.tokens, batch.tokens + size};
}
std::vector<int32_t> targets_of(const Batch& batch, size_t size) {
  return {batch.targets, batch.targets + size};
}

Loader loader(size_t tokens, int64_t B, int64_t T) {
  return {std::make_shared<const Tokens>("memory", counting(tokens), kV), B, T};
}

TEST(Loader, BatchesFollowEachOtherAndTargetsAreTheNextTokens) {
  Loader data = loader(14, 2, 3);
  EXPECT_EQ(data.batches_per_epoch(), 2);
  Batch batch = data.next();
  EXPECT_EQ(tokens_of(batch, 6), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(targets_of(batch, 6), (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  batch = data.next();
  EXPECT_EQ(tokens_of(batch, 6), (std::vector<int32_t>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(targets_of(batch, 6), (std::vector<int32_t>{7, 8, 9, 10, 11, 12}));
}

TEST(Loader, WrapsAroundAtTheEnd) {
  Loader data = loader(14, 2, 3);
  data.next();
  data.next();
  EXPECT_EQ(data.next().tokens[0], 0);
  EXPECT_EQ(data.index(), 3);
}

TEST(Loader, UsesTheLastTokenAsATarget) {
  Loader data = loader(13, 2, 3);
  EXPECT_EQ(data.batches_per_epoch(), 2);
  data.next();
  EXPECT_EQ(data.next().targets[5], 12);
}

TEST(Loader, SeekingGivesTheSameBatchAsReadingUpToIt) {
  Loader read = loader(1000, 2, 3), sought = loader(1000, 2, 3);
  for (int i = 0; i < 345; ++i) read.next();
  sought.seek(345);
  EXPECT_EQ(tokens_of(read.next(), 6), tokens_of(sought.next(), 6));
  EXPECT_EQ(sought.index(), 346);
}

TEST(Loader, RefusesFewerTokensThanABatch) {
  EXPECT_NO_THROW(loader(7, 2, 3));
  EXPECT_TRUE(says(input_error([] { loader(6, 2, 3); }), {"memory", "6 tokens", "needs 7", "--batch"}));
  EXPECT_TRUE(says(input_error([] { loader(0, 1, 1); }), {"0 tokens"}));
}

}  // namespace
}  // namespace stepladder
