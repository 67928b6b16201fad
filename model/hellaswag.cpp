#include "model/hellaswag.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "model/file_kind.h"
#include "model/mapped_file.h"

namespace stepladder {
namespace {

constexpr int32_t kEvaluationVersion = 1;
constexpr uint16_t kQuestion = 65535;  // begins each question

/// The numbers of a question, one after another.
class QuestionReader {
 public:
  QuestionReader(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  size_t at() const { return at_; }
  bool at_end() const { return at_ == bytes_.size(); }
  void begin(size_t question) { question_ = question; }
  [[noreturn]] void refuse(const std::string& why) const {
    throw InputError(cat(path_, ": question ", question_, ": ", why,
                         "; write it again with llm.c's dev/data/hellaswag.py"));
  }
  uint16_t next() {
    uint16_t number = 0;
    if (bytes_.size() - at_ < sizeof number) refuse(cat("truncated: the file has ", bytes_.size(), " bytes"));
    std::memcpy(&number, bytes_.data() + at_, sizeof number);
    at_ += sizeof number;
    return number;
  }
  std::vector<int32_t> tokens(int64_t V) {
    std::vector<int32_t> tokens(next());
    if (tokens.empty()) refuse("a text without tokens");
    for (int32_t& token : tokens)
      if (token = next(); token >= V)
        throw InputError(cat(path_, ": question ", question_, ": token ", token,
                             " is outside the model's vocabulary of ", V, ": use a model with GPT-2's"));
    return tokens;
  }

 private:
  const std::string& path_;
  const std::span<const std::byte> bytes_;
  size_t at_ = 0, question_ = 0;
};

}  // namespace

HellaSwag::HellaSwag(const std::string& path, int64_t V, int64_t T) {
  const MappedFile file(path);
  std::array<int32_t, 256> header{};
  std::ranges::copy(file.bytes().first(std::min(sizeof header, file.bytes().size())),
                    std::as_writable_bytes(std::span(header)).begin());
  if (header[0] != kLlmcEvaluation) {
    const FileKind kind = kind_of(file.text().substr(0, kFileHead));
    throw InputError(cat(path, ": is ", kind.known() ? kind.what : "something else",
                         ", not HellaSwag as llm.c's dev/data/hellaswag.py writes it; name that file"));
  }
  const int32_t version = header[1], count = header[2];
  if (file.bytes().size() < sizeof header || version != kEvaluationVersion || count < 1)
    throw InputError(cat(path, ": damaged header: ", file.bytes().size(), " bytes, version ", version, ", ",
                         count, " questions; write it again with llm.c's dev/data/hellaswag.py"));

  QuestionReader reader(path, file.bytes().subspan(sizeof header));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const size_t begin = reader.at();
    reader.begin(i);
    if (reader.next() != kQuestion) reader.refuse("does not begin with 65535");
    const size_t bytes = reader.next();
    if (const size_t number = reader.next(); number != i) reader.refuse(cat("is numbered ", number));
    Question& question = questions_.emplace_back();
    question.right = reader.next();
    const size_t completions = reader.next();
    if (question.right >= completions)
      reader.refuse(cat("the right one of ", completions, " completions is ", question.right));
    question.context = reader.tokens(V);
    for (size_t c = 0; c < completions; ++c) {
      question.completions.push_back(reader.tokens(V));
      const size_t length = question.context.size() + question.completions.back().size();
      if (length > static_cast<size_t>(T) + 1)
        throw InputError(cat(path, ": question ", i, " has ", length, " tokens, more than ", T,
                             " positions predict: use a longer --seq"));
    }
    if (reader.at() - begin != bytes)
      reader.refuse(cat("has ", reader.at() - begin, " bytes, and says ", bytes));
  }
  if (!reader.at_end()) reader.refuse("is the last, and the file goes on");
}

size_t HellaSwag::right_answers(Decoder& decoder, const std::function<void()>& on_question) const {
  decoder.restart();
  size_t right = 0;
  for (const Question& question : questions_) {
    on_question();
    std::vector<double> losses;
    for (const std::vector<int32_t>& completion : question.completions) {
      std::vector<int32_t> text = question.context;
      text.insert(text.end(), completion.begin(), completion.end());
      losses.push_back(decoder.mean_loss(text, completion.size()));
    }
    if (!std::ranges::all_of(losses, [](double loss) { return std::isfinite(loss); }))
      throw Error("HellaSwag: a completion's loss is not finite: take an older checkpoint");
    const auto best = std::ranges::min_element(losses) - losses.begin();
    if (static_cast<size_t>(best) == question.right) ++right;
  }
  return right;
}

}  // namespace stepladder
