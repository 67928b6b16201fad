// A lock on a folder, so that no two processes write there at once.
#pragma once

#include <optional>
#include <string>

#include "model/fd.h"

namespace stepladder {

/// Makes the folder where it is missing, and locks it for as long as the descriptor returned is open. Returns
/// nothing if another process has locked the folder. On a file system without locks, the folder is not
/// locked. Throws InputError, ending with `way_out`, where the folder can't be opened.
std::optional<Fd> lock_folder(const std::string& path, const std::string& way_out);

}  // namespace stepladder
