#include "bench/run/program.h"

#include <filesystem>

#include "bench/base/text.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"

namespace stepladder {

std::string Program::source_hash() const {
  std::vector<std::string> ask = command;
  ask.emplace_back("--version");
  const std::string text = output_of(ask).value_or("");
  const size_t at = text.rfind(" source ");
  if (at != std::string::npos) return text.substr(at + 8);
  if (!peer.empty())
    throw InputError(cat("cannot run ", join(ask, " "), ": --peer-python names a Python 3.11 or newer"));
  const bool ablation = command.front().find("/ablations/") != std::string::npos;
  throw Error(cat(command.front(), " is not there or is no rung: cmake --build ",
                  std::filesystem::path(bin_dir()).parent_path().string(), " --target ",
                  ablation ? "ablations" : "ladder", " builds it, or name the folder in STEPLADDER_BIN_DIR"));
}

}  // namespace stepladder
