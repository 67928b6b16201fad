// Temporary files for tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "model/error.h"

namespace stepladder {

/// A new temporary folder, removed with its content at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "stepladder_test_XXXXXX").string();
    if (!mkdtemp(name.data())) throw Error("no temporary folder");
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  size_t count() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

/// While this object lives, root becomes an ordinary user, so that file permissions apply.
class Nobody {
 public:
  Nobody() {
    if (was_root_) there_is_one_ = ::seteuid(65534) == 0;
  }
  ~Nobody() { EXPECT_TRUE(!was_root_ || ::seteuid(0) == 0); }
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;

  /// Whether the process is an ordinary user now; false in a container where root is the only user.
  bool there_is_one() const { return there_is_one_; }

 private:
  const bool was_root_ = ::geteuid() == 0;
  bool there_is_one_ = true;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Replaces the last `was` in a file by `is`.
inline void replace_last(const std::string& path, const std::string& was, const std::string& is) {
  std::string text = read_file(path);
  const size_t at = text.rfind(was);
  ASSERT_NE(at, std::string::npos) << path << " has no " << was;
  write_file(path, text.replace(at, was.size(), is));
}

/// Makes an energy counter as in /sys/class/powercap. Returns the file with the count.
inline std::string energy_counter(const TempFolder& folder, const std::string& zone = "intel-rapl:0",
                                  const std::string& name = "package-0",
                                  const std::string& range = "262143328850") {
  std::filesystem::create_directory(folder / zone);
  write_file(folder / (zone + "/name"), name + "\n");
  write_file(folder / (zone + "/max_energy_range_uj"), range + "\n");
  write_file(folder / (zone + "/energy_uj"), "0\n");
  return folder / (zone + "/energy_uj");
}

/// Writes an executable shell script with these commands.
inline void write_script(const std::string& path, const std::string& commands) {
  write_file(path, "#!/bin/sh\n" + commands);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

/// The bytes of `values` as they lie in memory.
template <class T>
std::string bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

/// The message of the InputError that `action` throws; expects one line.
template <class Action>
std::string input_error(Action action) {
  try {
    action();
  } catch (const InputError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    return what;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no exception";
  return "";
}

/// Whether `text`, its folded lines joined, contains each of `parts`.
[[nodiscard]] inline ::testing::AssertionResult says(const std::string& text,
                                                     const std::vector<std::string>& parts) {
  std::string unfolded = text;
  std::ranges::replace(unfolded, '\n', ' ');
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos && unfolded.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
  return ::testing::AssertionSuccess();
}

/// Whether `action` throws an Error with this exit code, whose message says each of `parts`.
template <class Action>
[[nodiscard]] ::testing::AssertionResult throws(Action action, int code,
                                                const std::vector<std::string>& parts = {}) {
  try {
    action();
  } catch (const Error& error) {
    if (error.code() == code) return says(error.what(), parts);
    return ::testing::AssertionFailure() << "exit code " << error.code() << ": " << error.what();
  }
  return ::testing::AssertionFailure() << "no exception";
}

}  // namespace stepladder
