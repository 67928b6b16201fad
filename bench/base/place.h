// Where what comes with the programs lies: ladders of peers, trainers' sources, Python, the default text.
#pragma once

#include <string>

namespace stepladder {

/// The folder that has it, laid out as the repository: PREFIX/share/stepladder of an installed program, else
/// the source tree that it was built from.
const std::string& shared_dir();

}  // namespace stepladder
