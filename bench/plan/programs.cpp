#include "bench/plan/programs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "bench/base/place.h"
#include "bench/base/text.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/settings.h"
#include "bench/run/placeholders.h"
#include "model/nearest.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

/// A ladder beside the one that is measured, with what {path} stands for in its commands.
struct Peer {
  Ladder ladder;
  std::string path;
};

bool uses_path(const Ladder& ladder) {
  return std::ranges::any_of(ladder.rungs, [](const Rung& rung) { return uses(rung, "path"); });
}

/// The ladder that --peer names, for a measurement of ladder `of`: beside ours of learning, PyTorch has
/// another one.
Ladder ladder_beside(const std::string& name, const std::string& asked, const Ladder& of) {
  std::vector<std::string> known = {"pytorch", "llmc"};
  append(known, texts_of(our_ladders(), &Ladder::name));
  if (const Ladder* ours = our_ladder(name)) return *ours;
  std::error_code none;
  if (std::ranges::find(known, name) != known.end()) {
    const std::string file = cat(shared_dir(), "/scripts/peers/", name),
                      own = cat(file, "_", of.name, ".json");
    return load_ladder(our_ladder(of.name) && fs::exists(own, none) ? own : file + ".json");
  }
  if (fs::exists(name, none)) return load_ladder(name);
  throw InputError(cat("--peer: unknown peer '", asked, "'",
                       suggestion(name, known, "there are pytorch, llmc=PATH, stepladder and ladder files")));
}

Peer peer_at(const std::string& asked, const Ladder& of) {
  const size_t equals = std::min(asked.find('='), asked.size());
  Peer peer{ladder_beside(asked.substr(0, equals), asked, of),
            asked.substr(std::min(equals + 1, asked.size()))};
  const std::string& name = peer.ladder.name;
  std::error_code none;
  if (!uses_path(peer.ladder) && equals < asked.size())
    throw InputError(cat("--peer ", asked, ": ", name, " takes no path, no command of it has {path}: --peer ",
                         asked.substr(0, equals)));
  if (uses_path(peer.ladder) &&
      (::access(peer.path.c_str(), X_OK) != 0 || !fs::is_regular_file(peer.path, none)))
    throw InputError(cat("--peer ", name, "=", peer.path, ": no executable is there; name ",
                         name == "llmc" ? "llm.c's train_gpt2cu" : "the program", " as ", name, "=PATH"));
  if (!peer.path.empty()) peer.path = fs::absolute(peer.path);
  return peer;
}

/// The program of a rung of a ladder, which stands beside another ladder if it `is_peer`.
Program program_of(const Rung& rung, const Ladder& of, bool is_peer, const Values& values) {
  Program program{rung};
  program.variant = is_peer && rung.name != of.name ? cat(of.name, "/", rung.name) : rung.name;
  program.peer = is_peer ? of.name : "";
  program.folder = of.folder;
  if (!is_told(rung, "model")) program.model = of.workload.model.value_or(of.name);
  program.calls_itself = rung.trainer;
  program.takes_python = uses(rung, "python");
  for (auto* words : {&program.command, &program.environment, &program.version})
    for (std::string& word : *words) word = filled(word, values);
  return program;
}

/// The rungs of a peer that are measured beside `rungs` of `ladder`.
std::vector<Rung> chosen_beside(const Ladder& peer, const std::vector<std::string>& named,
                                const std::vector<Rung>& rungs, const Ladder& ladder) {
  if (!named.empty()) return peer.chosen(named);
  std::vector<Rung> chosen;
  bool akin = false;
  for (const Rung& rung : peer.rungs) {
    const bool same = std::ranges::find(rungs, rung.name, &Rung::name) != rungs.end();
    if (same || rung.name == peer.name) chosen.push_back(rung);
    akin |= ladder.listed(rung.name) != nullptr;
  }
  return akin || !chosen.empty() ? chosen : peer.rungs;
}

}  // namespace

std::vector<Program> programs(const Ladder& ladder, const std::vector<std::string>& names,
                              const std::vector<std::string>& peers, const std::string& python,
                              const std::string& bin) {
  if (uses_path(ladder))
    throw InputError(cat("--ladder: {path} in the commands of ", ladder.name,
                         " is what --peer NAME=PATH says: measure it as a peer"));
  std::vector<Peer> beside;
  for (const std::string& peer : peers) beside.push_back(peer_at(peer, ladder));
  for (size_t i = 0; i < beside.size(); ++i)
    for (size_t j = 0; j <= i; ++j)
      if (beside[i].ladder.name == (j == i ? ladder.name : beside[j].ladder.name))
        throw InputError(cat("--peer ", peers[i], ": two ladders are called ", beside[i].ladder.name,
                             ": leave one out, or rename it"));

  std::vector<std::string> own;
  std::map<std::string, std::vector<std::string>> of_peers;
  for (const std::string& name : names) {
    const size_t slash = name.find('/');
    const std::string peer = name.substr(0, slash);
    const auto at = std::ranges::find(beside, peer, [](const Peer& p) { return p.ladder.name; });
    // A peer's rung that is called like its ladder goes by that name alone, as in tables.
    const bool whole = slash == std::string::npos && at != beside.end() && at->ladder.listed(peer);
    if (slash == std::string::npos && !whole)
      own.push_back(name);
    else if (at != beside.end())
      of_peers[peer].push_back(whole ? name : name.substr(slash + 1));
    else
      throw InputError(cat("--rungs ", name, ": no --peer is called ", peer));
  }
  const std::vector<Rung> rungs = ladder.chosen(own);
  // Commands run in other folders.
  const bool on_path = python.find('/') == std::string::npos;
  Values values = {{"python", on_path ? python : fs::absolute(python).string()}, {"bin", bin}};
  std::vector<Program> all, last;
  for (const Rung& rung : rungs) all.push_back(program_of(rung, ladder, false, values));
  for (const Peer& peer : beside) {
    const auto& named = of_peers[peer.ladder.name];
    values["path"] = peer.path;
    for (const Rung& rung : chosen_beside(peer.ladder, named, rungs, ladder)) {
      Program program = program_of(rung, peer.ladder, true, values);
      const auto same = std::find_if(all.rbegin(), all.rend(), [&](const Program& p) {
        return p.variant == rung.name || p.variant.ends_with("/" + rung.name);
      });
      if (same == all.rend())
        last.push_back(std::move(program));
      else
        all.insert(same.base(), std::move(program));
    }
  }
  append(all, last);
  std::set<std::string> called;
  for (const Program& program : all)
    if (!called.insert(program.variant).second)
      throw InputError(
          cat("two rungs are called ", program.variant, ": rename one, or the ladder of the peer"));
  return all;
}

Program program_of(const Rung& rung) {
  return program_of(rung, ladder(), false, {{"bin", bin_dir()}});
}

Program program_of(const Ablation& ablation) {
  Program program = program_of(ablation.row);
  program.command.front() = cat(bin_dir(), "/ablations/", ablation.program());
  program.calls_itself = ablation.name;
  return program;
}

bool is_built(const Rung& rung, const std::string& folder) {
  return fs::exists(fs::path(folder) / rung.trainer);
}

std::vector<std::string> own_batch_arguments(const Rung& rung) {
  if (rung.batch != BatchSize::largest) return {};
  return {"--max-batch", std::to_string(RungSettings::kMaxBatch)};
}

std::string why_not_here(const Rung& rung, const DeviceProbe& probe) {
  std::string why_not = unsupported_reason(rung.compute_capability, probe.device);
  if (!why_not.empty() || rung.devices <= probe.devices) return why_not;
  return probe.device.backend == "cpu" ? cat("needs --devices ", rung.devices)
                                       : cat("needs ", rung.devices, " devices");
}

std::string peer_title(const std::string& peer) {
  return peer == "pytorch" ? "PyTorch" : peer == "llmc" ? "llm.c" : peer;
}

}  // namespace stepladder
