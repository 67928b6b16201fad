#include "bench/rung/sampler.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "bench/base/text.h"
#include "model/hellaswag.h"

namespace stepladder {

Sampler::Sampler(const RungSettings& settings, bool bytes, int64_t V) : settings_(settings) {
  if (!bytes) bpe_.emplace(settings.vocab);
  const auto encode = [&](const std::string& text) { return bpe_ ? bpe_->encode(text) : encode_bytes(text); };
  prompt_ = encode(settings.prompt);
  if (prompt_.empty() && V <= Tokenizer::kEndOfText) prompt_ = encode("\n");
  for (const int32_t token : prompt_)
    if (token >= V)
      throw InputError(cat("--prompt: token ", token, " is outside the model's vocabulary of ", V,
                           ": --vocab must be the one that it was trained with"));
}

Generated Sampler::draw(const RunSession& session) const {
  Decoder* decoder = session.decoder.get();
  if (decoder != nullptr) decoder->restart();
  const auto next_logits = [&](std::span<const int32_t> text) {
    return decoder != nullptr ? decoder->next_logits(text) : session.trainer->next_logits(text);
  };
  return generate(next_logits, prompt_, settings_.sample_tokens, settings_.sampling());
}

std::string Sampler::text(const Generated& drawn) const {
  const std::string text =
      settings_.prompt + (bpe_ ? bpe_->decode(drawn.tokens) : decode_bytes(drawn.tokens));
  return without_controls(text, "\n\t");  // both vocabularies have a token for each byte, ESC too
}

std::string accuracy_text(size_t right, size_t questions) {
  const double accuracy = static_cast<double>(right) / static_cast<double>(questions);
  return cat("HellaSwag accuracy ", fixed(accuracy, 4), " (", right, " of ", questions, ')');
}

namespace {

/// Plans the memory of a model whose configuration is chosen, and reads its weights.
void read_weights(RunSession& session) {
  session.plan_memory();
  session.build_trainer();
  if (session.settings.resume.empty() && session.settings.init.empty())
    std::cerr << "untrained weights, so random words: --resume and --init take trained ones" << std::endl;
}

/// "64 tokens in 1.23 s: the first after 210.31 ms, then 16.10 ms a token, 62.1 tokens/s"
std::string speed(const Generated& drawn) {
  const auto count = static_cast<int64_t>(drawn.tokens.size());
  std::string text = cat(counted(count, "token"), " in ", fixed(drawn.first_s + drawn.rest_s, 2),
                         " s: the first after ", fixed(drawn.first_s * 1e3, 2), " ms");
  if (count == 1) return text;
  const double each = drawn.rest_s / static_cast<double>(count - 1);
  return text + cat(", then ", fixed(each * 1e3, 2), " ms a token, ", fixed(1.0 / each, 1), " tokens/s");
}

}  // namespace

void sample(RunSession& session) {
  RungSettings& settings = session.settings;
  if (session.world.size > 1)
    throw InputError("--steps 0 only samples, on one device: start it without a launcher");
  session.open_device();
  const bool named = settings.vocab != RungSettings().vocab && settings.vocab != "none";
  settings.batch = 1;
  session.choose_model();  // also finds the vocabulary that comes with the project
  if (!settings.hellaswag.empty()) {
    const HellaSwag questions(settings.hellaswag, session.config.V, session.config.T);
    read_weights(session);
    std::cout << accuracy_text(questions.right_answers(*session.decoder, [] {}), questions.size())
              << std::endl;
    return;
  }
  const Sampler sampler(settings, !named && !std::filesystem::exists(settings.vocab + "/vocab.bpe"),
                        session.config.V);
  const int64_t positions = session.config.T, prompt = std::max<int64_t>(1, std::ssize(sampler.prompt()));
  session.config.T = positions_to_sample(prompt, settings.sample_tokens, positions);
  read_weights(session);
  const Generated drawn = sampler.draw(session);
  std::cout << sampler.text(drawn) << std::endl;
  std::cerr << speed(drawn) << std::endl;
  if (!session.decoder)
    std::cerr << "each token took a pass over all positions: model/decoder.cpp does not know "
              << session.trainer->architecture() << std::endl;
  else if (prompt + settings.sample_tokens - 1 > positions)
    std::cerr << "beyond the model's " << counted(positions, "position")
              << " each token took a pass over the last of them" << std::endl;
}

}  // namespace stepladder
