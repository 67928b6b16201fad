// Checks files that a command wrote against the schema.
#pragma once

#include <cstdlib>
#include <iostream>

#include "bench/run/machine.h"
#include "tests/files.h"

namespace stepladder {

/// Checks that the file at `path` has what reports/results.schema.json says and no other field; prints a note
/// where Python lacks the packages.
inline void expect_contract(const std::string& path) {
  static const std::string with = python();
  const std::string said = path + ".said";
  const int status = std::system(
      cat(with, " " STEPLADDER_SOURCE_DIR "/reports/schema.py ", path, " >", said, " 2>&1").c_str());
  const std::string text = read_file(said);
  std::filesystem::remove(said);
  if (text.find("No module named") != std::string::npos || text.find("not found") != std::string::npos)
    std::cout << "not held to the contract: " << text;
  else
    EXPECT_EQ(status, 0) << text;
}

}  // namespace stepladder
