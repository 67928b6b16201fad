#include "bench/run/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iomanip>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/base/text.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"
#include "bench/run/placeholders.h"
#include "model/fd.h"

namespace stepladder {
namespace {

constexpr const char* kSource = " source ";  // precedes the hash in a rung's --version

/// The 64-bit FNV-1a hash of texts and files, with a separator after each.
class Hash {
 public:
  void add(const std::string& text) {
    for (const unsigned char byte : text) mix(byte);
    mix(0x100);
  }
  /// Adds a file's bytes, read in pieces. False where it can't be read.
  bool add_file(const std::string& path);
  std::string hex() const { return cat(std::hex, std::setw(16), std::setfill('0'), state_); }

 private:
  void mix(uint64_t value) { state_ = (state_ ^ value) * 0x100000001b3; }
  uint64_t state_ = 0xcbf29ce484222325;
};

bool Hash::add_file(const std::string& path) {
  // Known files are not read again: a trainer's data may be gigabytes, and each run asks. A file written
  // within kTrusted is not kept as known, since another write may leave its times the same.
  constexpr time_t kTrusted = 2;  // seconds
  using Version = std::tuple<uint64_t, dev_t, ino_t, off_t, time_t, long, time_t, long>;
  static std::map<Version, uint64_t> known;
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat file {};
  if (!fd.open() || ::fstat(fd.get(), &file) != 0) return false;
  const Version version{state_,
                        file.st_dev,
                        file.st_ino,
                        file.st_size,
                        file.st_mtim.tv_sec,
                        file.st_mtim.tv_nsec,
                        file.st_ctim.tv_sec,
                        file.st_ctim.tv_nsec};
  if (const auto found = known.find(version); found != known.end()) {
    state_ = found->second;
    return true;
  }
  std::vector<unsigned char> piece(1 << 20);
  for (ssize_t n = 0; (n = ::read(fd.get(), piece.data(), piece.size())) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    for (const unsigned char byte : std::span(piece).first(static_cast<size_t>(n))) mix(byte);
  }
  mix(0x100);
  if (file.st_mtim.tv_sec + kTrusted < std::time(nullptr)) known.emplace(version, state_);
  return true;
}

/// The output of the program's `version` command, run once a process: it may take seconds, and a Python's
/// packages hardly change during a measurement.
const std::string& version_of(const Program& program) {
  constexpr double kLimit = 60.0;  // seconds
  static std::map<std::pair<std::string, std::vector<std::string>>, std::string> known;
  const std::pair key(program.folder, program.version);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  const auto answer = output_of(program.version, kLimit, program.folder);
  if (!answer)
    throw InputError(cat(program.variant, ": its version command, ", join(program.version, " "),
                         ", gives no answer: try it by itself; --python names another Python"));
  return known[key] = *answer;
}

std::string hash_of(const Program& program) {
  Hash hash;
  for (const auto* words : {&program.command, &program.environment})
    for (const std::string& word : *words) hash.add(word);
  for (const std::string& source : program.sources) {
    if (!hash.add_file(std::filesystem::path(program.folder) / source))
      throw InputError(
          cat(program.variant, ": its source ", source, " cannot be read: ", std::strerror(errno)));
  }
  if (!program.version.empty()) hash.add(version_of(program));
  return hash.hex();
}

/// The output of a rung's --version. Throws Error naming the executable and the fault, with `way_to_build`
/// where building may help.
std::string version_told_by(const std::string& executable, const std::string& way_to_build) {
  constexpr double kWait = 10.0;  // seconds
  const auto wrong = [&](const std::string& what) {
    return Error(cat(executable, " ", what, ": ", way_to_build));
  };
  if (!std::filesystem::exists(executable)) throw wrong("is not there");
  if (::access(executable.c_str(), X_OK) != 0) throw wrong("may not be executed");
  std::string text;
  ChildEnd end;
  try {
    end = run_for_output({executable, "--version"}, text, kWait);
  } catch (const CannotStart& e) {
    throw wrong(cat("is no rung (", e.what(), ")"));
  }
  if (const std::string killed = end.killed_from_outside(); !killed.empty())
    throw Error(cat(executable, " --version ", killed));
  if (end.how == ChildEnd::How::timed_out) throw wrong(cat("gave no answer in ", kWait, " s"));
  if (!end.ok() || text.find(kSource) == std::string::npos) throw wrong("is no rung" + end.last_words());
  return text;
}

}  // namespace

std::string Program::source_hash() const {
  if (!native) return hash_of(*this);
  const std::string& executable = command.front();
  const bool ablation = executable.find("/ablations/") != std::string::npos;
  std::filesystem::path folder = std::filesystem::path(executable).parent_path();  // bin, or bin/ablations
  if (ablation) folder = folder.parent_path();
  const std::string target = ablation ? "ablations" : "ladder";
  const bool installed = folder.parent_path().filename() == "libexec";  // as bin_dir() has it
  const std::string way_to_build =
      installed ? "this installation was made without " + target
                : cat("cmake --build ", folder.parent_path().string(), " --target ", target, " builds it");
  const std::string text = version_told_by(
      executable, way_to_build + (folder == bin_dir() ? ", or name the folder in STEPLADDER_BIN_DIR" : ""));
  return text.substr(text.rfind(kSource) + std::strlen(kSource));
}

bool Program::starts_ranks() const {
  return uses(command, "devices");
}

}  // namespace stepladder
