// Charts and pages, made by the Python scripts in reports/.
#pragma once

#include <string>
#include <vector>

namespace stepladder {

/// Runs reports/`script`, which names each file that it wrote, and with "! " what it can't; or says on stderr
/// what is missing for it. False when it failed for another reason. Throws InputError for a file that it
/// refuses.
bool draw(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace stepladder
