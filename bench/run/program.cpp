#include "bench/run/program.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <map>
#include <utility>

#include "bench/base/text.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"

namespace stepladder {
namespace {

/// Fowler, Noll and Vo's hash of 64 bits, over texts and what parts them.
class Hash {
 public:
  void add(const std::string& text) {
    for (const unsigned char byte : text) mix(byte);
    mix(0x100);
  }
  std::string hex() const { return cat(std::hex, std::setw(16), std::setfill('0'), state_); }

 private:
  void mix(uint64_t value) { state_ = (state_ ^ value) * 0x100000001b3; }
  uint64_t state_ = 0xcbf29ce484222325;
};

/// Asked once a process: it may take seconds, and a Python's packages hardly change under a measurement.
const std::string& version_of(const Program& program) try {
  constexpr double kLimit = 60.0;  // seconds
  static std::map<std::pair<std::string, std::vector<std::string>>, std::string> known;
  const std::pair key(program.folder, program.version);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  const auto answer = output_of(program.version, kLimit, program.folder);
  if (!answer)
    throw InputError(cat(program.variant, ": its version command, ", join(program.version, " "),
                         ", gives no answer: try it by itself; --python names another Python"));
  return known[key] = *answer;
} catch (const TooMuchOutput& e) {
  throw InputError(cat(program.variant, ": its version command: ", e.what(), "; a line is enough"));
}

std::string hash_of(const Program& program) {
  Hash hash;
  for (const auto* words : {&program.command, &program.environment})
    for (const std::string& word : *words) hash.add(word);
  for (const std::string& source : program.sources) {
    std::ifstream file(std::filesystem::path(program.folder) / source, std::ios::binary);
    if (!file) throw InputError(cat(program.variant, ": its source ", source, " is no longer there"));
    hash.add({std::istreambuf_iterator<char>(file), {}});
  }
  if (!program.version.empty()) hash.add(version_of(program));
  return hash.hex();
}

/// What is wrong with a rung that doesn't tell its version.
std::string why_silent(const std::vector<std::string>& ask) {
  constexpr double kWait = 10.0;  // seconds
  if (!std::filesystem::exists(ask.front())) return " is not there";
  if (::access(ask.front().c_str(), X_OK) != 0) return " may not be executed";
  try {
    const ChildEnd end = run_child(ask, Channel::out, kWait, [](std::string_view) { return true; });
    if (end.how == ChildEnd::How::timed_out) return cat(" gave no answer in ", kWait, " s");
    return " is no rung" + end.last_words();
  } catch (const CannotStart& e) {
    return cat(" is no rung (", e.what(), ")");
  }
}

}  // namespace

std::string Program::source_hash() const {
  if (!ours()) return hash_of(*this);
  std::vector<std::string> ask = command;
  ask.emplace_back("--version");
  const std::string text = output_of(ask).value_or("");
  const size_t at = text.rfind(" source ");
  if (at != std::string::npos) return text.substr(at + 8);
  const bool ablation = command.front().find("/ablations/") != std::string::npos;
  std::filesystem::path folder =
      std::filesystem::path(command.front()).parent_path();  // bin, or bin/ablations
  if (ablation) folder = folder.parent_path();
  throw Error(cat(command.front(), why_silent(ask), ": cmake --build ", folder.parent_path().string(),
                  " --target ", ablation ? "ablations" : "ladder", " builds it",
                  folder == bin_dir() ? ", or name the folder in STEPLADDER_BIN_DIR" : ""));
}

bool Program::starts_ranks() const {
  return std::ranges::any_of(command,
                             [](const std::string& word) { return word.find("{devices}") != word.npos; });
}

}  // namespace stepladder
