// What the fuzz targets share. Each target is a parser that takes any bytes, and either accepts them or
// throws an InputError of one line. Anything else (another exception, a crash, a sanitizer's finding, a hang)
// is a bug.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "model/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace stepladder::fuzz {

/// Reports `what` as a finding and ends the process unless `ok`.
inline void require(bool ok, const std::string& what) {
  if (ok) return;
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

/// A file in memory with these bytes, for parsers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
    require(fd_ >= 0 && ::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "no memory for the input");
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

/// This process's temporary folder, in memory where possible, for parsers that read files beside theirs;
/// removed at the end.
inline const std::string& folder() {
  static const std::string path = [] {
    const std::filesystem::path memory = "/dev/shm";
    const auto parent = ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
    std::string name = (parent / "stepladder_fuzz_XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "no temporary folder");
    return name;
  }();
  [[maybe_unused]] static const int removed = std::atexit([] { std::filesystem::remove_all(folder()); });
  return path;
}

inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// The input as two files: the bytes before its first NUL, and those after.
inline std::pair<std::string_view, std::string_view> halves(std::string_view input) {
  const size_t end = std::min(input.find('\0'), input.size());
  return {input.substr(0, end), input.substr(std::min(end + 1, input.size()))};
}

/// Runs a parser. False if it refused its input with a proper InputError.
template <class Parse>
bool accepts(Parse parse) {
  try {
    parse();
    return true;
  } catch (const InputError& e) {
    const std::string_view what = e.what();
    require(!what.empty() && what.find('\n') == std::string_view::npos, "an error that is not one line");
    return false;
  }
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace stepladder::fuzz
