#include "bench/plan/ladder_file.h"

#include <filesystem>

#include "bench/base/text.h"
#include "bench/results/file.h"
#include "bench/run/child.h"
#include "bench/run/placeholders.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

/// Adds the files that a rung's command names to its sources. Throws InputError, naming the rung, for an
/// unknown placeholder and for a missing source.
void complete(Rung& rung, const std::string& folder) try {
  for (const auto* words : {&rung.command, &rung.environment, &rung.version})
    for (const std::string& word : *words) check_placeholders(word);
  for (const std::string& source : rung.sources)
    if (!fs::is_regular_file(fs::path(folder) / source))
      throw InputError(cat("its source ", printable(source, 200), " is no file in ", folder));
  std::error_code none;
  for (const std::string& word : rung.command)
    if (fs::is_regular_file(fs::path(folder) / word, none)) add_once(rung.sources, word);
} catch (const InputError& e) {
  throw InputError(cat(rung.name, ": ", e.what()));
}

/// Whether JSON is meant to be a ladder file, valid or not.
bool is_ladder(const Json& json) {
  return json.is_object() && !json.contains("schema") &&
         (json.contains("name") || json.contains("rungs") || json.contains("switches"));
}

/// Checks the ladder that results record. Throws InputError, naming the file, where it makes no sense.
void check_ladder(const Results& results, const std::string& path) try {
  ladder_of(results);
} catch (const InputError& e) {
  throw InputError(cat(path, ": plan.ladder: ", e.what()));
}

}  // namespace

Ladder load_ladder(const std::string& path) {
  try {
    const fs::path file = fs::is_directory(path) ? fs::path(path) / "ladder.json" : fs::path(path);
    Ladder ladder = ladder_from(load_json_of("a ladder file", file, is_ladder),
                                fs::absolute(file).parent_path().lexically_normal());
    for (Rung& rung : ladder.rungs) complete(rung, ladder.folder);
    if (ladder.switched) complete(*ladder.switched, ladder.folder);
    return ladder;
  } catch (const InputError& e) {
    const std::string what = e.what();
    throw InputError(what.find(path) == std::string::npos ? cat(path, ": ", what) : what);
  } catch (const fs::filesystem_error& e) {
    throw InputError(path_error(e));
  }
}

Ladder ladder_at(const std::string& path) {
  if (path.empty()) return ladder();
  const Ladder* ours = our_ladder(path);
  return ours ? *ours : load_ladder(path);
}

std::string commit_of(const Ladder& ladder) {
  // git is to describe the folder, not the repository whose hook may run this.
  return output_of({"env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE", "git", "describe",
                    "--always", "--dirty", "--abbrev=40", "--exclude=*"},
                   10.0, ladder.folder)
      .value_or("");
}

Ladder ladder_of(const Results& results) {
  const auto told = results.plan.find("ladder");
  if (told == results.plan.end()) return ladder();
  const Ladder* ours = told->is_object() ? our_ladder(text_at(*told, "name")) : nullptr;
  return ours && !ours->usual() ? *ours : ladder_from(*told, ".");
}

Results load_measured(const std::string& path) {
  Results results = load_results(path);
  check_ladder(results, path);
  return results;
}

std::vector<Part> load_measured_parts(const std::string& path) {
  std::vector<Part> parts = load_parts(path);
  for (const Part& part : parts) check_ladder(part.results, path);
  return parts;
}

}  // namespace stepladder
