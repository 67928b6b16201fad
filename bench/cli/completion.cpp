#include <cctype>
#include <iostream>

#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/plan/ladder.h"
#include "bench/plan/presets.h"
#include "model/config.h"
#include "model/error.h"

namespace stepladder {
namespace {

std::string rungs() {
  std::vector<std::string> names;
  for (const Ladder& ladder : our_ladders()) append(names, texts_of(ladder.rungs, &Rung::name));
  return join(names, " ");
}

/// The values that an option or an argument may have; "" for a file, a number or free text.
std::string values_of(const Option& option) {
  if (option.name == "rungs" || option.name == "RUNG" || option.name == "A" || option.name == "B")
    return rungs();
  if (option.name == "model") return join(Config::names(), " ");
  return join(option.name == "preset" ? texts_of(presets(), &Preset::name) : option.allowed.choices, " ");
}

/// Shell code for one command that sets `words` to the words that may stand at the cursor.
std::string cases_of(const Command& command) {
  std::string after, files, names = command.takes_rung ? rungs() + " " : "";
  for (const Option& option : command.options) {
    const std::string values = values_of(option);
    const bool argument = std::isupper(static_cast<unsigned char>(option.name.front())) != 0;
    if (argument) {
      names += values.empty() ? "" : values + " ";
      continue;
    }
    if (option.group.empty()) continue;  // help hides it too
    names += "--" + option.name + " ";
    if (std::holds_alternative<bool*>(option.value)) continue;
    if (values.empty())
      files += (files.empty() ? "--" : "|--") + option.name;
    else
      after += cat("        --", option.name, ") words='", values, "' ;;\n");
  }
  if (!files.empty()) after += cat("        ", files, ") ;;\n");
  return cat("      case $before in\n", after, "        *) words='", names, "--help' ;;\n      esac\n");
}

std::string bash_script(const std::vector<Command>& commands) {
  std::string names, cases;
  for (const Command& command : commands) {
    if (command.about.empty()) continue;
    names += command.name + " ";
    cases += cat("    ", command.name, ")\n", cases_of(command), "      ;;\n");
  }
  return cat(R"(# Completes the command line of stepladder in bash and zsh.
[ -z "${ZSH_VERSION-}" ] || { autoload -U +X bashcompinit && bashcompinit; }
_stepladder() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words= first=
  # bash splits --option=value into three words.
  if [ "$word" = = ]; then word=; elif [ "$before" = = ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi
  # Only the last item of a list is completed.
  case $word in *,*) first=${word%,*}, ;; esac
  case ${COMP_WORDS[1]} in
)",
             cases, "  esac\n  if [ \"$COMP_CWORD\" = 1 ]; then words='", names, R"(--help --version'; fi
  COMPREPLY=($(compgen -P "$first" -W "$words" -- "${word##*,}"))
}
complete -o default -F _stepladder stepladder
)");
}

}  // namespace

Command completion_command(const std::vector<Command>& commands) {
  return {"completion",
          "prints what completes its command line: source <(stepladder completion)",
          {},
          [commands] {
            std::cout << bash_script(commands);
            return kExitOk;
          }};
}

}  // namespace stepladder
