#include "bench/base/options.h"

#include <algorithm>

#include "bench/base/text.h"
#include "model/error.h"
#include "model/nearest.h"

namespace stepladder {
namespace {

template <class T>
constexpr bool kOptional = false;
template <class T>
constexpr bool kOptional<std::optional<T>> = true;
template <class T>
constexpr bool kList = std::is_same_v<T, std::vector<std::string>>;

/// "" when `text` is a T within the option's range, else what is wrong with it.
template <class T>
std::string problem(const Option& option, const std::string& text) {
  if constexpr (kOptional<T>) {
    return problem<typename T::value_type>(option, text);
  } else if constexpr (std::is_arithmetic_v<T>) {
    T value{};
    const bool wraps = std::is_unsigned_v<T> && text.starts_with("-");
    if (wraps || !CLI::detail::lexical_cast(text, value))
      return cat("'", text, "' is not a ", std::is_integral_v<T> ? "whole " : "", "number");
    const auto number = static_cast<double>(value);
    if (number >= option.min && number <= option.max) return "";
    const bool bounded = option.max < std::numeric_limits<double>::max();
    return cat(text, " is out of range: from ", number_text(option.min),
               bounded ? cat(" to ", number_text(option.max)) : " up");
  } else {
    if (option.choices.empty() || std::count(option.choices.begin(), option.choices.end(), text)) return "";
    return cat("unknown value '", text, "': did you mean '", nearest(text, option.choices), "'? (",
               join(option.choices, ", "), ")");
  }
}

std::string text_of(const std::string& value) {
  return value;
}
std::string text_of(bool value) {
  return value ? "true" : "false";
}
std::string text_of(const std::vector<std::string>& values) {
  return join(values, ",");
}
template <class Number>
std::string text_of(Number value) {
  return number_text(value);
}
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "";
}

template <class T>
nlohmann::ordered_json json_of(const T& value) {
  return value;
}
/// The float that was typed, not its neighbour in double.
nlohmann::ordered_json json_of(float value) {
  return std::stod(number_text(value));
}
template <class T>
nlohmann::ordered_json json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : nlohmann::ordered_json();
}

/// The subcommand that was being parsed, innermost.
const CLI::App& active(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : active(*chosen.front());
}

/// Names what was not understood and what is closest to it.
std::string unexpected(const CLI::App& app, const std::string& extra) {
  const CLI::App& at = active(app);
  std::vector<std::string> candidates;
  if (extra.starts_with("-")) {
    for (const CLI::Option* option : at.get_options())
      if (!option->get_lnames().empty()) candidates.push_back("--" + option->get_lnames().front());
  } else {
    for (const CLI::App* sub : at.get_subcommands({})) candidates.push_back(sub->get_name());
  }
  const std::string name = extra.substr(0, extra.find('='));
  const char* kind = extra.starts_with("-") ? "unknown option"
                     : candidates.empty()   ? "unexpected argument"
                                            : "unknown command";
  const std::string closest = nearest(name, candidates);
  return cat(kind, " '", name, "'", closest.empty() ? "" : cat(": did you mean ", closest, "?"));
}

bool in(const std::vector<std::string>& groups, const Option& option) {
  return std::find(groups.begin(), groups.end(), option.group) != groups.end();
}

}  // namespace

std::string Option::text() const {
  return std::visit([](const auto* v) { return text_of(*v); }, value);
}

nlohmann::ordered_json Option::json() const {
  return std::visit([](const auto* v) { return json_of(*v); }, value);
}

void add_options(CLI::App& app, const std::vector<Option>& options) {
  for (const Option& option : options) {
    const std::string flag = "--" + option.name;
    const std::string help =
        option.help + (option.choices.empty() ? "" : " (" + join(option.choices, ", ") + ")");
    std::visit(
        [&](auto* v) {
          using T = std::remove_cvref_t<decltype(*v)>;
          if constexpr (std::is_same_v<T, bool>) {
            app.add_flag(flag, *v, help)->group(option.group);
          } else {
            CLI::Option* added = app.add_option(flag, *v, help)
                                     ->group(option.group)
                                     ->type_name(option.placeholder)
                                     ->default_str(option.text());
            if constexpr (kList<T>)
              added->delimiter(',');
            else
              added->take_last();
            added->check(
                CLI::Validator([option](std::string& text) { return problem<T>(option, text); }, ""));
          }
        },
        option.value);
  }
}

void add_help(CLI::App& app, const std::string& version) {
  app.set_help_flag("--help", "print this and exit")->group("Other");
  if (!version.empty())
    app.set_version_flag("--version", version, "print the version and exit")->group("Other");
  app.get_formatter()->column_width(34);
}

bool parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& e) {
    app.exit(e);
    return false;
  } catch (const CLI::ParseError& e) {
    // What was not understood explains what is missing.
    const auto extras = app.remaining(true);
    throw InputError(extras.empty() ? e.what() : unexpected(app, extras.front()));
  }
}

nlohmann::ordered_json options_json(const std::vector<Option>& options,
                                    const std::vector<std::string>& groups) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const Option& option : options) {
    std::string key = option.name;
    std::replace(key.begin(), key.end(), '-', '_');
    if (in(groups, option)) object[key] = option.json();
  }
  return object;
}

std::vector<std::pair<std::string, std::string>> option_rows(const std::vector<Option>& options,
                                                             const std::vector<std::string>& groups) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Option& option : options)
    if (in(groups, option)) rows.emplace_back(option.name, option.text());
  return rows;
}

}  // namespace stepladder
