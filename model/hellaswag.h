// HellaSwag (Zellers et al. 2019), and other questions with several answers, in llm.c's file format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/decoder.h"

namespace stepladder {

class HellaSwag {
 public:
  /// Reads the file that llm.c's dev/data/hellaswag.py writes: 256 int32, of which the first three are
  /// 20240522, version 1 and the number of questions; then for each question, in uint16: 65535, its bytes,
  /// its number, the right completion, the number of completions; a context and the completions, each as a
  /// length and its tokens. Throws InputError naming the file: another kind of file, damaged, a token outside
  /// of V, or a question that is longer than T positions.
  HellaSwag(const std::string& path, int64_t V, int64_t T);

  size_t size() const { return questions_.size(); }
  /// How many questions the model answers right: the completion of the least mean loss of its tokens is the
  /// right one, which is accuracy by log-likelihood normalised by length. Calls on_question() before each.
  size_t right_answers(Decoder& decoder, const std::function<void()>& on_question) const;

 private:
  struct Question {
    std::vector<int32_t> context;
    std::vector<std::vector<int32_t>> completions;
    size_t right;
  };
  std::vector<Question> questions_;
};

}  // namespace stepladder
