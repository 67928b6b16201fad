// What the lines of a results file hold (reports/results.schema.json), and the parts that they make.
//
//   {"line": "session", "schema": 3, "session": ID, "part": NAME, "resumes": ID, "context": {..}, "plan":
//   {..}}
//   {"line": "run", "session": ID, "variant": .., "round": .., ..}
//   {"line": "profile", "session": ID, ..}
//   {"line": "end", "session": ID, "complete": true, "stopped": {..}, "exit_code": 0, "wall_s": 12.5}
//
// A line belongs to the session that it names, wherever it stands, so `cat` joins files. A last line without
// a line feed was torn by a kill and doesn't count.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/results/results.h"

namespace stepladder {

/// One plan's measurements: a session, the sessions that resumed it, and other cards' sessions of the same
/// plan, build and kind of device, whose rounds follow.
struct Part {
  std::string name, about;  // what --part says; empty in a file of one plan
  Results results;
  Json profile;                      // of `stepladder profile`; null otherwise
  std::optional<int64_t> exit_code;  // of the last session that ended
  double wall_s = 0.0;               // of the sessions that ended
  std::string skipped;               // why the part was not begun
  std::string last_session;          // the id that a resuming session names
  bool joined = false;               // whether `cat` joined it of several measurements
};

/// Whether a text is a results file's, by how it begins.
bool is_results(const std::string& text);

/// The parts of a results file's text, in the order in which they begin. Throws InputError naming the line
/// that is damaged, or belongs to no session; Error with kExitNotComparable where sessions of one name differ
/// in plan, build or device, naming the field.
std::vector<Part> parts_from(const std::string& text);

/// The line that begins a session.
Json session_line(const std::string& id, const std::string& part, const Json& context, const Json& plan);

/// A part as the text of a results file.
std::string lines_of(const Part& part);

/// A results file's text without the lines of a part's sessions, and without damaged ones.
std::string lines_without(const std::string& text, const std::string& part);

/// The name and the description in "name: about".
std::pair<std::string, std::string> name_and_about(const std::string& part);

/// Checks that `context` and `plan` equal those of `was`, except for rounds, the time limit and, within one
/// model, the device. Throws Error with kExitNotComparable, naming the field and `way_out`, where another
/// field differs; `of_plan` precedes the way out where the field is of the plan.
void require_same_plan(const std::string& what, const Results& was, const Json& context, const Json& plan,
                       const std::string& way_out, const std::string& of_plan = "");

/// Checks that the sources of trainers are those of `was`; with `retry`, of trainers alone with a run that
/// has not failed. Throws Error with kExitNotComparable, naming the trainer and the way out.
void require_same_sources(const std::string& what, const Results& was, const Json& source_hashes, bool retry);

/// Adds to the context of results when and where a session resumed them.
void tell_resumed(Results& results, const Json& context);

}  // namespace stepladder
