#include "bench/plan/programs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "model/nearest.h"

namespace stepladder {
namespace {

constexpr const char* kScripts = STEPLADDER_SOURCE_DIR "/scripts/peers/";

Program pytorch(const Rung& rung, const std::string& python) {
  return {.variant = "pytorch/" + rung.name,
          .peer = "pytorch",
          .command = {python, cat(kScripts, "pytorch_ladder.py"), rung.name},
          .math = rung.math,
          .batch = rung.batch,
          .devices = rung.devices};
}

Program llmc(const std::string& binary, const std::string& python) {
  std::error_code none;
  if (::access(binary.c_str(), X_OK) != 0 || !std::filesystem::is_regular_file(binary, none))
    throw InputError(
        cat("--peer llmc=", binary, ": no executable is there; name llm.c's train_gpt2cu as llmc=PATH"));
  return {"llmc", "llmc", {python, cat(kScripts, "llmc"), binary}, MathMode::half};
}

}  // namespace

std::vector<Program> programs(const std::vector<Rung>& rungs, const std::vector<std::string>& peers,
                              const std::string& python) {
  std::vector<Program> all, last;
  bool beside_rungs = false;
  for (const std::string& peer : peers) {
    const std::string name = peer.substr(0, peer.find('='));
    if (peer == "pytorch")
      beside_rungs = true;
    else if (name == "llmc")
      last = {llmc(peer.substr(std::min(name.size() + 1, peer.size())), python)};
    else
      throw InputError(cat("--peer: unknown peer '", peer, "': did you mean '",
                           nearest(name, {"pytorch", "llmc"}) == "llmc" ? "llmc=PATH" : "pytorch", "'?"));
  }
  for (const Rung& rung : rungs) {
    all.push_back(program_of(rung));
    if (beside_rungs) all.push_back(pytorch(rung, python));
  }
  all.insert(all.end(), last.begin(), last.end());
  return all;
}

Program program_of(const Rung& rung, const std::string& folder) {
  return {.variant = rung.name,
          .peer = "",
          .command = {folder + "/" + rung.trainer},
          .math = rung.math,
          .tolerance = rung.tolerance,
          .batch = rung.batch,
          .devices = rung.devices,
          .calls_itself = rung.trainer == rung.name ? "" : rung.trainer};
}

Program program_of(const Ablation& ablation) {
  return {.variant = ablation.name,
          .peer = "",
          .command = {bin_dir() + "/ablations/" + ablation.program()},
          .math = ablation.row.math,
          .tolerance = ablation.row.tolerance};
}

std::string peer_title(const std::string& peer) {
  return peer == "pytorch" ? "PyTorch" : peer == "llmc" ? "llm.c" : peer;
}

}  // namespace stepladder
