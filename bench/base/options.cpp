#include "bench/base/options.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/base/text.h"
#include "model/error.h"
#include "model/nearest.h"

namespace stepladder {
namespace {

template <class T>
constexpr bool kOptional = requires(T value) {
  value.has_value();
};
template <class T>
constexpr bool kList = false;
template <class T>
constexpr bool kList<std::vector<T>> = true;

/// "" when `text` is a T within the option's range, else what is wrong with it.
template <class T>
std::string problem(const Option& option, const std::string& text) {
  if constexpr (kOptional<T> || kList<T>) {
    return problem<typename T::value_type>(option, text);
  } else if constexpr (std::is_arithmetic_v<T>) {
    const auto value = number_from<T>(text);
    if (!value)
      return cat("'", printable(text, 200), "' is not a ", std::is_integral_v<T> ? "whole " : "", "number");
    auto number = static_cast<double>(*value);
    if constexpr (std::is_same_v<T, float>) number = of_float(number);  // so 1e-9 passes a minimum of 1e-9
    const auto& [min, max, choices] = option.allowed;
    if (number >= min && number <= max) return "";
    const bool bounded = max < std::numeric_limits<double>::max();
    return cat(printable(text, 200), " is out of range: from ", number_text(min),
               bounded ? cat(" to ", number_text(max)) : " up");
  } else {
    if (text.empty()) return option.may_be_empty ? "" : "wants a value";
    const auto& choices = option.allowed.choices;
    if (choices.empty() || std::ranges::count(choices, text)) return "";
    return cat("unknown value '", printable(text, 200), "': did you mean '", nearest(text, choices), "'? (",
               join(choices, ", "), ")");
  }
}

/// "" when each item of a list with commas is allowed, else what is wrong with the first that isn't.
template <class List>
std::string problem_of_items(const Option& option, const std::string& text) {
  for (const std::string& item : split(text, ',')) {
    if (item.empty()) return cat("'", printable(text, 200), "' has an empty item");
    if (std::string wrong = problem<List>(option, item); !wrong.empty()) return wrong;
  }
  return "";
}

template <class T>
std::string text_of(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (kOptional<T>) {
    return value ? text_of(*value) : "";
  } else if constexpr (kList<T>) {
    return join(texts_of(value, text_of<typename T::value_type>), ",");
  } else {
    return number_text(value);
  }
}

template <class T>
nlohmann::ordered_json json_of(const T& value) {
  if constexpr (kOptional<T>)
    return value ? json_of(*value) : nlohmann::ordered_json();
  else if constexpr (std::is_same_v<T, float>)
    return of_float(value);  // the decimal number that was typed, 0.1 for example
  else
    return value;
}

/// The innermost subcommand that was being parsed.
const CLI::App& active(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : active(*chosen.front());
}

/// The error for a word that was not understood, with the nearest option or command.
std::string unexpected(const CLI::App& app, const std::string& extra) {
  const CLI::App& at = active(app);
  const std::string name = extra.substr(0, extra.find('='));
  // For an option of another command, name that command.
  std::vector<std::string> owners;
  for (const CLI::App* sub : app.get_subcommands({}))
    if (name.starts_with("--") && sub->get_option_no_throw(name)) owners.push_back(sub->get_name());
  if (!owners.empty())
    return cat(at.get_name(), " has no ", name, ": it is an option of ", join(owners, ", "));
  std::vector<std::string> candidates;
  if (extra.starts_with("-")) {
    for (const CLI::Option* option : at.get_options())
      if (!option->get_lnames().empty()) candidates.push_back("--" + option->get_lnames().front());
  } else {
    for (const CLI::App* sub : at.get_subcommands({})) candidates.push_back(sub->get_name());
  }
  const char* kind = extra.starts_with("-") ? "unknown option"
                     : candidates.empty()   ? "unexpected argument"
                                            : "unknown command";
  if (extra.ends_with(".json") && at.get_option_no_throw("--ladder"))
    return cat(kind, " '", printable(name, 200), "': a ladder file is given by --ladder");
  return cat(kind, " '", printable(name, 200), "'",
             candidates.empty() ? "" : suggestion(name, candidates, "--help lists those there are"));
}

constexpr size_t kHelpColumn = 34;  // where the descriptions of options begin

/// A text folded for the right column of the help; CLI11 indents its further lines.
std::string help_column(const std::string& text) {
  return folded(text, std::max(prose_width(), kHelpColumn + 30) - kHelpColumn);
}

constexpr const char* kHelpAll = "--help-all";

/// Adds an option that takes lists with commas. (CLI11's own lists leave empty items out.)
template <class T>
CLI::Option* add_list(CLI::App& app, const std::string& flag, std::vector<T>& list, const std::string& help) {
  return app.add_option_function<std::vector<std::string>>(
      flag,
      [&list](const std::vector<std::string>& texts) {
        list.clear();
        for (const std::string& text : texts)
          for (std::string& item : split(text, ','))
            if constexpr (std::is_same_v<T, std::string>)
              list.push_back(std::move(item));
            else
              add_once(list, *number_from<T>(item));
      },
      help);
}

/// Adds a command's options to `app`, and the help of all options or of the usual ones alone. (CLI11's errors
/// don't name options that its help hides.)
void add(CLI::App& app, const Command& command, bool usual_alone) {
  const auto is_usual = [&](const Option& option) {
    return command.usual.empty() || command.usual.contains(option.name);
  };
  const auto heading = [&](const Option& option) {
    return !usual_alone || is_usual(option) ? option.group : "";
  };
  const auto rare = std::ranges::count_if(
      command.options, [&](const Option& option) { return heading(option) != option.group; });
  app.set_help_flag(
         cat("-h,--help,", kHelpAll),
         cat("print this and exit", rare == 0 ? "" : cat("; ", kHelpAll, " has ", rare, " options more")))
      ->group("Other");
  app.get_formatter()->column_width(kHelpColumn);
  app.footer(folded(command.footer));
  if (command.rest) app.prefix_command();
  for (const Option& option : command.options) {
    const bool argument = std::isupper(option.name.front()) != 0;
    const std::string flag = argument ? option.name : "--" + option.name;
    const auto& choices = option.allowed.choices;
    const std::string help =
        help_column(option.help + (choices.empty() ? "" : " (" + join(choices, ", ") + ")"));
    std::visit(
        [&](auto* v) {
          using T = std::remove_cvref_t<decltype(*v)>;
          if constexpr (std::is_same_v<T, bool>) {
            app.add_flag(flag, *v, help)->group(heading(option));
          } else {
            CLI::Option* added = nullptr;
            if constexpr (kList<T>)
              added = argument ? app.add_option(flag, *v, help) : add_list(app, flag, *v, help);
            else
              added = app.add_option(flag, *v, help)->take_last();
            added->type_name(option.placeholder);
            if (argument)
              added->required(option.text().empty())->default_str(option.text());
            else
              added->group(heading(option))->default_str(option.text());
            const auto problem_here = kList<T> && !argument ? problem_of_items<T> : problem<T>;
            added->check(CLI::Validator(
                [option, problem_here](std::string& text) { return problem_here(option, text); }, ""));
          }
        },
        option.value);
  }
}

/// The words of a command line, without the -- between a command's options and its `rest`.
std::vector<std::string> without_separator(std::vector<std::string> words,
                                           const std::vector<Command>& commands) {
  if (words.size() < 2) return words;
  const auto chosen = std::ranges::find(commands, words[1], &Command::name);
  if (chosen == commands.end() || !chosen->rest) return words;
  size_t at = 2;
  while (at < words.size() && words[at].size() > 2 && words[at].starts_with("--")) {
    const auto option =
        std::ranges::find(chosen->options, words[at].substr(2), &Option::name);  // none for --name=value
    const bool takes_next = option != chosen->options.end() && !std::holds_alternative<bool*>(option->value);
    at += takes_next ? 2 : 1;
  }
  if (at < words.size() && words[at] == "--") words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
  return words;
}

/// Whether standard output is a pipe that its reader has closed, as `head` does.
bool reader_is_gone() {
  pollfd out = {STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

/// Flushes standard output and returns `exit_code`. Throws Error where the output could not be written, to a
/// full disk for example.
int flushed(int exit_code) {
  std::cout.flush();
  if (std::cout.bad() && !reader_is_gone()) throw Error("the output could not be written: is the disk full?");
  return exit_code;
}

/// Opens /dev/null in place of closed standard streams: otherwise output would go into the next file opened.
/// Writing to it fails, since it is opened for reading.
void fill_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) == -1) ::open("/dev/null", O_RDONLY);  // takes the lowest number that is free
}

}  // namespace

std::string Option::text() const {
  return std::visit([](const auto* v) { return text_of(*v); }, value);
}

nlohmann::ordered_json Option::json() const {
  return std::visit([](const auto* v) { return json_of(*v); }, value);
}

int run_command_line(const Command& program, const std::string& version, int argc, const char* const* argv,
                     const std::vector<Command>& subcommands) {
  fill_standard_streams();
  CLI::App app(program.about, program.name);
  const auto said = [&](std::initializer_list<std::string_view> any) {
    return std::any_of(argv, argv + argc,
                       [&](std::string_view word) { return std::ranges::count(any, word) > 0; });
  };
  const bool usual_alone = said({"-h", "--help"}) && !said({kHelpAll});
  add(app, program, usual_alone);
  app.set_version_flag("--version", cat(program.name, " ", version), "print the version and exit")
      ->group("Other");
  const Command* chosen = &program;
  for (const Command& command : subcommands) {
    CLI::App* sub = app.add_subcommand(command.name, help_column(command.about));
    if (command.about.empty()) sub->group("");
    add(*sub, command, usual_alone);
    sub->callback([&chosen, &command, sub] {
      chosen = &command;
      if (command.rest) *command.rest = sub->remaining();
    });
  }
  if (!subcommands.empty()) app.require_subcommand(1);
  if (!subcommands.empty() && argc == 1) {
    std::cout << app.help();
    return flushed(kExitUsage);
  }
  try {
    std::vector<std::string> words = without_separator({argv, argv + argc}, subcommands);
    std::vector<const char*> arguments;
    for (const std::string& word : words) arguments.push_back(word.c_str());
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::Success& e) {
    return flushed(app.exit(e));
  } catch (const CLI::ParseError& e) {
    // A word that was not understood also explains a missing argument.
    const auto extras = active(app).get_prefix_command() ? std::vector<std::string>() : app.remaining(true);
    throw InputError(extras.empty() ? e.what() : unexpected(app, extras.front()));
  }
  return flushed(chosen->run());
}

Option wide_option(bool& wide, const std::string& group) {
  return {"wide", &wide, "", "all columns, however wide the terminal has to be", group};
}

std::vector<Option> operator+(std::vector<Option> options, const std::vector<Option>& more) {
  append(options, more);
  return options;
}

nlohmann::ordered_json options_json(const std::vector<Option>& options,
                                    const std::vector<std::string>& groups) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const Option& option : options) {
    std::string key = option.name;
    std::ranges::replace(key, '-', '_');
    if (std::ranges::count(groups, option.group) > 0) object[key] = option.json();
  }
  return object;
}

std::vector<std::pair<std::string, std::string>> option_rows(const std::vector<Option>& options,
                                                             const std::vector<std::string>& groups) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Option& option : options)
    if (const auto* const flag = std::get_if<bool*>(&option.value);
        std::ranges::count(groups, option.group) > 0 && !option.text().empty() && (!flag || **flag))
      rows.emplace_back(option.name, option.text());
  return rows;
}

}  // namespace stepladder
