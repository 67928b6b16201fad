// Folders of the files that come with the programs: ladders of peers, trainers' sources, Python, the default
// text.
#pragma once

#include <string>

namespace stepladder {

/// The folder that holds these files, laid out as the repository: PREFIX/share/stepladder for an installed
/// program; the source tree around the program, even if moved since the build; else the source tree that the
/// program was built from.
const std::string& shared_dir();

/// The folder in which an installed package keeps the default text and vocabulary: stepladder/data in the
/// user's cache folder. python/stepladder/command.py fills it.
std::string user_data_dir();

/// The folder that has stepladder.py, the module for trainers, and nothing else.
std::string trainer_module_dir();

}  // namespace stepladder
