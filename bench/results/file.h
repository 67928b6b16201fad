// The results file on disk, and the journal beside it that keeps every finished run.
//
// While a plan runs, FILE holds the runs that were there when it started (at first none) and FILE.journal one
// line for the context and one for each run finished since, each flushed to the disk. At the end FILE is
// written whole and the journal removed. FILE therefore parses at any moment, and FILE plus journal lose at
// most the run in progress.
#pragma once

#include <functional>
#include <string>

#include "bench/results/results.h"

namespace stepladder {

/// What `stepladder run` writes where it is not told otherwise.
inline constexpr const char* kLatestResults = "reports/latest/results.json";

/// FILE with the finished runs of its journal; or FILE:PART, of a campaign's file. Journal lines that are
/// damaged, but for its first, count for nothing, and neither does a journal with another context, which
/// other measurements left. Throws InputError naming the file and what is wrong with it, and Error with
/// kExitNotComparable where runs of a row are unlike each other.
Results load_results(const std::string& path);
/// The same of what load_part() has read.
Results load_results(const std::string& path, const Json& json);

/// "results", "profile", or what a file says of itself, such as "noise"; "" where it is none of ours.
std::string kind_of(const Json& json);

/// What a file holds as text: a line for each field, and for each run, row or part.
std::string file_text(const Json& json);

/// A file's JSON. Throws InputError naming it and what is wrong with it.
Json load_json(const std::string& path);
/// Throws InputError where a file's JSON is none of ours, naming what it seems to be.
void check_ours(const std::string& path, const Json& json);
/// Makes the folder that a file is to lie in. Throws InputError naming the file.
void make_folder_of(const std::string& path);
/// Throws InputError, which ends with `way_out`, where the file is there and not of the kind that is to
/// replace it: "results", "profile", or what it says of itself, such as "noise"; or a text of ours: "csv",
/// "googlebenchmark", "text" (a verdict), "summary", "table", "page", "published". What is empty may be
/// replaced, and a file of ours that is damaged.
void check_same_kind(const std::string& path, const std::string& kind,
                     const std::string& way_out = "name another --out");
/// Whether `stepladder gate` has measured them.
bool is_of_a_gate(const Results& results);
/// Whether a file's JSON says that it is a campaign's.
bool is_campaign(const Json& json);
/// Throws InputError naming the file unless it is a campaign's and its parts may be looked at.
void check_campaign(const std::string& path, const Json& json);
/// Whether a campaign's part has come to an end, well or not, other than by a signal or a --max-time shorter
/// than its own, which is infinite where it has none. One that ended well has a result.
bool has_ended(const Json& part, double own_limit_s);
/// Whether a part's result, which may be null, has less in it than another: it is unfinished, and the other
/// is finished, is no list of runs, or has more of them.
bool has_less(const Json& result, const Json& than);
/// load_json(), or, of FILE:PART, what a campaign's file holds of a part.
Json load_part(const std::string& path);

/// Adds the runs of a journal's text, as load_results() does, unless its context is another than that of
/// `results`. Throws InputError.
void add_journal(Results& results, const std::string& text);

/// What to do with a results file that is there; retry resumes it without the runs that failed.
enum class Existing { refuse, resume, retry, overwrite };

/// A results file being written. One process at a time.
class ResultsFile {
 public:
  /// What the file holds of the results: they, and the rows that follow from them.
  using Writing = std::function<Json(const Results&)>;

  /// Starts `plan`, or goes on with it. A file to be overwritten stays until the first run is finished.
  /// Throws InputError when the file is there and `existing` is refuse, or cannot be written; Error with
  /// kExitNotComparable, naming the field, when it holds another plan, however many rounds both have, or was
  /// measured on another machine or another kind of device.
  /// `way_on` is what to do after a disk was full.
  ResultsFile(const std::string& path, Json context, Json plan, Existing existing, Writing to_json,
              std::string way_on = "--resume");
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  const Results& results() const { return results_; }
  /// Whether anything of it is in the file; what is overwritten stays until a run is finished.
  bool begun() const { return begun_; }
  /// Leaves out runs, of a round that is to be measured again. Throws Error (disk full).
  void forget(const std::function<bool(const Run&)>& which);
  /// Adds a finished run. Throws Error (disk full, or unlike the first of its row); what was there stays.
  void add(Run run);
  /// Writes the file whole, with why the plan ended, and, once that is done, removes the journal. Throws
  /// Error (disk full); the journal stays.
  void finish(Json stopped = {});

 private:
  void open_journal();
  bool journal_is_empty() const;
  void close_journal();
  /// Goes on with what the file holds of the plan.
  void resume(const Json& context, Json plan, Existing existing);
  void start();
  void begin();
  void append(const Json& line);
  void write_file();

  const Writing to_json_;
  const std::string way_on_;
  std::string path_, target_, journal_path_;
  int journal_ = -1;
  bool begun_ = false;  // the file is of this plan
  Results results_;
  std::vector<Run> failed_;  // to be run again
  Json call_;                // when and where it is resumed, until it has measured something
};

}  // namespace stepladder
