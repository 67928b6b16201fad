// Results and runs as JSON: what is written, and runs as they are read back and checked.
#pragma once

#include "bench/base/statistics.h"
#include "bench/results/results.h"

namespace stepladder {

Json to_json(const Results& results);
Json to_json(const Run& run);
/// {"value": 1.02, "lo": 1.01, "hi": 1.03}, the value under `name`; lo and hi are null without an interval.
Json to_json(const Estimate& estimate, const char* name = "value");

/// Throws InputError unless the schema that is named lies between `oldest` and this version's.
void check_schema(const Json& json, int64_t oldest = kSchema);
/// Throws InputError naming what is missing or of the wrong type.
Run run_from(const Json& json);

}  // namespace stepladder
