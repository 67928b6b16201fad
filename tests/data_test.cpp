// Token files: their formats, damage to each, text, and batches.
#include "model/data.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <thread>

#include "model/atomic_file.h"
#include "model/fd.h"
#include "model/tokenizer.h"
#include "tests/files.h"
#include "tests/tokens.h"

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
  return all_of(Tokens(path, vocabulary));
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
  std::string says, also = "";
};

class DamagedTokenFile : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedTokenFile, IsRefusedByNameAndReason) {
  const TempFolder folder;
  write_file(folder / "damaged.bin", GetParam().bytes);
  const std::string what = input_error([&] { Tokens(folder / "damaged.bin", kV); });
  EXPECT_TRUE(says(what, {"damaged.bin", GetParam().says, GetParam().also}));
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedTokenFile,
    ::testing::Values(
        Damage{"empty", "", "empty"}, Damage{"odd", "a\1c", "3 bytes"},
        Damage{"llmc_header_cut", llmc(20240520, 1, 0, {}).substr(0, 1023), "truncated: 1023 bytes"},
        Damage{"llmc_truncated", llmc(20240520, 1, 6, counting(5)), "truncated: 1034 bytes", "6 tokens"},
        Damage{"llmc_oversized", llmc(20240520, 1, 4, counting(5)), "oversized: 1034 bytes", "4 tokens"},
        Damage{"llmc_odd", llmc(20240520, 1, 5, counting(5)) + "x", "oversized: 1035"},
        Damage{"llmc_negative", llmc(20240520, 1, -1, counting(5)), "truncated"},
        Damage{"llmc_version", llmc(20240520, 2, 5, counting(5)), "version 2"},
        Damage{"llmc_weights", llmc(20240326, 3, 5, counting(5)), "weights"},
        Damage{"llmc_llama", llmc(20240801, 7, 5, counting(5)), "Llama"},
        Damage{"npy_int32", npy("<i4", "(5,)", raw(counting(10))), "'<u2'"},
        Damage{"npy_big_endian", npy(">u2", "(5,)", raw(counting(5))), "'<u2'"},
        Damage{"npy_matrix", npy("<u2", "(5, 1)", raw(counting(5))), "'<u2'"},
        Damage{"npy_scalar", npy("<u2", "()", raw(counting(1))), "'<u2'"},
        Damage{"npy_truncated", npy("<u2", "(6,)", raw(counting(5))), "truncated: 10 bytes"},
        Damage{"npy_oversized", npy("<u2", "(4,)", raw(counting(5))), "oversized: 10 bytes"},
        Damage{"npy_odd", npy("<u2", "(5,)", raw(counting(5)) + "x"), "oversized: 11 bytes"},
        Damage{"npy_huge", npy("<u2", "(99999999999999999999,)", ""), "'<u2'"},
        Damage{"npy_no_shape", std::string("\x93NUMPY\x01\x00\x02\x00{}", 12), "'<u2'"},
        Damage{"npy_header_cut", std::string("\x93NUMPY\x01\x00\x76\x00{'de", 14), "damaged .npy header"},
        Damage{"npy_magic_only", "\x93NUMPY", "damaged .npy header"},
        Damage{"npy_version", std::string("\x93NUMPY\x09\x00\x02\x00{}", 12), "damaged .npy header"}),
    [](const auto& test) { return test.param.name; });

const std::string kLfsPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, '0') + "\nsize 200000000\n";
const std::string kPage = "<!DOCTYPE html>\n<html><body>Not found.</body></html>\n";

template <class Token>
std::string wide(const std::vector<uint16_t>& tokens) {
  return bytes_of<Token>(std::vector<Token>(tokens.begin(), tokens.end()));
}

struct Foreign {
  const char* name;
  std::string bytes;
  std::vector<std::string> says;
};

class ForeignTokenFile : public ::testing::TestWithParam<Foreign> {};

TEST_P(ForeignTokenFile, IsNamedWithItsOwnWayOutWhereverItLies) {
  const TempFolder folder;
  for (const char* name : {"a.bin", "b.bin", "c.bin"})
    write_file(folder / name, *name == 'b' ? GetParam().bytes : raw(counting(2000, 300)));
  for (const char* path : {"b.bin", "", "*.bin"}) {
    const std::string what = input_error([&] { open_dataset(folder / path, "", "", kV); });
    EXPECT_TRUE(says(what, {"b.bin"})) << path;
    for (const std::string& part : GetParam().says) EXPECT_TRUE(says(what, {part})) << path;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ForeignTokenFile,
    ::testing::Values(
        Foreign{"int32", wide<int32_t>(counting(1000, 5)), {"int32", "uint16"}},
        Foreign{"int64", wide<int64_t>(counting(1000, 5)), {"int64", "uint16"}},
        Foreign{"int32_of_few", wide<int32_t>(counting(20, 5)), {"int32"}},
        Foreign{"text", "Some plain words that nobody tokenised.\n", {"text", ".txt"}},
        Foreign{"lfs_pointer", kLfsPointer, {"Git LFS", "git lfs pull"}},
        Foreign{"html", kPage, {"HTML", "download"}},
        Foreign{"zip", std::string("PK\x05\x06\0\0\0\0", 8), {"zip"}},
        Foreign{"gzip", std::string("\x1F\x8B\x08\x00\x00\x00\x00\x00", 8), {"gzip", "unpack"}},
        Foreign{"parquet", "PAR1" + std::string(20, '\0'), {"Parquet"}},
        Foreign{"utf16",
                std::string("\xFF\xFE"
                            "a\0b\0c\0",
                            8),
                {"UTF-16", "iconv"}},
        Foreign{"safetensors", std::string("\x40\0\0\0\0\0\0\0{\"wte.weight\": ", 22), {"safetensors"}},
        Foreign{"llmc_evaluation", llmc(20240522, 1, 5, counting(5)), {"llm.c", "evaluation"}},
        Foreign{"llmc_optimizer", llmc(20240527, 1, 5, counting(5)), {"llm.c", "optimizer"}}),
    [](const auto& test) { return test.param.name; });

// Unusual tokens are valid: small ids, zeros, and a vocabulary of characters.
TEST(TokenFile, RealUint16TokensRaiseNoAlarm) {
  const TempFolder folder;
  std::vector<uint16_t> padded(2000), characters(2000), pairs(2000);
  padded[0] = 5;
  for (size_t i = 0; i < characters.size(); ++i) characters[i] = static_cast<uint16_t>(i * 7 % 65);
  for (size_t i = 0; i < pairs.size(); i += 2) pairs[i] = static_cast<uint16_t>(i + 1);
  pairs[1999] = 1;
  for (const auto& tokens : {std::vector<uint16_t>(2000), padded, characters, pairs, {7, 0}, {7, 0, 0, 0}}) {
    write_file(folder / "t.bin", raw(tokens));
    EXPECT_EQ(read(folder / "t.bin"), tokens);
  }
}

TEST(TokenFile, RefusesWhatIsNoFile) {
  const TempFolder folder;
  EXPECT_TRUE(says(input_error([&] { Tokens(folder / "none.bin", kV); }), {"none.bin", "No such file"}));
  fs::create_directory(folder / "sub");
  EXPECT_TRUE(says(input_error([&] { Tokens(folder / "sub", kV); }), {"sub", "regular"}));
}

TEST(TokenFile, WhatIsCalledNpyIsNoRawFile) {
  const TempFolder folder;
  write_file(folder / "text.npy", "sixteen bytes of");
  EXPECT_TRUE(says(input_error([&] { Tokens(folder / "text.npy", kV); }), {"text.npy", "numpy.save"}));
}

TEST(TokenFile, ChecksTokensAgainstTheModelsVocabulary) {
  const auto read_all = [](int64_t vocabulary) {
    Loader(std::make_shared<const Tokens>("memory", std::vector<uint16_t>{0, 127}, vocabulary), 1, 1).next();
  };
  EXPECT_NO_THROW(read_all(128));
  EXPECT_TRUE(says(input_error([&] { read_all(127); }), {"memory", "token 127", "position 1", "of 127"}));
}

TEST(TokenFile, PartsOutliveTheWhole) {
  const Tokens part = Tokens("memory", counting(10), kV).part(3, 5);
  EXPECT_EQ(all_of(part), counting(2, 3));
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

TEST(AtomicFile, FollowsALinkToWhatIsNotThereYet) {
  const TempFolder folder;
  fs::create_directory(folder / "sub");
  fs::create_symlink("sub/file", folder / "link");
  write_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "sub/file"), "new");
  fs::create_symlink("loop", folder / "loop");
  EXPECT_TRUE(says(input_error([&] { write_atomically(folder / "loop", "new"); }), {folder / "loop"}));
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
  EXPECT_TRUE(says(input_error([] { AtomicFile("/dev/null"); }), {"/dev/null", "regular"}));
  EXPECT_TRUE(says(input_error([&] { AtomicFile(folder / "no/f"); }), {"no/f", "create", "folder"}));
}

// A file size limit makes a write fail as a full disk does.
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
  EXPECT_EQ(data.train->size(), 99U);
  EXPECT_EQ(data.val->size(), 10U);
  EXPECT_EQ(all_of(*data.val)[0], 99);
}

TEST(Dataset, TakesASeparateValidationFile) {
  const TempFolder folder;
  write_token_file(folder / "t.bin", counting(100));
  write_token_file(folder / "v.bin", counting(7));
  const Dataset data = open_dataset(folder / "t.bin", folder / "v.bin", "", kV);
  EXPECT_EQ(data.train->size(), 100U);
  EXPECT_EQ(data.val->size(), 7U);
}

TEST(Dataset, TextWithoutAVocabularyIsByteTokens) {
  const TempFolder folder;
  write_file(folder / "t.txt", "Hello<|endoftext|>world!!");
  const Dataset data = open_dataset(folder / "t.txt", "", folder / "none", kV);
  EXPECT_EQ(data.encoding, "bytes");
  EXPECT_EQ(data.train->size() + data.val->size(), 13U);
  const auto hello = encode_bytes("Hello");
  const auto tokens = all_of(*data.train);
  EXPECT_TRUE(std::equal(hello.begin(), hello.end(), tokens.begin()));
  EXPECT_EQ(tokens[5], Tokenizer::kEndOfText);
  EXPECT_EQ(Tokens(folder / "t.txt.bytes.bin", kV).size(), 13U) << "not kept for the next time";
}

TEST(Dataset, TextIsUtf8) {
  const TempFolder folder;
  const auto error = [&](const std::string& bytes) {
    write_file(folder / "t.txt", bytes);
    return input_error([&] { open_dataset(folder / "t.txt", "", "", kV); });
  };
  const auto utf16 = [](const std::string& text, bool little) {
    std::string bytes;
    for (const char c : text) bytes += little ? std::string{c, '\0'} : std::string{'\0', c};
    return bytes;
  };
  const std::string words = "Some words that were saved on Windows, ";
  EXPECT_TRUE(says(error("\xFF\xFE" + utf16(words, true)), {"t.txt", "UTF-16", "iconv -f UTF-16"}));
  EXPECT_TRUE(says(error("\xFE\xFF" + utf16(words, false)), {"t.txt", "UTF-16", "iconv -f UTF-16"}));
  EXPECT_TRUE(says(error(utf16(words, true)), {"t.txt", "iconv -f UTF-16LE"}));
  EXPECT_TRUE(says(error(utf16(words, false)), {"t.txt", "iconv -f UTF-16BE"}));
  EXPECT_TRUE(says(error("Un caf\xE9 \xE0 Paris"), {"t.txt", "position 6", "iconv -f LATIN1"}));
  EXPECT_TRUE(says(error("caf\xC3\xA9 and \xFF"), {"t.txt", "position 10", "iconv -c -f UTF-8"}));
  for (const char* invalid :
       {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xC3("})
    EXPECT_TRUE(says(error(cat("a", invalid, "text")), {"t.txt", "position 1"}));
  EXPECT_TRUE(says(error(kLfsPointer), {"t.txt", "git lfs pull"}));
  EXPECT_TRUE(says(error(kPage), {"t.txt", "HTML"}));
  EXPECT_EQ(folder.count(), 1U) << "tokens of it are kept";

  for (const char* valid : {"\xC3\xA9\xE2\x82\xAC\xED\x9F\xBF\xF0\x9F\x98\x80 all lengths", "plain text",
                            "\xEF\xBB\xBF with a mark", "a text that was cut in a letter \xE2\x82"}) {
    write_file(folder / "t.txt", valid);
    const Dataset data = open_dataset(folder / "t.txt", "", "", kV);
    EXPECT_EQ(data.train->size() + data.val->size(), std::string(valid).size());
  }
}

TEST(Dataset, TokensOfATextAreKeptUntilItChanges) {
  const TempFolder folder;
  const auto first_token = [&] { return all_of(*open_dataset(folder / "t.txt", "", "", kV).train)[0]; };
  write_file(folder / "t.txt", std::string(20, 'a'));
  const auto time = fs::last_write_time(folder / "t.txt");
  EXPECT_EQ(first_token(), encode_bytes("a")[0]);
  const auto kept = fs::last_write_time(folder / "t.txt.bytes.bin");
  EXPECT_EQ(first_token(), encode_bytes("a")[0]);
  EXPECT_EQ(fs::last_write_time(folder / "t.txt.bytes.bin"), kept) << "tokenised again";

  write_file(folder / "t.txt", std::string(20, 'b'));  // another text with the same size and time
  fs::last_write_time(folder / "t.txt", time);
  EXPECT_EQ(first_token(), encode_bytes("b")[0]);
  write_file(folder / "t.txt", std::string(21, 'c'));
  EXPECT_EQ(first_token(), encode_bytes("c")[0]);
  write_file(folder / "t.txt", std::string(20, 'c') + "d");  // only the last byte differs
  EXPECT_EQ(all_of(*open_dataset(folder / "t.txt", "", "", kV).val).back(), encode_bytes("d")[0]);
  fs::resize_file(folder / "t.txt.bytes.bin", 1030);  // damages the kept tokens
  EXPECT_EQ(first_token(), encode_bytes("c")[0]);
}

TEST(Dataset, TextInAReadOnlyFolderStaysInMemory) {
  const TempFolder folder;
  write_file(folder / "t.txt", std::string(20, 'a'));
  fs::create_directory(folder / "t.txt.bytes.bin");  // no file can be written to this path
  EXPECT_EQ(open_dataset(folder / "t.txt", "", "", kV).train->size(), 18U);
}

TEST(Dataset, EncodingsDoNotMix) {
  const TempFolder folder;
  write_file(folder / "t.txt", std::string(20, 'a'));
  write_token_file(folder / "v.bin", counting(100));
  const std::string what = input_error([&] { open_dataset(folder / "t.txt", folder / "v.bin", "", kV); });
  EXPECT_TRUE(says(what, {"t.txt", "v.bin", "byte tokens"}));
}

std::vector<std::string> names_of(const Tokens& tokens) {
  std::vector<std::string> names;
  for (const Shard& shard : tokens.shards()) names.push_back(fs::path(shard.path).filename());
  return names;
}
using Names = std::vector<std::string>;

TEST(Shards, OfLlmcsNamesTrainAndValidate) {
  const TempFolder folder;
  for (const char* name :
       {"fw_val_000000.bin", "fw_train_000002.bin", "fw_train_000001.bin", "more_train.bin"})
    write_token_file(folder / name, counting(20));
  write_file(folder / "README.md", "tokens");
  write_file(folder / "._fw_train_000001.bin", "what a Mac leaves");
  for (const std::string& path : {folder / "", folder / "*.bin", folder / "[f-m]*_*.bin"}) {
    const Dataset data = open_dataset(path, "", "", kV);
    EXPECT_EQ(names_of(*data.train), (Names{"fw_train_000001.bin", "fw_train_000002.bin", "more_train.bin"}))
        << path;
    EXPECT_EQ(names_of(*data.val), Names{"fw_val_000000.bin"}) << path;
    EXPECT_EQ(data.train->size(), 60U);
  }
}

TEST(Shards, OfNanoGptsNamesTrainAndValidate) {
  const TempFolder folder;
  write_file(folder / "train.bin", raw(counting(20)));
  write_file(folder / "val.bin", raw(counting(10)));
  const Dataset data = open_dataset(folder / "", "", "", kV);
  EXPECT_EQ(names_of(*data.train), Names{"train.bin"});
  EXPECT_EQ(names_of(*data.val), Names{"val.bin"});
  EXPECT_EQ(open_dataset(folder / "val.bin", "", "", kV).train->size(), 9U)
      << "who names a file trains on it";
}

TEST(Shards, OfBuildNanogptsNamesTrainAndValidate) {
  const TempFolder folder;
  for (const char* name : {"edufineweb_train_000001.npy", "edufineweb_val_000000.npy"})
    write_file(folder / name, npy("<u2", "(20,)", raw(counting(20))));
  const Dataset data = open_dataset(folder / "", "", "", kV);
  EXPECT_EQ(names_of(*data.train), Names{"edufineweb_train_000001.npy"});
  EXPECT_EQ(names_of(*data.val), Names{"edufineweb_val_000000.npy"});
}

TEST(Shards, WithoutAValidationNameTheLastFileValidates) {
  const TempFolder folder;
  for (const char* name : {"a.bin", "b.bin", "c_value.bin"}) write_token_file(folder / name, counting(20));
  const Dataset data = open_dataset(folder / "*", "", "", kV);
  EXPECT_EQ(names_of(*data.train), (Names{"a.bin", "b.bin"}));
  EXPECT_EQ(names_of(*data.val), Names{"c_value.bin"});
  const Dataset alone = open_dataset(folder / "a*", "", "", kV);
  EXPECT_EQ(alone.train->size(), 18U);
  EXPECT_EQ(alone.val->size(), 2U);
}

TEST(Shards, OfValidationMayBeNamedApart) {
  const TempFolder folder;
  for (const char* name : {"a_train.bin", "a_val.bin", "other.bin"})
    write_token_file(folder / name, counting(20));
  const Dataset data = open_dataset(folder / "a*", folder / "other.bin", "", kV);
  EXPECT_EQ(names_of(*data.train), Names{"a_train.bin"}) << "validation files aren't trained on";
  EXPECT_EQ(names_of(*data.val), Names{"other.bin"});
  EXPECT_EQ(names_of(*open_dataset(folder / "other.bin", folder / "", "", kV).val), Names{"a_val.bin"});
}

TEST(Shards, AFileMayHaveAPatternsName) {
  const TempFolder folder;
  write_token_file(folder / "a[1].bin", counting(20));
  EXPECT_EQ(names_of(*open_dataset(folder / "a[1].bin", "", "", kV).train), Names{"a[1].bin"});
}

TEST(Shards, ThatCannotBeReadAreRefusedByName) {
  const TempFolder folder;
  for (int i = 0; i < 100; ++i) write_token_file(folder / cat("s_", 100 + i, ".bin"), counting(20));
  const std::string good = read_file(folder / "s_150.bin");
  const auto with = [&](const std::string& damaged) {
    write_file(folder / "s_150.bin", damaged);
    return input_error([&] { open_dataset(folder / "", "", "", kV); });
  };
  EXPECT_TRUE(says(with(good.substr(0, good.size() - 2)), {"s_150.bin", "truncated"}));
  EXPECT_TRUE(says(with("x" + good.substr(1)), {"s_150.bin", "raw uint16", "llm.c", "s_100.bin"}));
  EXPECT_TRUE(says(with(npy("<u2", "(5,)", raw(counting(5)))), {"s_150.bin", ".npy", "llm.c", "s_100.bin"}));
  EXPECT_TRUE(says(with(npy("<i4", "(5,)", raw(counting(10)))), {"s_150.bin", "uint16"}));
  EXPECT_TRUE(says(with(llmc(20240801, 7, 5, counting(10))), {"s_150.bin", "Llama"}));

  write_token_file(folder / "s_150.bin", counting(6));
  const Dataset data = open_dataset(folder / "", "", "", kV);
  EXPECT_TRUE(says(input_error([&] { Loader(data.train, 2, 3); }), {"s_150.bin", "6 tokens", "needs 7"}));
}

TEST(Shards, ThatAreMissingAreSaidToBe) {
  const TempFolder folder;
  const auto error = [&](const std::string& path, const std::string& val_path = "") {
    return input_error([&] { open_dataset(folder / path, val_path, "", kV); });
  };
  EXPECT_TRUE(says(error(""), {folder / "", ".bin", ".npy"}));
  EXPECT_TRUE(says(error("*.bin"), {folder / "*.bin", "no file"}));
  EXPECT_TRUE(says(error("nowhere.bin"), {"nowhere.bin"}));
  write_token_file(folder / "a_val_0.bin", counting(20));
  EXPECT_TRUE(says(error(""), {"a_val_0.bin", "validation"}));
  write_token_file(folder / "a_train_1.bin", counting(20));
  EXPECT_TRUE(says(error("", folder / "b*"), {folder / "b*", "no file"}));
  write_file(folder / "a.txt", "text");
  EXPECT_TRUE(says(error("a*"), {"a.txt", "by itself"}));
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

TEST(Loader, AFileThatGetsShorterIsNamed) {
  const TempFolder folder;
  write_token_file(folder / "t.bin", counting(20000));
  Loader data(std::make_shared<const Tokens>(folder / "t.bin", kV), 2, 3);
  data.next();
  fs::resize_file(folder / "t.bin", 2000);
  data.seek(3000);
  EXPECT_TRUE(says(input_error([&] { data.next(); }), {"t.bin", "shorter"}));
  EXPECT_EQ(data.index(), 3000);
}

TEST(Loader, ChecksWhatItGivesThoughTheFileIsWrittenMeanwhile) {
  const TempFolder folder;
  constexpr size_t kTokens = 1 << 14, kSize = 1024 + 2 * (kTokens + 1);
  write_token_file(folder / "t.bin", std::vector<uint16_t>(kTokens + 1, 7));
  Loader data(std::make_shared<const Tokens>(folder / "t.bin", 10), 1, kTokens);
  const Fd file(::open((folder / "t.bin").c_str(), O_RDWR | O_CLOEXEC));
  void* const map = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(map, MAP_FAILED);
  int given = 0;
  {
    const std::jthread writer([&](const std::stop_token& stop) {
      volatile uint16_t& last = static_cast<uint16_t*>(map)[kSize / 2 - 1];
      while (!stop.stop_requested()) last = last == 7 ? 9999 : 7;
    });
    for (int i = 0; i < 2000; ++i) {
      try {
        const Batch batch = data.next();
        ASSERT_LT(*std::max_element(batch.targets, batch.targets + kTokens), 10);
        ++given;
      } catch (const InputError&) {  // the writer's token 9999 was seen
      }
    }
  }
  ::munmap(map, kSize);
  EXPECT_GT(given, 0);
}

/// Shards with these numbers of tokens; shard i starts with 1000 i (up to 39,000).
std::shared_ptr<const Tokens> shards_of(const TempFolder& folder, const std::vector<size_t>& sizes) {
  std::vector<std::string> files;
  for (size_t i = 0; i < sizes.size(); ++i) {
    files.push_back(folder / cat("shard_", 1000 + i, ".bin"));
    write_token_file(files.back(), counting(sizes[i], static_cast<uint16_t>(1000 * i % 40000)));
  }
  return std::make_shared<const Tokens>(files, kV);
}
/// The first token of each of the next `count` batches, or of each sequence of T tokens in them.
std::vector<int32_t> next_batches(Loader& data, int64_t count, int64_t B = 1, int64_t T = 0) {
  std::vector<int32_t> first;
  for (int64_t i = 0; i < count; ++i) {
    const Batch batch = data.next();
    for (int64_t b = 0; b < B; ++b) {
      first.push_back(batch.tokens[b * T]);
      for (int64_t t = 0; t < T; ++t)
        EXPECT_EQ(batch.targets[b * T + t], first.back() + t + 1) << "of counting tokens";
    }
  }
  return first;
}

TEST(ShardedLoader, NoBatchCrossesIntoTheNextShard) {
  const TempFolder folder;
  Loader data(shards_of(folder, {13, 7, 12, 14}), 2, 3);
  EXPECT_EQ(data.batches_per_epoch(), 6);
  EXPECT_EQ(next_batches(data, 8), (std::vector<int32_t>{0, 6, 1000, 2000, 3000, 3006, 0, 6}));
  data.seek(1);
  EXPECT_EQ(data.next().targets[5], 12) << "the last token of a shard is a target";
}

TEST(ShardedLoader, ShuffledItReadsEachSequenceOnceInAnEpoch) {
  const TempFolder folder;
  const auto tokens = shards_of(folder, {301, 7, 151, 601});
  Loader data(tokens, 2, 3), ordered = data, other = data;
  const int64_t epoch = data.batches_per_epoch();
  data.shuffle(1);
  other.shuffle(2);
  EXPECT_FALSE(data.reads_as(ordered));
  EXPECT_FALSE(data.reads_as(other));
  const auto expected = next_batches(ordered, epoch, 2, 3), first = next_batches(data, epoch, 2, 3);
  const auto second = next_batches(data, epoch, 2, 3);
  EXPECT_NE(first, expected);
  EXPECT_NE(second, first);
  EXPECT_NE(next_batches(other, epoch, 2, 3), first);
  for (auto sequences : {first, second}) {
    // A shuffled epoch reads a shard to its end before the next, as llm.c does; their order is random.
    std::vector<int32_t> turns;
    for (const int32_t token : sequences)
      if (turns.empty() || turns.back() != token / 1000) turns.push_back(token / 1000);
    EXPECT_EQ(turns.size(), 4U);
    EXPECT_NE(sequences[1], sequences[0] + 3) << "neighbours in a batch";
    std::ranges::sort(sequences);
    EXPECT_EQ(sequences, expected);
  }
}

TEST(ShardedLoader, TheOrderOfSequencesIsThatOfAnyBatchSize) {
  const TempFolder folder;
  const auto tokens = shards_of(folder, {301});
  Loader two(tokens, 2, 3), five(tokens, 5, 3);
  two.shuffle(1);
  five.shuffle(1);
  EXPECT_EQ(next_batches(two, 50, 2, 3), next_batches(five, 20, 5, 3));
}

TEST(ShardedLoader, BatchesAreThoseOfTheirIndexForAnyNumberOfRanks) {
  const TempFolder folder;
  const auto tokens = shards_of(folder, {301, 7, 150, 601});
  for (const bool shuffled : {false, true}) {
    const auto loader_of = [&](int rank, int world) {
      Loader loader(tokens, 2, 3, rank, world);
      if (shuffled) loader.shuffle(7);
      return loader;
    };
    Loader one = loader_of(0, 1);
    const int64_t count = 3 * one.batches_per_epoch();
    const auto expected = next_batches(one, count);
    for (const int64_t index : {int64_t{0}, count / 3 - 1, count / 3, count / 2, count - 1}) {
      Loader resumed = loader_of(0, 1);
      resumed.seek(index);
      EXPECT_EQ(*resumed.next().tokens, expected[static_cast<size_t>(index)]) << index;
    }
    for (int rank = 0; rank < 3; ++rank) {
      Loader loader = loader_of(rank, 3);
      for (size_t i = static_cast<size_t>(rank); i < expected.size(); i += 3)
        ASSERT_EQ(*loader.next().tokens, expected[i]) << i;
    }
  }
}

// tests/peers_test.py checks the PyTorch ladder against the same file of batches.
TEST(ShardedLoader, ShufflesAsThePyTorchLadderDoes) {
  const TempFolder folder;
  Loader data(shards_of(folder, {64, 13, 31}), 2, 3);
  data.shuffle(1337);
  std::ifstream file(STEPLADDER_TEST_DATA "/shuffled_batches.txt");
  std::vector<int32_t> expected;
  for (int32_t token = 0; file >> token;) expected.push_back(token);
  ASSERT_EQ(expected.size(), 68U) << "two epochs";
  EXPECT_EQ(next_batches(data, 34, 2, 3), expected);
}

TEST(ShardedLoader, ATokenOutsideTheVocabularyIsFoundWhenItIsRead) {
  const TempFolder folder;
  std::vector<size_t> sizes(100, 20);
  std::vector<uint16_t> bad(20);
  bad[13] = 50257;
  shards_of(folder, sizes);
  write_token_file(folder / "shard_1050.bin", bad);
  const Dataset data = open_dataset(folder / "*", "", "", kV);
  Loader batches(data.train, 2, 3);
  next_batches(batches, 152);
  const auto read = [&] { batches.next(); };
  EXPECT_TRUE(says(input_error(read), {"shard_1050.bin", "token 50257", "position 13"}));
  EXPECT_EQ(batches.index(), 152);
  EXPECT_TRUE(says(input_error(read), {"shard_1050.bin"})) << "again";

  write_token_file(folder / "shard_1050.bin", counting(200));
  batches.seek(150);
  EXPECT_NO_THROW(read()) << "still open";
  batches.seek(0);
  read();
  batches.seek(150);
  EXPECT_TRUE(says(input_error(read), {"shard_1050.bin", "changed"}));
}

TEST(ShardedLoader, TwoHundredShardsAreOpenOneAtATime) {
  const TempFolder folder;
  const auto tokens = shards_of(folder, std::vector<size_t>(200, 1 << 12));
  const auto open = [&] {
    std::error_code gone;
    return std::ranges::count_if(fs::directory_iterator("/proc/self/fd"), [&](const auto& fd) {
      return fs::read_symlink(fd.path(), gone).string().starts_with(folder / "shard_");
    });
  };
  EXPECT_EQ(open(), 0);
  Loader data(tokens, 4, 64);
  data.shuffle(1);
  for (int64_t i = 0; i < data.batches_per_epoch(); ++i) {
    data.next();
    ASSERT_EQ(open(), 1) << i;
  }
}

}  // namespace
}  // namespace stepladder
