// Writes questions in llm.c's file format, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/files.h"

namespace stepladder {

struct Question {
  uint16_t right;
  std::vector<uint16_t> context;
  std::vector<std::vector<uint16_t>> completions;
};

inline std::string question_bytes(const std::vector<Question>& questions) {
  std::vector<uint16_t> stream;
  for (const Question& question : questions) {
    const size_t begin = stream.size();
    const auto append = [&](const std::vector<uint16_t>& tokens) {
      stream.push_back(static_cast<uint16_t>(tokens.size()));
      stream.insert(stream.end(), tokens.begin(), tokens.end());
    };
    const auto number = static_cast<uint16_t>(&question - questions.data());
    stream.insert(stream.end(),
                  {65535, 0, number, question.right, static_cast<uint16_t>(question.completions.size())});
    append(question.context);
    for (const std::vector<uint16_t>& completion : question.completions) append(completion);
    stream[begin + 1] = static_cast<uint16_t>(2 * (stream.size() - begin));
  }
  std::vector<int32_t> header(256);
  header[0] = 20240522, header[1] = 1, header[2] = static_cast<int32_t>(questions.size());
  std::string bytes(reinterpret_cast<const char*>(header.data()), 4 * header.size());
  return bytes.append(reinterpret_cast<const char*>(stream.data()), 2 * stream.size());
}

inline void write_questions(const std::string& path, const std::vector<Question>& questions) {
  write_file(path, question_bytes(questions));
}

}  // namespace stepladder
