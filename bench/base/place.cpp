#include "bench/base/place.h"

#include <filesystem>

namespace stepladder {

const std::string& shared_dir() {
  static const std::string found = [] {
    namespace fs = std::filesystem;
    std::error_code none;
    const fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
    for (const char* up : {"..", "../.."})  // from bin/, from libexec/stepladder/
      if (const fs::path shared = folder / up / "share/stepladder"; fs::exists(shared, none))
        return fs::canonical(shared).string();
    return std::string(STEPLADDER_SOURCE_DIR);
  }();
  return found;
}

}  // namespace stepladder
