// Results as JSON: what is written, and what is read back and checked.
#pragma once

#include <optional>
#include <string>

#include "bench/base/statistics.h"
#include "bench/results/results.h"

namespace stepladder {

/// Context, plan and runs: a results file but for the rows that follow from the runs.
Json to_json(const Results& results);
Json to_json(const Run& run);
/// {"value": 1.02, "lo": 1.01, "hi": 1.03}, the value under `name`; lo and hi are null without an interval.
Json to_json(const Estimate& estimate, const char* name = "value");

/// The schema that a file names. Throws InputError unless this version reads it.
int64_t schema_of(const Json& json);
/// Of any schema that is read. Throw InputError naming what is missing or of the wrong type.
Results results_from(Json json);
Run run_from(Json json, int64_t schema = kSchema);

/// Parses JSON nested at most 32 deep, no key twice in an object; 1.0 is the same number as 1. Throws
/// InputError with what is wrong.
Json parse_json(const std::string& text);

/// JSON as text. A path may hold any bytes; replacing them keeps it valid JSON.
std::string dump(const Json& json, int indent = -1);

/// Throws Error with kExitNotComparable unless both are the same: "`what`: `field` was .., now it is ..;
/// `way_out`". Of objects it names the first field that differs.
void require_same(const std::string& what, const std::string& field, const Json& was, const Json& now,
                  const std::string& way_out);

/// A field as text, for a file that may hold anything; "" where it is missing or null.
std::string whole_text_at(const Json& json, const std::string& key);
/// The same for display: one line, cut to 200 bytes.
std::string text_at(const Json& json, const std::string& key);
/// A field as a number, for a file that may hold anything; none where it is something else or missing.
std::optional<double> number_at(const Json& json, const std::string& key);

}  // namespace stepladder
