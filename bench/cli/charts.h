// Charts and pages, made by the Python scripts in reports/.
#pragma once

#include <string>
#include <vector>

namespace stepladder {

/// Runs reports/`script`, each line of whose output names a file that it wrote or, after "! ", is a warning.
/// Where Python or a package is missing, says so on stderr. Returns false when the script failed for another
/// reason. Throws InputError for a file that the script refuses.
bool draw(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace stepladder
