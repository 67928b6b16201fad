// Rows that are alike, as a file holds many of them: column by column, what repeats once.
#pragma once

#include "bench/results/results.h"

namespace stepladder {

/// A list of objects as {"rows": 3, "columns": {"variant": COLUMN, ..}}. A COLUMN is a list of a value for
/// each row; or, where values repeat, {"values": [..], "of": [0, 0, 1]}, whose "values" of objects are their
/// columns and whose "of" is left out where all are the same; or the columns of objects; or, of lists of
/// objects, {"lengths": COLUMN, "joined": the columns of all of them, one list after the other}; or, of a key
/// that only some rows have, {"in": [0, 2], "column": COLUMN}. What is no list of objects stays as it is.
Json columns_of(const Json& rows);

/// The rows again, their keys in the order of the columns; a list as it is. Throws InputError unless it is
/// either.
Json rows_from_columns(const Json& columns);

}  // namespace stepladder
