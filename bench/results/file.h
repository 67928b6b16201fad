// Results files on disk: JSON Lines (lines.h), appended to and flushed run by run, so that a kill loses at
// most the run in progress.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/results/lines.h"
#include "model/error.h"
#include "model/fd.h"

namespace stepladder {

/// The file that `stepladder run` writes by default.
inline constexpr const char* kLatestResults = "reports/latest/results.jsonl";

/// The parts of a results file, which may be gzip-compressed, or the one part that FILE:PART names. Throws
/// InputError naming the file and what is wrong with it, as parts_from() does; Error with kExitNotComparable
/// where runs of a row are unlike each other.
std::vector<Part> load_parts(const std::string& path);
/// The measurements in FILE, or in FILE:PART. Throws InputError naming the file, where it has several parts,
/// holds a profile or something else.
Results load_results(const std::string& path);

/// The kind of a file: "results", or the kind that a JSON file of ours names, such as "noise"; "" for another
/// program's file, or one that can't be read.
std::string kind_of(const std::string& path);
/// Whether `json` is of a file of schema 2: results, a profile or a campaign.
bool is_of_schema_2(const Json& json);
/// A file's JSON. Throws InputError naming the file and what is wrong with it.
Json load_json(const std::string& path);
/// The JSON of a file that is to be `what`, such as "a ladder file". Throws InputError as load_json() does,
/// and where `is` rejects the JSON, naming what the file seems to be.
Json load_json_of(const char* what, const std::string& path, const std::function<bool(const Json&)>& is);
/// Checks that a file's JSON is one of Stepladder's kinds. Throws InputError, naming what the file seems to
/// be, where it isn't.
void check_ours(const std::string& path, const Json& json);
/// Makes the folder that a file is to lie in. Throws InputError naming the file.
void make_folder_of(const std::string& path);
/// Checks that a file of `kind` may be written to `path`. Throws InputError, which ends with `way_out`, where
/// a file of another kind is there: that is not to be replaced. Kinds are "results", those of our JSON files,
/// such as "noise", and those of our texts: "csv", "googlebenchmark", "text" (a verdict), "summary", "table",
/// "page", "published". An empty file may be replaced, and so may a damaged one of ours.
void check_same_kind(const std::string& path, const std::string& kind,
                     const std::string& way_out = "name another --out");
/// FILE:PART as file and part; the part is empty where a file of that whole name exists, or FILE is missing.
std::pair<std::string, std::string> file_and_part(const std::string& path);
/// Whether `stepladder gate` has measured the results.
bool is_of_a_gate(const Results& results);

/// What to do with a part that exists; retry resumes it and runs again what failed.
enum class Existing { refuse, resume, retry, overwrite };

/// Writes one part of a results file. One process at a time writes a file.
class ResultsFile {
 public:
  /// Starts `plan`, or goes on with it, as the part called `part` ("name: about"; "" where the file has no
  /// other). A part to be overwritten stays until the first run is finished.
  /// Throws InputError when the part is there and `existing` is refuse, or the file cannot be written; Error
  /// with kExitNotComparable, naming the field, when the part holds another plan (the number of rounds may
  /// differ), or was measured on another machine or another kind of device. `way_on` is what to do after a
  /// disk was full.
  ResultsFile(const std::string& path, Json context, Json plan, Existing existing,
              const std::string& part = "", std::string way_on = "--resume");
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  const Results& results() const { return results_; }
  /// Whether the session's line is written, or an earlier session resumed; there may be no runs yet.
  bool begun() const { return begun_ || !resumes_.empty(); }
  /// Drops the runs of a round; the next run of that round begins it again.
  void restart_round(int64_t round);
  /// Adds a finished run, replacing a run of the same row and round. Throws Error where the disk is full, or
  /// the run is unlike the first of its row: the file then stays as it was. Throws Error after adding the run
  /// where the file was moved, removed or replaced meanwhile.
  void add(Run run);
  void add_profile(const Json& profile);
  /// Writes why the plan ended, and the exit code, which `exit_code` makes of the results. Throws as add()
  /// does.
  void finish(
      Json stopped = {},
      const std::function<int(const Results&)>& exit_code = [](const Results&) { return kExitOk; });
  /// Writes with which exit code this process ended before the plan did. Throws as add() does.
  void interrupt(int exit_code);
  /// Writes why the part is not begun. Throws as add() does.
  void skip(const std::string& reason);

 private:
  void lock();
  void open_part(Existing existing);
  void resume(Part part, Existing existing);
  void close();
  Json line(const char* kind) const;
  void begin();
  void write(const Json& line);
  /// Checks that `path_` still leads to the file. Throws Error where it doesn't, and keeps the lines: a moved
  /// file has them; those of a removed file are written to `path_` again, those of a replaced file to a file
  /// beside `path_`.
  void require_in_place() const;
  void replace();
  void end(const Json& how, int exit_code);

  const std::string path_, target_, part_, way_on_, session_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const Json context_;  // this session's; results_ has the first session's
  Fd file_;
  bool is_new_ = false;              // the file was empty or missing
  std::optional<std::string> kept_;  // new text of the whole file, written at the first run
  std::string resumes_;              // id of the session resumed
  bool begun_ = false;               // whether this session's line is written
  bool told_ = false;                // whether tell_resumed() was called
  Results results_;
  std::vector<Run> failed_;           // failed runs, to be run again
  std::optional<int64_t> restarted_;  // a round that the next run begins again
  Json ended_;                        // how the resumed part had ended
};

}  // namespace stepladder
