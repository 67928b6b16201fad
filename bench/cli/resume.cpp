#include <algorithm>
#include <filesystem>
#include <iostream>

#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/plan/ladder.h"
#include "bench/results/file.h"
#include "bench/results/json.h"
#include "bench/run/child.h"

namespace stepladder {
namespace {

/// The words of the command that measured `results`, without the options for where to write and how to begin.
std::vector<std::string> command_of(const Results& results, const std::string& file) {
  const std::string line = whole_text_at(results.context, "command_line");
  if (line.find("\uFFFD") != std::string::npos)
    throw InputError(cat(file,
                         ": its command had bytes that are not UTF-8, which no file keeps: repeat that "
                         "command with --resume"));
  const std::vector<std::string> words = shell_words(line);
  if (words.size() < 2 || (words[1] != "run" && words[1] != "ablate" && words[1] != "tune"))
    throw InputError(
        cat(file, ": not of `stepladder run`, `ablate` or `tune`, which alone can be gone on with"));
  std::vector<std::string> kept = {words[1]};
  for (size_t i = 2; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));  // a flag may be --overwrite=true
    if (name == "--out" || name == "--part")
      i += words[i] == name;
    else if (name != "--overwrite" && name != "--resume" && name != "--retry-failed")
      kept.push_back(words[i]);
  }
  return kept;
}

/// An option that has a command start a program: two words or, as --ladder=FILE, one; more for a list.
struct Starts {
  size_t at, size;
  std::string name, value;
};

/// All options in `words` that may start a program, even those that an option before may take as its value.
std::vector<Starts> starts_of(const std::vector<std::string>& words) {
  std::vector<Starts> found;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (name != "--launcher" && name != "--ladder" && name != "--python" && name != "--peer") continue;
    Starts one{i, 1, name, words[i].substr(std::min(name.size() + 1, words[i].size()))};
    if (words[i] == name && i + 1 < words.size()) one.value = words[i + one.size++];
    while (name == "--peer" && i + one.size < words.size() && !words[i + one.size].starts_with("-"))
      one.value += "," + words[i + one.size++];
    const bool ours = our_ladder(one.value) || (name == "--peer" && one.value == "pytorch");
    if (!ours || (name != "--peer" && name != "--ladder")) found.push_back(one);
  }
  return found;
}

/// Erases an option, or what is left of it: another option may have had its words as a value.
void erase(std::vector<std::string>& words, const Starts& option) {
  const auto begin = words.begin() + static_cast<std::ptrdiff_t>(option.at);
  words.erase(begin, begin + std::min(words.end() - begin, static_cast<std::ptrdiff_t>(option.size)));
}

/// Removes doubles of options that start programs: from `more`, the user's words, if `command`, the file's
/// words, has the same value; from `command` if `more` has another value. Throws InputError for such an
/// option that only `command` has: a file must not choose what is started.
void take_programs_from(std::vector<std::string>& command, std::vector<std::string>& more,
                        const std::string& file) {
  std::vector<std::string> missing;
  auto in_file = starts_of(command);
  std::ranges::reverse(in_file);  // erasing a word moves later words only
  for (const Starts& option : in_file) {
    const auto given = starts_of(more);
    const auto same = std::ranges::find_if(
        given, [&](const Starts& one) { return one.name == option.name && one.value == option.value; });
    if (same != given.end())
      erase(more, *same);
    else if (option.name != "--peer" && std::ranges::count(given, option.name, &Starts::name) > 0)
      erase(command, option);
    else
      missing.insert(missing.begin(), cat(option.name, " ", shell_quoted(option.value)));
  }
  if (!missing.empty())
    throw InputError(
        cat(file, ": its command starts programs, which no file chooses: where they are what you want, add ",
            join(missing, " ")));
}

/// Checks that the ladder files that the command names are found from this folder. Throws InputError.
void check_folder(const std::vector<std::string>& command, const std::string& file) {
  std::error_code none;
  for (const Starts& option : starts_of(command))
    if (option.name == "--ladder" && !option.value.empty() && !std::filesystem::exists(option.value, none))
      throw InputError(cat(file, ": its command names ", option.value,
                           ", which isn't here: go on in the folder where it was started"));
}

}  // namespace

std::string resuming(const Results& results, const std::string& place, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"stepladder", "resume", place};
  append(words, more);
  const std::vector<std::string> command = shell_words(whole_text_at(results.context, "command_line"));
  for (const Starts& option : starts_of(command)) {
    const auto begin = command.begin() + static_cast<std::ptrdiff_t>(option.at);
    words.insert(words.end(), begin, begin + static_cast<std::ptrdiff_t>(option.size));
  }
  return shell_line(words);
}

Command resume_command() {
  const auto rest = std::make_shared<std::vector<std::string>>();
  const auto run = [rest]() -> int {
    if (rest->empty() || rest->front().starts_with("-"))
      throw InputError(
          "which file? stepladder resume FILE [OPTION]..., such as --rounds 6 or --retry-failed");
    const std::string& file = rest->front();
    for (const std::string& word : *rest)
      if (word == "--out" || word.starts_with("--out="))
        throw InputError(cat(word, ": it goes on in ", file, " itself: leave it out"));
    const std::vector<Part> parts = load_parts(file);
    std::vector<std::string> command =
        command_of(parts.empty() ? load_results(file) : parts.back().results, file);
    const bool trials = command.front() == "tune";  // parts of one command
    if (!trials) load_results(file);                // which refuses several parts, by their names
    std::vector<std::string> more(rest->begin() + 1, rest->end());
    take_programs_from(command, more, file);
    check_folder(command, file);
    append(command, {"--resume", "--out", file_and_part(file).first});
    if (const std::string& part = parts.back().name; !trials && !part.empty())
      append(command, {"--part", part});
    append(command, more);
    std::cerr << printable("stepladder " + shell_line(command), kMaxMessage) << std::endl;
    command.insert(command.begin(), "/proc/self/exe");
    exec(command);
  };
  return {.name = "resume",
          .about = "go on with what a results file holds of its plan, by the command that it names",
          .options = {},
          .run = run,
          .footer =
              "stepladder resume FILE [OPTION]...; what is added replaces what the command had, such as "
              "--rounds 6, but adds to its lists. What starts programs (--launcher, --ladder, --python and "
              "--peer) has to be given again. Run it in the folder of the first command.",
          .rest = rest.get()};
}

}  // namespace stepladder
