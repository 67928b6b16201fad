// Charts, drawn by the Python scripts in reports/.
#pragma once

#include <string>

namespace stepladder {

/// Runs reports/`script` on `input`, which writes into the folder `out`, and names the files on stdout; or
/// says on stderr what is missing. False when drawing failed for another reason.
bool draw_charts(const std::string& script, const std::string& input, const std::string& out);

}  // namespace stepladder
