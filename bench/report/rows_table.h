// Rows of results files as tables.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/base/table.h"
#include "bench/report/speedups.h"

namespace stepladder {

/// A row, and the file that it is from.
struct PlacedRow {
  const Findings* file;
  const ResultRow* row;
  std::string measured = {};  // "in part beside", "on NVIDIA H200" in tables of several files or devices
};

/// The rows of a file for which `wanted` holds.
template <class Wanted>
std::vector<PlacedRow> placed(const Findings& file, Wanted wanted) {
  std::vector<PlacedRow> rows;
  for (const ResultRow& row : file.rows)
    if (wanted(row)) rows.push_back({&file, &row});
  return rows;
}

/// Bytes in GiB, "8.27"; "-" for 0 bytes, which are unknown: a ladder file's trainer need not tell them. In a
/// column with the digits of its `least` bytes.
std::string gib_text(int64_t bytes, std::optional<double> least = {});

/// Fewest rounds behind any interval of a step time or a speed-up; nothing if no interval is shown.
std::optional<int64_t> fewest_rounds(const std::vector<ResultRow>& rows);

/// Whether a row is of a rung of ours whose reduced precision was emulated on the CPU, which is slower.
bool emulates(const ResultRow& row);

/// The names of the peers that took part, in the order of their rows.
std::vector<std::string> peers_of(const std::vector<ResultRow>& rows);

/// A table of rungs, or of peers: step times, speed-ups, memory, energy, losses. `ratios_only` leaves out
/// milliseconds, tokens and bytes.
Table rows_table(const std::vector<PlacedRow>& rows, bool ratios_only, const std::string& heading = "");

/// What training until a loss took, of rungs and peers alike.
Table to_loss_table(const std::vector<PlacedRow>& rows, bool ratios_only);

/// How many times sooner each row reached the loss than the first row did: by fewer steps, by shorter steps,
/// and by both together.
Table factors_table(const std::vector<PlacedRow>& rows);

/// Adds the columns of factors_table(), each by `add`.
void add_factors(const std::function<void(Table::Column, std::function<Cell(const Sooner&)>)>& add,
                 bool joules);

Table groups_table(const std::vector<GroupGain>& groups);

}  // namespace stepladder
