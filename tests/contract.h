// Whether a file that a command wrote holds to the contract of the files.
#pragma once

#include <cstdlib>
#include <iostream>

#include "bench/run/machine.h"
#include "tests/files.h"

namespace stepladder {

/// Checks `path` against reports/results.schema.json, with no field besides; says so where no Python here
/// can.
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
