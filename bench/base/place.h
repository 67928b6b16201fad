// Where what comes with the programs lies: ladders of peers, trainers' sources, Python, the default text.
#pragma once

#include <string>

namespace stepladder {

/// The folder that has it, laid out as the repository: PREFIX/share/stepladder of an installed program; the
/// source tree in which it lies, which may have been moved since it was built; else the one it was built
/// from.
const std::string& shared_dir();

/// Where an installed package keeps the default text and vocabulary: stepladder/data in the user's cache
/// folder. python/stepladder/command.py fills it.
std::string user_data_dir();

/// The folder that has stepladder.py, the module for trainers, and nothing else.
std::string trainer_module_dir();

}  // namespace stepladder
