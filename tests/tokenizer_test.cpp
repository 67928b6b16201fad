// GPT-2's tokenizer against tiktoken's tokens and published token counts.
#include "model/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>

#include "model/data.h"
#include "model/random.h"
#include "tests/files.h"
#include "tests/tokens.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kData = STEPLADDER_SOURCE_DIR "/data";
const std::string kVocabulary = kData + "/gpt2";

json cases() {
  return json::parse(read_file(STEPLADDER_TEST_DATA "/tokenizer_cases.json"));
}

class Gpt2Tokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(kVocabulary + "/vocab.bpe"))
      GTEST_SKIP() << kVocabulary << " is missing; scripts/prepare_data.py gets it";
  }
};

TEST_F(Gpt2Tokenizer, AgreesWithTiktoken) {
  const Tokenizer tokenizer(kVocabulary);
  const json texts = cases()["texts"];
  ASSERT_GT(texts.size(), 20U);
  for (const json& c : texts) {
    const auto text = c["text"].get<std::string>();
    const auto tokens = c["tokens"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text), tokens) << text;
    EXPECT_EQ(tokenizer.decode(tokens), text);
  }
}

TEST_F(Gpt2Tokenizer, AgreesWithTiktokenOnTheCorpus) {
  if (!fs::exists(kData + "/austen.txt"))
    GTEST_SKIP() << kData << "/austen.txt is missing; scripts/prepare_data.py gets it";
  const TempFolder folder;
  fs::copy_file(kData + "/austen.txt", folder / "austen.txt");
  const Dataset data = open_dataset(folder / "austen.txt", "", kVocabulary, 50257);
  EXPECT_EQ(data.encoding, "gpt2-bpe");
  uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a
  for (const auto& part : {all_of(*data.train), all_of(*data.val)})
    for (const std::byte byte : std::as_bytes(std::span(part)))
      hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001B3ULL;
  const json corpus = cases()["corpus"];
  EXPECT_EQ(data.train->size() + data.val->size(), corpus["tokens"].get<size_t>());
  EXPECT_EQ(hash, corpus["fnv1a"].get<uint64_t>());
}

// nanoGPT's README counts 301,966 tokens in the first nine tenths of the characters, 36,059 in the rest.
TEST_F(Gpt2Tokenizer, CountsTinyShakespeareAsPublished) {
  const std::string path = kData + "/tiny_shakespeare.txt";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is missing; put it there to count it";
  const Tokenizer tokenizer(kVocabulary);
  const std::string text = read_file(path);
  const size_t cut = text.size() * 9 / 10;
  EXPECT_EQ(tokenizer.encode(text).size(), 338025U);
  EXPECT_EQ(tokenizer.encode(text.substr(0, cut)).size(), 301966U);
  EXPECT_EQ(tokenizer.encode(text.substr(cut)).size(), 36059U);
}

TEST_F(Gpt2Tokenizer, AnyBytesSurviveTheRoundTrip) {
  const Tokenizer tokenizer(kVocabulary);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::string bytes;  // mostly text, to mix valid and invalid UTF-8
    for (uint64_t i = 0; i < 200; ++i) {
      const uint64_t bits = random_bits(seed, i);
      bytes += static_cast<char>(bits % 3 ? ' ' + bits / 3 % 95 : bits / 3 % 256);
    }
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
  }
  EXPECT_EQ(tokenizer.encode("\xFF"), encode_bytes("\xFF"));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("caf\xC3")), "caf\xC3") << "cut in the middle of a character";
}

TEST_F(Gpt2Tokenizer, ALongWordTakesNoLongerThanItsLength) {
  const Tokenizer tokenizer(kVocabulary);
  const auto start = std::chrono::steady_clock::now();
  const std::string word(1'000'000, 'a');  // takes minutes if merging is quadratic
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(word)), word);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(Gpt2Tokenizer, DecodesIdsOutsideTheVocabularyAsReplacementCharacters) {
  const Tokenizer tokenizer(kVocabulary);
  const std::vector<int32_t> tokens = {15496, 50257, -1, Tokenizer::kEndOfText};
  EXPECT_EQ(tokenizer.decode(tokens), "Hello\uFFFD\uFFFD<|endoftext|>");
}

TEST_F(Gpt2Tokenizer, RefusesADamagedVocabulary) {
  const TempFolder folder;
  const std::string vocabulary = read_file(kVocabulary + "/encoder.json");
  const std::string merges = read_file(kVocabulary + "/vocab.bpe");
  const auto error = [&](const std::string& encoder_json, const std::string& vocab_bpe) {
    write_file(folder / "encoder.json", encoder_json);
    write_file(folder / "vocab.bpe", vocab_bpe);
    return input_error([&] { Tokenizer(folder / ""); });
  };
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::string cure = "prepare_data.py";
  EXPECT_TRUE(says(error("", merges), {"encoder.json", cure}));
  EXPECT_TRUE(says(error(vocabulary.substr(0, 5000), merges), {"encoder.json", cure}));
  EXPECT_TRUE(says(error("{\"a\": 1}", merges), {"encoder.json", "50257", cure}));
  EXPECT_TRUE(says(error(replaced(vocabulary, "\"!\": 0", "\"!\": 1"), merges), {"encoder.json", cure}));
  EXPECT_TRUE(says(error(replaced(vocabulary, ": 50256", ": 300"), merges), {"encoder.json", cure}));
  EXPECT_TRUE(says(error(replaced(vocabulary, "\"!\": 0", "\"!\": -7"), merges), {"encoder.json", cure}));
  EXPECT_TRUE(says(error(replaced(vocabulary, "\"!\": 0", "\"!\": \"0\""), merges), {"encoder.json", cure}));
  EXPECT_TRUE(says(error(vocabulary, merges.substr(0, merges.size() / 2)), {"vocab.bpe", cure}));
  EXPECT_TRUE(says(error(vocabulary, replaced(merges, "h e\n", "e h\n")), {"vocab.bpe", "line", cure}));
  EXPECT_TRUE(says(error(vocabulary, replaced(merges, "h e\n", "he\n")), {"vocab.bpe", "line", cure}));
  EXPECT_TRUE(says(error(vocabulary, ""), {"vocab.bpe", "0 merges", cure}));
}

TEST(Tokenizer, SaysWhichLettersItKnows) {
  const std::string said = tokenizer_unicode();
  EXPECT_TRUE(std::regex_match(said, std::regex(R"(Unicode \d+\.\d+\.\d+ \(PCRE2 \d+\.\d+.*\))"))) << said;
}

TEST(Tokenizer, NamesAMissingVocabularyAndItsCure) {
  const TempFolder folder;
  const std::string what = input_error([&] { Tokenizer(folder / "none"); });
  EXPECT_TRUE(says(what, {"none/encoder.json", "missing", "prepare_data.py"}));
}

// GPT-2's first tokens are the printable bytes from '!' on, then the other bytes from 0 on.
TEST(ByteTokens, AreGpt2s) {
  EXPECT_EQ(encode_bytes("!a~"), (std::vector<int32_t>{0, 64, 93}));
  EXPECT_EQ(encode_bytes("\xA1\xAC\xAE\xFF"), (std::vector<int32_t>{94, 105, 106, 187}));
  EXPECT_EQ(encode_bytes(std::string("\0\n \x7F\xA0\xAD", 6)),
            (std::vector<int32_t>{188, 198, 220, 221, 254, 255}));
}

}  // namespace
}  // namespace stepladder
