// The decoder against the trainers' own forward passes over all positions, on the CPU.
#include "model/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "model/hellaswag.h"
#include "model/sample.h"
#include "tests/built.h"
#include "tests/files.h"
#include "tests/questions.h"
#include "tests/trainers.h"
#include "tests/training.h"

namespace stepladder {
namespace {

/// A trainer after some steps, and a decoder of its weights.
struct Trained {
  explicit Trained(const std::string& rung, DType half = DType::f32, int steps = 30) : run(rung, half) {
    run.losses(steps);
    run.trainer->gather_state();
    if (half == DType::f32) run.ops->set_matmul_precision(Precision::fp32);
    arena = planned_arena(*run.ops, [&](Arena& plan) { Decoder(*run.ops, plan, *run.trainer); });
    decoder = std::make_unique<Decoder>(*run.ops, *arena, *run.trainer);
    decoder->restart();
  }
  std::vector<float> by_trainer(std::span<const int32_t> text) { return run.trainer->next_logits(text); }
  std::vector<float> by_decoder(std::span<const int32_t> text) { return decoder->next_logits(text); }
  /// -log p of a token after a text.
  double loss_by_trainer(std::span<const int32_t> text, int32_t token) {
    const std::vector<float> logits = by_trainer(text);
    const double top = *std::ranges::max_element(logits);
    double sum = 0.0;
    for (const float x : logits) sum += std::exp(x - top);
    return top + std::log(sum) - logits[static_cast<size_t>(token)];
  }

  Training run;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Decoder> decoder;
};

const std::vector<int32_t> kPrompt = {3, 18, 93};

TEST(Decoder, DrawsTheTokensThatPassesOverAllPositionsDraw) {
  for (const Rung& rung : trainers()) {
    if (rung.math == MathMode::fp8) continue;  // the decoder reads the weights in 16 bits
    Trained model(rung.name);
    ASSERT_TRUE(Decoder::knows(*model.run.trainer)) << rung.name;
    const auto positions = static_cast<int>(model.run.config.T);
    for (const SampleOptions& options : {SampleOptions{0.0F, 0}, SampleOptions{1.0F, 0, 7}}) {
      const auto draw = [&](const NextLogits& next_logits) {
        return generate(next_logits, kPrompt, positions + 10, options).tokens;  // past the context too
      };
      const auto tokens = draw([&](auto text) { return model.by_decoder(text); });
      EXPECT_EQ(tokens, draw([&](auto text) { return model.by_trainer(text); })) << rung.name;
      EXPECT_GT(std::set(tokens.begin(), tokens.end()).size(), 3U) << rung.name << " says one thing alone";
    }
  }
}

TEST(Decoder, AgreesWithTheTrainerIn16Bits) {
  for (const char* rung : {"05_mixed_precision", "13_cuda_graphs", "relu_squared", "untied_head"})
    for (const DType half : {DType::bf16, DType::f16}) {
      Trained model(rung, half);
      const auto expected = model.by_trainer(kPrompt), logits = model.by_decoder(kPrompt);
      float largest = 0.0F;
      for (const float x : expected) largest = std::max(largest, std::abs(x));
      // Each block rounds 8 results on the way to the logits.
      const float rounding = half == DType::bf16 ? 0x1p-8F : 0x1p-11F;
      const auto roundings = static_cast<float>(8 * model.run.config.L + 2);
      for (size_t i = 0; i < logits.size(); ++i)
        ASSERT_TRUE(std::abs(logits[i] - expected[i]) <= roundings * rounding * largest)
            << rung << ": " << logits[i] << ", expected " << expected[i];
    }
}

TEST(Decoder, ReadsTheWeightsOfFp8sRungsIn16Bits) {
  Trained fp8("fp8", DType::bf16, 0), bf16("13_cuda_graphs", DType::bf16, 0);
  EXPECT_EQ(fp8.by_decoder(kPrompt), bf16.by_decoder(kPrompt));
}

TEST(Decoder, ANewTokenTakesOnePosition) {
  Trained model("09_flash_attention");
  std::vector<int32_t> text = kPrompt;
  for (const int64_t positions : {3, 1, 1}) {
    model.run.recording.calls.clear();
    model.by_decoder(text);
    text.push_back(7);
    const auto heads = cat("cached_attention f32", Shape{1, positions, model.run.config.C});
    const auto of_blocks = std::ranges::count_if(
        model.run.recording.calls, [&](const std::string& call) { return call.starts_with(heads); });
    EXPECT_EQ(of_blocks, model.run.config.L) << positions;
  }
}

TEST(Decoder, ATextThatDiffersFromTheLastIsReadFromThereOn) {
  Trained model("03_rotary"), fresh("03_rotary");
  const std::vector<int32_t> texts[] = {{1, 2, 3, 4, 5}, {1, 2, 9}, {1, 2, 9, 4}, {8, 2}, {8, 2}};
  for (const std::vector<int32_t>& text : texts) {
    fresh.decoder->restart();
    const auto expected = fresh.by_decoder(text), logits = model.by_decoder(text);
    for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-5) << text.size();
  }
}

TEST(Decoder, MeasuresTheMeanLossOfTheLastTokens) {
  for (const char* rung : {"04_pinned_loader", "soft_cap"}) {
    Trained model(rung);
    std::vector<int32_t> text(static_cast<size_t>(model.run.config.T) + 1);
    std::iota(text.begin(), text.end(), 1);
    for (const size_t count : {size_t{1}, size_t{4}, text.size() - 1}) {
      double expected = 0.0;
      for (size_t i = text.size() - count; i < text.size(); ++i)
        expected += model.loss_by_trainer(std::span(text).first(i), text[i]) / static_cast<double>(count);
      EXPECT_NEAR(model.decoder->mean_loss(text, count), expected, 1e-5 * expected) << rung << ", " << count;
    }
    EXPECT_THROW(model.decoder->mean_loss(text, text.size()), std::invalid_argument);
    text.push_back(1);
    EXPECT_THROW(model.decoder->mean_loss(text, 1), std::invalid_argument) << "more than T + 1 tokens";
  }
}

TEST(Decoder, CapsLogitsAsTheTrainerDoes) {
  Trained model("soft_cap");
  for (const NamedTensor& p :
       model.run.trainer->tensors().params.each())  // scales logits so that they are capped
    if (p.name == "ln_f.weight") (*model.run.ops)(Affine{p.tensor, p.tensor, 60.0F, 0.0F});
  model.run.trainer->prepare();
  model.run.ops->set_matmul_precision(Precision::fp32);
  model.decoder->restart();
  const auto expected = model.by_trainer(kPrompt), logits = model.by_decoder(kPrompt);
  EXPECT_GT(*std::ranges::max_element(expected), 20.0F);
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-3);
  const std::vector<int32_t> text = {3, 18, 93, 50};
  const double loss = model.loss_by_trainer(kPrompt, text.back());
  EXPECT_NEAR(model.decoder->mean_loss(text, 1), loss, 1e-4 * loss);
}

// ---- HellaSwag -------------------------------------------------------------------------------------------

TEST(HellaSwag, CountsTheCompletionsOfTheLeastMeanLoss) {
  Trained model("13_cuda_graphs");
  const TempFolder folder;
  // Completions of different lengths, so that the least mean loss and the least summed loss choose different
  // ones.
  std::vector<Question> questions;
  for (uint16_t i = 0; i < 20; ++i)
    questions.push_back({0,
                         {i, static_cast<uint16_t>((i * 5 + 3) % 96)},
                         {{static_cast<uint16_t>(40 + i)},
                          {static_cast<uint16_t>((i * 25 + 18) % 96), i, 2, 3, 4},
                          {7, static_cast<uint16_t>(38 + i), 5}}});
  size_t by_sum = 0;
  for (Question& question : questions) {
    std::vector<double> means, sums;
    for (const std::vector<uint16_t>& completion : question.completions) {
      std::vector<int32_t> text(question.context.begin(), question.context.end());
      double sum = 0.0;
      for (const int32_t token : completion) {
        sum += model.loss_by_trainer(text, token);
        text.push_back(token);
      }
      sums.push_back(sum);
      means.push_back(sum / static_cast<double>(completion.size()));
    }
    question.right = static_cast<uint16_t>(std::ranges::min_element(means) - means.begin());
    by_sum += std::ranges::min_element(sums) - sums.begin() == question.right ? 1 : 0;
  }
  ASSERT_LT(by_sum, questions.size()) << "these questions don't tell the mean from the sum";
  const auto right_answers = [&] {
    write_questions(folder / "questions.bin", questions);
    const HellaSwag file(folder / "questions.bin", model.run.config.V, model.run.config.T);
    EXPECT_EQ(file.size(), questions.size());
    size_t asked = 0;
    const size_t right = file.right_answers(*model.decoder, [&] { ++asked; });
    EXPECT_EQ(asked, questions.size());
    return right;
  };
  EXPECT_EQ(right_answers(), questions.size());
  for (size_t i = 0; i < 5; ++i) questions[i].right = static_cast<uint16_t>((questions[i].right + 1) % 3);
  EXPECT_EQ(right_answers(), questions.size() - 5);
}

TEST(HellaSwag, RefusesFilesThatAreNone) {
  const TempFolder folder;
  const std::string path = folder / "questions.bin";
  const auto refusal = [&](const std::string& bytes, int64_t V = 96, int64_t T = 8) {
    write_file(path, bytes);
    return input_error([&] { HellaSwag(path, V, T); });
  };
  const std::vector<Question> questions = {{1, {1, 2}, {{3}, {4, 5}}}, {0, {6}, {{7}, {95, 9}}}};
  const std::string whole = question_bytes(questions);
  ASSERT_NO_THROW((write_questions(path, questions), HellaSwag(path, 96, 3)));

  EXPECT_TRUE(says(refusal(""), {path}));
  EXPECT_TRUE(says(refusal("version https://git-lfs.github.com/spec/v1"), {path, "Git LFS"}));
  EXPECT_TRUE(says(refusal(std::string(2000, 'x')), {path}));
  for (size_t size = 4; size < whole.size(); ++size)
    EXPECT_TRUE(says(refusal(whole.substr(0, size)), {path})) << size;
  EXPECT_TRUE(says(refusal(whole.substr(0, whole.size() - 1)), {path, "question 1", "truncated"}));
  EXPECT_TRUE(says(refusal(whole + "ab"), {path, "question 1"}));
  EXPECT_TRUE(says(refusal(whole, 95), {path, "question 1", "token 95", "95"}));
  EXPECT_TRUE(says(refusal(whole, 96, 2), {path, "question 0 has 4 tokens", "--seq"}));

  // Numbers of the header, which are int32, and of the first question: each damaged alone.
  const auto damaged = [&](size_t at, char value) {
    std::string bytes = whole;
    bytes[at] = value;
    return refusal(bytes);
  };
  EXPECT_TRUE(says(damaged(4, 2), {path, "version 2"}));
  EXPECT_TRUE(says(damaged(8, 0), {path, "0 questions"}));
  EXPECT_TRUE(says(damaged(11, -128), {path, "questions"})) << "fewer than none";
  const size_t question = 1024;
  EXPECT_TRUE(says(damaged(question, 0), {path, "question 0", "65535"}));
  EXPECT_TRUE(says(damaged(question + 2, 0), {path, "question 0", "bytes"}));
  EXPECT_TRUE(says(damaged(question + 4, 9), {path, "question 0", "numbered 9"}));
  EXPECT_TRUE(says(damaged(question + 6, 2), {path, "question 0", "the right one of 2 completions is 2"}));
  EXPECT_TRUE(says(damaged(question + 10, 0), {path, "question 0", "without tokens"}));
}

}  // namespace
}  // namespace stepladder
