#include "bench/plan/ladder_file.h"

#include <filesystem>

#include "bench/base/text.h"
#include "bench/plan/placeholders.h"
#include "bench/results/file.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

/// Throws InputError for a placeholder that is none, and a source that is not there.
void check_rung(const Rung& rung, const std::string& folder) {
  for (const auto* words : {&rung.command, &rung.environment, &rung.version})
    for (const std::string& word : *words) check_placeholders(word);
  for (const std::string& source : rung.sources)
    if (!fs::is_regular_file(fs::path(folder) / source))
      throw InputError(cat("its source ", printable(source, 200), " is no file in ", folder));
}

}  // namespace

Ladder load_ladder(const std::string& path) {
  try {
    const fs::path file = fs::is_directory(path) ? fs::path(path) / "ladder.json" : fs::path(path);
    Ladder ladder = ladder_from(load_json(file), fs::absolute(file).parent_path().lexically_normal());
    for (const Rung& rung : ladder.rungs) {
      try {
        check_rung(rung, ladder.folder);
      } catch (const InputError& e) {
        throw InputError(cat(rung.name, ": ", e.what()));
      }
    }
    return ladder;
  } catch (const InputError& e) {
    const std::string what = e.what();
    throw InputError(what.find(path) == std::string::npos ? cat(path, ": ", what) : what);
  } catch (const fs::filesystem_error& e) {
    throw InputError(path_error(e));
  }
}

Ladder ladder_at(const std::string& path) {
  return path.empty() ? ladder() : load_ladder(path);
}

Ladder ladder_of(const Results& results) {
  const auto told = results.plan.find("ladder");
  return told == results.plan.end() ? ladder() : ladder_from(*told, ".");
}

}  // namespace stepladder
