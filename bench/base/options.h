// One table of options drives the parser, its help, the start-up box and the recorded configuration.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace stepladder {

/// The values that an option accepts: numbers of a range, or one of several words.
struct Allowed {
  Allowed() = default;
  Allowed(double least, double most) : min(least), max(most) {}
  Allowed(std::vector<std::string> words) : choices(std::move(words)) {}
  Allowed(std::initializer_list<const char*> words) : choices(words.begin(), words.end()) {}

  double min = std::numeric_limits<double>::lowest(), max = std::numeric_limits<double>::max();
  std::vector<std::string> choices;  // when not empty, the only values allowed
};

/// A long option bound to the variable that holds its default and takes its value. An option whose name
/// begins with a capital is a positional argument, required unless it has a default.
struct Option {
  using Value = std::variant<std::string*, bool*, int*, int64_t*, uint64_t*, float*, double*,
                             std::optional<std::string>*, std::optional<int64_t>*, std::optional<float>*,
                             std::optional<double>*, std::vector<std::string>*, std::vector<int64_t>*,
                             std::vector<double>*>;

  std::string name;  // "batch" for --batch
  Value value;       // a bool is a flag; a vector takes repeated options and lists with commas, a number once
  std::string placeholder;  // what help calls the value, its unit if it has one: "N", "FILE", "MS"
  std::string help;
  std::string group = {};  // heading in the help; "" hides the option
  Allowed allowed = {};
  bool may_be_empty = false;  // whether '' is accepted

  /// The current value as a user would type it; "" for an optional without a value.
  std::string text() const;
  /// The current value as JSON; null for an optional without a value.
  nlohmann::ordered_json json() const;
};

/// A program or a subcommand: its name, its help, its options, and the function that runs it.
struct Command {
  std::string name, about;  // a command with an empty `about` is not in the help
  std::vector<Option> options;
  std::function<int()> run;                  // returns the exit code
  std::string footer = {};                   // below the help
  std::vector<std::string>* rest = nullptr;  // receives the words after the options, unparsed
  bool takes_rung = false;                   // whether the first word of `rest` is a rung
  std::set<std::string> usual = {};  // options that --help shows, empty: all; --help-all shows every option
};

/// A command with the options() of a new Options object, which `run` receives.
template <class Options>
Command command(const char* name, const char* about, int (*run)(Options&), std::set<std::string> usual = {}) {
  const auto options = std::make_shared<Options>();
  return {.name = name,
          .about = about,
          .options = options->options(),
          .run = [options, run] { return run(*options); },
          .usual = std::move(usual)};
}

/// Parses the command line and runs the program or the subcommand named; answers --help, and --version with
/// "NAME `version`". Where an option is repeated, the last one counts; lists add up. Returns the exit code.
/// Throws InputError for a value out of range, of another type or not among the choices, and for an unknown
/// option or subcommand, naming the nearest one or the subcommands that have the option.
int run_command_line(const Command& program, const std::string& version, int argc, const char* const* argv,
                     const std::vector<Command>& subcommands = {});

/// The option --wide of commands that print tables.
Option wide_option(bool& wide, const std::string& group);

/// `options` followed by `more`.
std::vector<Option> operator+(std::vector<Option> options, const std::vector<Option>& more);

/// {"batch": 4, "warmup_lr_steps": 10, ..}: the options of `groups`, dashes as underscores.
nlohmann::ordered_json options_json(const std::vector<Option>& options,
                                    const std::vector<std::string>& groups);

/// Rows for box(), names and values: the options of `groups` that have a value, without flags that are off.
std::vector<std::pair<std::string, std::string>> option_rows(const std::vector<Option>& options,
                                                             const std::vector<std::string>& groups);

}  // namespace stepladder
