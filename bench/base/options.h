// One table of options drives the parser, its help, the start-up box and the recorded configuration.
#pragma once

#include <CLI/CLI.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace stepladder {

/// A long option bound to the variable that holds its default and takes its value.
struct Option {
  using Value = std::variant<std::string*, bool*, int*, int64_t*, uint64_t*, float*, double*,
                             std::optional<std::string>*, std::optional<int64_t>*, std::optional<float>*,
                             std::vector<std::string>*>;

  std::string name;         // "batch" for --batch
  Value value;              // a bool is a flag; a vector takes the option again or a list with commas
  std::string placeholder;  // what help calls the value, its unit if it has one: "N", "FILE", "MS"
  std::string help;
  std::string group;  // heading in the help; "" hides the option
  double min = std::numeric_limits<double>::lowest(), max = std::numeric_limits<double>::max();
  std::vector<std::string> choices = {};  // when not empty, the only values allowed

  /// The current value as a user would type it; "" for an optional without one.
  std::string text() const;
  /// The same as JSON; null for an optional without a value.
  nlohmann::ordered_json json() const;
};

/// Registers the options. Of an option given twice the last counts. Values out of range, not of the type or
/// not among the choices are refused.
void add_options(CLI::App& app, const std::vector<Option>& options);

/// Gives the app its long-only --help, and --version where `version` is not empty.
void add_help(CLI::App& app, const std::string& version);

/// Parses the command line. False when --help or --version has been answered on stdout. Throws InputError,
/// with the nearest option or subcommand for an unknown one.
bool parse_command_line(CLI::App& app, int argc, const char* const* argv);

/// {"batch": 4, "warmup_lr_steps": 10, ..}: the options of `groups`, dashes as underscores.
nlohmann::ordered_json options_json(const std::vector<Option>& options,
                                    const std::vector<std::string>& groups);

/// (name, text) of the options of `groups`, for a box.
std::vector<std::pair<std::string, std::string>> option_rows(const std::vector<Option>& options,
                                                             const std::vector<std::string>& groups);

}  // namespace stepladder
