// Charts and pages, made by the Python scripts in reports/.
#pragma once

#include <string>
#include <vector>

namespace stepladder {

/// Runs reports/`script`. Each line of the script's output names a file that it wrote or, after "! ", is a
/// warning. Warns where Python or a package is missing, and returns true then too; returns false when the
/// script failed for any other reason. Throws InputError for a file that the script refuses.
bool draw(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace stepladder
