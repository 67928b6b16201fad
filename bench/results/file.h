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

/// The file that `stepladder run` writes where it is not told otherwise.
inline constexpr const char* kLatestResults = "reports/latest/results.jsonl";

/// The parts of a results file, which may be gzip's, or the one that FILE:PART names. Throws InputError
/// naming the file and what is wrong with it, as parts_from() does; Error with kExitNotComparable where runs
/// of a row are unlike each other.
std::vector<Part> load_parts(const std::string& path);
/// The measurements in FILE, or in FILE:PART. Throws InputError naming the file, where it has several parts,
/// holds a profile or something else.
Results load_results(const std::string& path);

/// What a file is: "results", or what a JSON file says of itself, such as "noise"; "" where it is none of
/// ours, or can't be read.
std::string kind_of(const std::string& path);
/// Whether version 0.2 wrote results, a profile or a campaign into it.
bool is_of_schema_2(const Json& json);
/// A file's JSON. Throws InputError naming it and what is wrong with it.
Json load_json(const std::string& path);
/// The JSON of `what`, such as "a ladder file". Throws InputError as load_json() does, and where `is` denies
/// that it is one, naming what it seems to be.
Json load_json_of(const char* what, const std::string& path, const std::function<bool(const Json&)>& is);
/// Throws InputError where a file's JSON is none of ours, naming what it seems to be.
void check_ours(const std::string& path, const Json& json);
/// Makes the folder that a file is to lie in. Throws InputError naming the file.
void make_folder_of(const std::string& path);
/// Throws InputError, which ends with `way_out`, where the file is there and not of the kind that is to
/// replace it: "results", or what it says of itself, such as "noise"; or a text of ours: "csv",
/// "googlebenchmark", "text" (a verdict), "summary", "table", "page", "published". An empty file may be
/// replaced, and so may a damaged one of ours.
void check_same_kind(const std::string& path, const std::string& kind,
                     const std::string& way_out = "name another --out");
/// Whether `stepladder gate` has measured them.
bool is_of_a_gate(const Results& results);

/// What to do with a part that is there; retry resumes it and runs again what failed.
enum class Existing { refuse, resume, retry, overwrite };

/// A part of a results file that is being written. One process at a time writes a file.
class ResultsFile {
 public:
  /// Starts `plan`, or goes on with it, as the part called `part` ("name: about"; "" where the file has no
  /// other). A part to be overwritten stays until the first run is finished.
  /// Throws InputError when the part is there and `existing` is refuse, or the file cannot be written; Error
  /// with kExitNotComparable, naming the field, when it holds another plan, however many rounds both have, or
  /// was measured on another machine or another kind of device.
  /// `way_on` is what to do after a disk was full.
  ResultsFile(const std::string& path, Json context, Json plan, Existing existing,
              const std::string& part = "", std::string way_on = "--resume");
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  const Results& results() const { return results_; }
  /// Whether the file holds anything of this plan.
  bool begun() const { return begun_ || !resumes_.empty(); }
  /// Leaves out the runs of a round, which the next run of it begins again.
  void restart_round(int64_t round);
  /// Adds a finished run, in the place of one of its row and round. Throws Error (disk full, or unlike the
  /// first of its row), and the file stays as it was; where it was moved, removed or replaced meanwhile, once
  /// the run is in it.
  void add(Run run);
  void add_profile(const Json& profile);
  /// Writes why the plan ended, and with which exit code, which may follow from the results. Throws as add()
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
  void look(Existing existing);
  void resume(Part part, Existing existing);
  void close();
  Json line(const char* kind) const;
  void begin();
  void write(const Json& line);
  /// Throws Error where `path` leads to the file no longer: its lines go on where it was moved to, or are put
  /// there, or beside what took its place.
  void require_in_place() const;
  void replace();
  void end(const Json& how, int exit_code);

  const std::string path_, target_, part_, way_on_, session_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const Json context_;  // this session's; results_ have the first one's
  Fd file_;
  bool is_new_ = false;              // nothing was there before
  std::optional<std::string> kept_;  // the next file's text, until a run is in it
  std::string resumes_;              // a session's id
  bool begun_ = false;               // this session's line is written
  bool told_ = false;                // it has measured something
  Results results_;
  std::vector<Run> failed_;           // to be run again
  std::optional<int64_t> restarted_;  // a round that the next run begins again
  Json ended_;                        // how the part that is resumed had ended
};

}  // namespace stepladder
