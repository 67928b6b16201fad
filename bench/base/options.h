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

/// What a value may be: a number of a range, or one of some words.
struct Allowed {
  Allowed() = default;
  Allowed(double least, double most) : min(least), max(most) {}
  Allowed(std::vector<std::string> words) : choices(std::move(words)) {}
  Allowed(std::initializer_list<const char*> words) : choices(words.begin(), words.end()) {}

  double min = std::numeric_limits<double>::lowest(), max = std::numeric_limits<double>::max();
  std::vector<std::string> choices;  // when not empty, the only values allowed
};

/// A long option bound to the variable that holds its default and takes its value. One whose name is in
/// capitals is a positional argument, and has to be there unless it has a default.
struct Option {
  using Value = std::variant<std::string*, bool*, int*, int64_t*, uint64_t*, float*, double*,
                             std::optional<std::string>*, std::optional<int64_t>*, std::optional<float>*,
                             std::optional<double>*, std::vector<std::string>*>;

  std::string name;         // "batch" for --batch
  Value value;              // a bool is a flag; a vector takes the option again or a list with commas
  std::string placeholder;  // what help calls the value, its unit if it has one: "N", "FILE", "MS"
  std::string help;
  std::string group = {};  // heading in the help; "" hides the option
  Allowed allowed = {};
  bool may_be_empty = false;  // whether '' is a value too

  /// The current value as a user would type it; "" for an optional without one.
  std::string text() const;
  /// The same as JSON; null for an optional without a value.
  nlohmann::ordered_json json() const;
};

/// What a program or a subcommand is called, says of itself, takes and does.
struct Command {
  std::string name, about;  // one that says nothing of itself is not in the help
  std::vector<Option> options;
  std::function<int()> run;                  // returns the exit code
  std::string footer = {};                   // of the help
  std::vector<std::string>* rest = nullptr;  // takes all that follows the name as it is
  bool takes_rung = false;                   // as the first of those
  std::set<std::string> usual = {};  // options that --help shows, --help-all the others too; none: all
};

/// The command with an Options of its own, whose options() it takes and which `run` gets.
template <class Options>
Command command(const char* name, const char* about, int (*run)(Options&), std::set<std::string> usual = {}) {
  const auto options = std::make_shared<Options>();
  return {.name = name,
          .about = about,
          .options = options->options(),
          .run = [options, run] { return run(*options); },
          .usual = std::move(usual)};
}

/// Parses the command line and runs the program, or the one of its subcommands that is named; answers --help
/// and --version, which is "NAME `version`". Of an option given twice the last counts, but
/// lists add up. Returns the exit code. Throws InputError for a value out of range, not of the type or not
/// among the choices, and for an unknown option or subcommand, with the nearest one or the subcommands that
/// have the option.
int run_command_line(const Command& program, const std::string& version, int argc, const char* const* argv,
                     const std::vector<Command>& subcommands = {});

/// --wide, of commands that print tables.
Option wide_option(bool& wide, const std::string& group);

/// `more` behind `options`.
std::vector<Option> operator+(std::vector<Option> options, const std::vector<Option>& more);

/// {"batch": 4, "warmup_lr_steps": 10, ..}: the options of `groups`, dashes as underscores.
nlohmann::ordered_json options_json(const std::vector<Option>& options,
                                    const std::vector<std::string>& groups);

/// (name, text) of the options of `groups` that have a value and are not off, for a box.
std::vector<std::pair<std::string, std::string>> option_rows(const std::vector<Option>& options,
                                                             const std::vector<std::string>& groups);

}  // namespace stepladder
