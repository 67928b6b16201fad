#include "bench/rung/sampler.h"

#include <chrono>
#include <filesystem>
#include <iostream>

#include "bench/base/text.h"
#include "model/sample.h"

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

std::string Sampler::text(Trainer& trainer) const {
  const auto tokens = generate(trainer, prompt_, settings_.sample_tokens, settings_.sampling());
  const std::string text = settings_.prompt + (bpe_ ? bpe_->decode(tokens) : decode_bytes(tokens));
  return without_controls(text, "\n\t");  // both vocabularies have a token for each byte, ESC too
}

void sample(RunSession& session) {
  RungSettings& settings = session.settings;
  if (session.world.size > 1)
    throw InputError("--steps 0 only samples, on one device: start it without a launcher");
  session.open_device();
  const bool named = settings.vocab != RungSettings().vocab && settings.vocab != "none";
  settings.batch = 1;
  session.choose_model();  // also finds the vocabulary that comes with the project
  const Sampler sampler(settings, !named && !std::filesystem::exists(settings.vocab + "/vocab.bpe"),
                        session.config.V);
  session.config.T =
      positions_to_sample(std::ssize(sampler.prompt()), settings.sample_tokens, session.config.T);
  session.plan_memory();
  session.build_trainer();
  if (settings.resume.empty() && settings.init.empty())
    std::cerr << "untrained weights, so random words: --resume and --init take trained ones" << std::endl;
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = sampler.text(*session.trainer);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cout << text << std::endl;
  std::cerr << counted(settings.sample_tokens, "token") << " in " << fixed(seconds, 2) << " s, "
            << fixed(static_cast<double>(settings.sample_tokens) / seconds, 1) << " tokens/s" << std::endl;
}

}  // namespace stepladder
