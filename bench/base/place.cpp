#include "bench/base/place.h"

#include <filesystem>

#include "model/environment.h"

namespace stepladder {

const std::string& shared_dir() {
  static const std::string found = [] {
    namespace fs = std::filesystem;
    std::error_code none;
    const fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
    // Programs lie in an installation's bin/ or libexec/stepladder/, or in a source tree's build/PRESET/bin/.
    for (const char* up : {"../share/stepladder", "../../share/stepladder", "../../.."})
      if (const fs::path shared = folder / up; fs::exists(shared / "scripts/peers", none))
        return fs::canonical(shared).string();
    return std::string(STEPLADDER_SOURCE_DIR);
  }();
  return found;
}

std::string user_data_dir() {
  std::filesystem::path cache = environment_variable("XDG_CACHE_HOME");
  if (cache.empty()) cache = std::filesystem::path(environment_variable("HOME")) / ".cache";
  return cache / "stepladder/data";
}

std::string trainer_module_dir() {
  return shared_dir() + "/python/trainer";
}

}  // namespace stepladder
