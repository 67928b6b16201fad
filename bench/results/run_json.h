// Results and runs as JSON: what is written, and runs as they are read back and checked.
#pragma once

#include "bench/results/results.h"

namespace stepladder {

Json to_json(const Results& results);
Json to_json(const Run& run);

/// Checks the schema that `json` names. Throws InputError unless it lies between `oldest` and this version's.
void check_schema(const Json& json, int64_t oldest = kSchema);
/// The run in `json`. Throws InputError naming what is missing or of the wrong type.
Run run_from(const Json& json);

}  // namespace stepladder
