#include "bench/results/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "bench/base/gzip.h"
#include "bench/base/text.h"
#include "bench/results/configuration.h"
#include "bench/results/lines.h"
#include "bench/results/run_json.h"
#include "model/atomic_file.h"
#include "model/error.h"
#include "model/socket.h"

namespace stepladder {
namespace {

/// A file's text, decompressed where it is gzip's.
std::string read_text(const std::string& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (error && type != std::filesystem::file_type::not_found)
    throw InputError(cat("cannot be read: ", error.message()));
  if (type != std::filesystem::file_type::not_found && type != std::filesystem::file_type::regular)
    throw InputError("is not a regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw InputError(
        cat("cannot be read: ", std::strerror(errno),
            path == kLatestResults ? ": `stepladder run` measures into it, or name another" : ""));
  return gunzipped({std::istreambuf_iterator<char>(file), {}});
}

/// The JSON that is a file's whole text.
Json json_in(const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) throw InputError("is empty");
  return parse_json(text);
}

/// What files of ours are called in messages, by kind.
const std::map<std::string, const char*>& kinds() {
  static const std::map<std::string, const char*> kinds = {{"results", "a results file"},
                                                           {"noise", "a noise file"},
                                                           {"comparison", "a verdict"},
                                                           {"history", "a history"},
                                                           {"timeline", "a timeline"}};
  return kinds;
}

/// Whether the file at `path` begins as files of `kind` do: "csv", "page", ..., or "damaged" for JSON of
/// ours.
bool begins_as(const std::string& kind, const std::string& path) {
  static const std::multimap<std::string, std::string> beginnings = {
      {"csv", "variant,"},
      {"damaged", "{\n\"schema\""},
      {"damaged", "{\"schema\""},
      {"export", "{\"schema\":"},
      {"googlebenchmark", "{\n \"context\": {"},
      {"published", "# Published numbers and ours\n"},
      {"summary", "# Stepladder\n"},
      {"summary", "# Stepladder: "},
      {"table", "file,device,backend,"},
      {"text", "## Stepladder: "},
      {"text", "BASE: "},
      {"text", "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites "}};
  std::string text(1000, '\0');
  std::ifstream file(path);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (kind == "page") return text.find("<title>Stepladder") != std::string::npos;
  const auto [first, last] = beginnings.equal_range(kind);
  return std::any_of(first, last, [&](const auto& item) {  // the file may end within the beginning
    return text.starts_with(item.second) || item.second.starts_with(text);
  });
}

/// What JSON seems to be: a file of ours, or another program's.
std::string seems_to_be(const Json& json) {
  static const std::vector<std::pair<std::vector<const char*>, const char*>> known = {
      {{"machine_info", "benchmarks"}, "pytest-benchmark's JSON"},
      {{"context", "benchmarks"}, "Google Benchmark's JSON"},
      {{"meta", "devices", "benchmarks"}, "nvbench's JSON"},
      {{"traceEvents"}, "a trace's JSON"},
      {{"name", "rungs"}, "a ladder file, which --ladder takes"}};
  if (!json.is_object()) return json.is_array() ? "a JSON list" : "a single JSON value";
  if (is_of_schema_2(json)) return "a results file of schema 2";
  if (const auto kind = kinds().find(text_at(json, "kind")); kind != kinds().end()) return kind->second;
  for (const auto& [fields, name] : known)
    if (std::ranges::all_of(fields, [&](const char* field) { return json.contains(field); })) return name;
  if (json.contains(Json::json_pointer("/results/0/command"))) return "hyperfine's JSON";
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items())
    if (names.size() < 4) names.push_back(name);
  return names.empty() ? "an empty JSON object" : cat("JSON of something else (", join(names, ", "), ")");
}

std::string not_ours(const Json& json) {
  return cat("is ", seems_to_be(json),
             ", not a file of Stepladder's: `stepladder run` measures and writes one");
}

/// Advice to name one of a file's parts: "name one, such as FILE:ladder (others: energy_16)".
std::string naming(const std::string& path, const std::vector<Part>& parts) {
  std::vector<std::string> names;
  for (const Part& part : parts)
    if (!part.name.empty()) names.push_back(printable(part.name, 60));
  if (names.empty()) return cat("none of its parts has a name, give ", path);
  const std::string first = cat("name one, such as ", path, ":", names.front());
  names.erase(names.begin());
  return names.empty() ? first : cat(first, " (others: ", join(names, ", "), ")");
}

}  // namespace

std::pair<std::string, std::string> file_and_part(const std::string& path) {
  const size_t colon = path.rfind(':');
  std::error_code none;
  if (colon == std::string::npos || std::filesystem::exists(path, none) ||
      !std::filesystem::exists(path.substr(0, colon), none))
    return {path, ""};
  return {path.substr(0, colon), path.substr(colon + 1)};
}

bool is_of_schema_2(const Json& json) {
  if (number_at(json, "schema") != 2.0) return false;
  return json.contains("kind") ? text_at(json, "kind") == "campaign"
                               : json.contains("runs") || json.contains("profile");
}

std::vector<Part> load_parts(const std::string& path) try {
  const auto [file, name] = file_and_part(path);
  const std::string text = read_text(file);
  if (!is_results(text)) {
    const Json json = json_in(text);
    const std::string kind = text_at(json, "kind");
    if (is_of_schema_2(json))
      throw InputError(
          cat("is of schema 2: `stepladder convert ", file, " NEW` makes a file of this version of it"));
    if (kinds().contains(kind)) throw InputError(cat("is ", kinds().at(kind), ", not a results file"));
    throw InputError(not_ours(json));
  }
  std::vector<Part> parts = parts_from(text);
  for (const Part& part : parts)
    require_alike(part.results, part.name.empty() ? "not comparable" : "part " + part.name);
  if (name.empty()) return parts;
  if (std::ranges::count(parts, name, &Part::name) == 0)
    throw InputError(cat("has no part \"", printable(name, 60), "\": ", naming(file, parts)));
  std::erase_if(parts, [&name = name](const Part& part) { return part.name != name; });
  return parts;
} catch (const InputError& e) {
  throw InputError(cat(path, ": ", e.what()));
} catch (const Error& e) {
  throw Error(cat(path, ": ", e.what()), e.code());
}

Results load_results(const std::string& path) {
  std::vector<Part> parts = load_parts(path);
  if (parts.size() != 1)
    throw InputError(parts.empty()
                         ? cat(path, ": holds no run")
                         : cat(path, " has several parts: ", naming(file_and_part(path).first, parts)));
  if (!parts.front().profile.is_null()) throw InputError(cat(path, ": is a profile, not a run's results"));
  return std::move(parts.front().results);
}

std::string kind_of(const std::string& path) try {
  const std::string text = read_text(path);
  if (is_results(text)) return "results";
  const std::string kind = text_at(parse_json(text), "kind");
  return kinds().contains(kind) ? kind : "";
} catch (const InputError&) {
  return "";
}

Json load_json(const std::string& path) try { return json_in(read_text(path)); } catch (const InputError& e) {
  throw InputError(cat(path, ": ", e.what()));
}

Json load_json_of(const char* what, const std::string& path, const std::function<bool(const Json&)>& is) try {
  const std::string text = read_text(path);
  if (is_results(text)) throw InputError(cat("is a results file, not ", what));
  Json json = json_in(text);
  if (!is(json)) throw InputError(cat("is ", seems_to_be(json), ", not ", what));
  return json;
} catch (const InputError& e) {
  throw InputError(cat(path, ": ", e.what()));
}

void check_ours(const std::string& path, const Json& json) {
  if (!json.is_object() || !json.contains("schema")) throw InputError(cat(path, ": ", not_ours(json)));
}

namespace {

bool is_json(const std::string& path) try {
  load_json(path);
  return true;
} catch (const InputError&) {
  return false;
}

}  // namespace

void check_same_kind(const std::string& path, const std::string& kind, const std::string& way_out) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) == 0) return;
  const auto wanted = kinds().find(kind);
  const auto refuse = [&](const char* what) {
    throw InputError(cat(path, " is ", what, ", which ",
                         wanted == kinds().end() ? "the output" : wanted->second,
                         " would replace: ", way_out));
  };
  const std::string found = kind_of(path);
  if (found == kind) return;
  if (kinds().contains(found)) refuse(kinds().at(found));
  if (wanted != kinds().end() && found.empty() && !is_json(path) && begins_as("damaged", path)) return;
  if (wanted != kinds().end() || !begins_as(kind, path)) refuse("none of Stepladder's own files");
}

bool is_of_a_gate(const Results& results) {
  return text_at(results.context, "command_line").starts_with("stepladder gate ");
}

void make_folder_of(const std::string& path) {
  std::error_code error;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    throw InputError(cat(path, ": cannot make its folder: ", error.message(), "; name another --out"));
}

ResultsFile::ResultsFile(const std::string& path, Json context, Json plan, Existing existing,
                         const std::string& part, std::string way_on)
    : path_(path),
      target_(target_of(path)),
      part_(part),
      way_on_(std::move(way_on)),
      session_(random_secret().substr(0, 16)),
      context_(std::move(context)) {
  if (path == "-") throw InputError("-: name a file; `stepladder export` prints what is in one");
  if (is_gzip_name(path))
    throw InputError(cat(path, ": nothing is added to a gzip file: name it without .gz"));
  if (const auto [file, its_part] = file_and_part(path); !its_part.empty())
    throw InputError(cat(path, ": --out names a file, --part a part of it"));
  make_folder_of(path);
  lock();
  results_.context = context_;
  results_.plan = std::move(plan);
  try {
    open_part(existing);
    if (is_new_) {
      begin();
      flush_folder_of(target_);
    }
  } catch (const Error& e) {
    begun_ = false;
    close();
    if (e.code() == kExitNotComparable) throw;
    throw InputError(e.what());  // nothing has been measured: another --out is the way out
  }
}

ResultsFile::~ResultsFile() {
  close();
}

void ResultsFile::close() {
  if (file_.open() && is_new_ && !begun_) ::unlink(target_.c_str());
  file_.close();
}

void ResultsFile::lock() {
  struct stat locked {};
  struct stat there {};
  do {  // again if --overwrite has replaced the file before it was locked
    file_ =
        Fd(::open(target_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (!file_.open())
      throw InputError(cat(path_, ": cannot write: ", std::strerror(errno), "; name another --out"));
    if (::fstat(file_.get(), &locked) != 0 || !S_ISREG(locked.st_mode))
      throw InputError(cat(path_, ": cannot write: not a regular file; name another --out"));
    // On a file system without locks the file is not locked.
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw InputError(cat(path_, " is being written by another run: wait for it, or name another --out"));
  } while (::stat(target_.c_str(), &there) != 0 || locked.st_ino != there.st_ino);
  is_new_ = locked.st_size == 0;
}

void ResultsFile::open_part(Existing existing) {
  if (is_new_) return;
  const std::string name = name_and_about(part_).first, text = read_text(target_);
  std::array<char, 2> beginning{};
  if (::pread(file_.get(), beginning.data(), beginning.size(), 0) == 2 &&
      is_gzip({beginning.data(), beginning.size()}))
    throw InputError(path_ + " is a gzip file, to which nothing is added: name another --out");
  if (existing == Existing::overwrite) {
    kept_ = name.empty() ? "" : lines_without(text, name);
    if (kept_ == text) kept_.reset();  // nothing is replaced
    AtomicFile probe(path_);  // throws where the folder can't be written to, before anything is measured
    return;
  }
  std::vector<Part> parts = load_parts(target_);
  const size_t whole = text.rfind('\n') + 1;
  if (whole < text.size() && ::ftruncate(file_.get(), static_cast<off_t>(whole)) != 0)
    throw InputError(cat(path_, ": cannot cut its torn last line: ", std::strerror(errno)));
  const auto found = std::ranges::find(parts, name, &Part::name);
  if (parts.empty()) return begin();
  if (found == parts.end() && (name.empty() || parts.front().name.empty()))
    throw InputError(
        cat(path_, name.empty() ? " has parts with names: give this one a name by --part, or another --out"
                                : " has no parts with names: name another --out"));
  if (found == parts.end() || !found->skipped.empty()) return;
  if (existing == Existing::refuse)
    throw InputError(cat(path_, name.empty() ? "" : ":" + name,
                         " is there already: --resume continues it, --overwrite starts again"));
  resume(std::move(*found), existing);
}

void ResultsFile::resume(Part part, Existing existing) {
  const std::string name = cat(path_, part.name.empty() ? "" : ":" + part.name),
                    what = name + " cannot be resumed";
  if (part.joined) throw InputError(what + ": `cat` joined it, --out names another file");
  if (const auto hashes = results_.plan.find("source_hashes"); hashes != results_.plan.end()) {
    require_same_sources(what, part.results, *hashes, existing == Existing::retry);
    part.results.plan["source_hashes"] = *hashes;
  }
  require_same_plan(what, part.results, context_, results_.plan,
                    "--out names another file, --overwrite starts again",
                    cat("`stepladder resume ", name, "` goes on with its own options, "));
  int64_t done = 0;
  for (const Run& run : part.results.runs) done = std::max(done, run.round + 1);
  const auto most = number_at(results_.plan, "max_rounds"),
             rounds = most ? most : number_at(results_.plan, "rounds");
  if (rounds && *rounds < static_cast<double>(done))
    throw InputError(cat(name, " has runs of ", done, " rounds: --rounds may be more, not less"));
  if (results_.plan.contains("certify_loss") && part.results.complete && rounds &&
      *rounds > static_cast<double>(done))
    throw InputError(cat(name, " has all ", done,
                         " seeds of its certificate, whose number is fixed before they are seen: ",
                         "measure others by --seed, into another --out"));
  resumes_ = part.last_session;
  ended_ = {{"complete", part.results.complete}, {"stopped", part.results.stopped}};
  part.results.plan = std::move(results_.plan);
  part.results.complete = false;
  part.results.stopped = nullptr;
  results_ = std::move(part.results);
  results_.context["command_line"] = context_.value("command_line", Json());
  if (existing != Existing::retry) return;
  auto& runs = results_.runs;
  const auto again =
      std::stable_partition(runs.begin(), runs.end(), [](const Run& run) { return !failed(run.status); });
  failed_.assign(std::make_move_iterator(again), std::make_move_iterator(runs.end()));
  runs.erase(again, runs.end());
}

Json ResultsFile::line(const char* kind) const {
  return {{"line", kind}, {"session", session_}};
}

void ResultsFile::begin() {
  if (begun_) return;
  Json session = session_line(session_, part_, context_, results_.plan);
  if (!resumes_.empty()) session["resumes"] = resumes_;
  write(session);
  begun_ = true;
}

void ResultsFile::write(const Json& line) {
  const std::string text = dump(line) + "\n";
  if (kept_) {
    *kept_ += text;
    return;
  }
  const off_t size = ::lseek(file_.get(), 0, SEEK_END);
  if (write_all(file_.get(), text) && ::fsync(file_.get()) == 0) return require_in_place();
  const int error = errno;
  [[maybe_unused]] const int cut =
      ::ftruncate(file_.get(), size);  // if that fails, the next writer cuts the torn line
  const char* cure = error == ENOSPC || error == EDQUOT ? "free some space"
                     : error == EFBIG                   ? "raise `ulimit -f`"
                                                        : "see to its disk and who may write there";
  throw Error(cat(path_, ": cannot write: ", std::strerror(error), "; ", cure, ", then ", way_on_));
}

void ResultsFile::require_in_place() const {
  struct stat ours {};
  struct stat there {};
  check(::fstat(file_.get(), &ours) == 0, "fstat failed");
  const bool is_there = ::stat(target_.c_str(), &there) == 0;
  if (is_there && there.st_dev == ours.st_dev && there.st_ino == ours.st_ino) return;
  if (ours.st_nlink > 0)
    throw Error(cat(path_, ": was moved while it was being written: what was measured is in it, and ",
                    "`stepladder resume` goes on with it where it is now"));
  const std::string what = is_there ? ": was replaced" : ": was removed",
                    rescued = is_there ? cat(path_, ".", session_) : path_;
  try {
    make_folder_of(rescued);
    write_atomically(rescued, read_text(cat("/proc/self/fd/", file_.get())));
  } catch (const InputError& e) {
    throw Error(cat(path_, what, " while it was being written, and its runs are lost: ", e.what()));
  }
  throw Error(cat(path_, what, " while it was being written: what was measured is in ", rescued,
                  ", with which `stepladder resume` goes on"));
}

void ResultsFile::replace() {
  if (!kept_) return;
  struct stat ours {};
  struct stat there {};
  if (::stat(target_.c_str(), &there) == 0 && ::fstat(file_.get(), &ours) == 0 && there.st_ino != ours.st_ino)
    throw Error(cat(path_, ": was replaced while its next runs were measured; name another --out"));
  try {
    AtomicFile file(path_);
    file.write(*kept_);
    file_ = file.commit_locked();
  } catch (const InputError& e) {
    throw Error(e.what());
  }
  kept_.reset();
}

void ResultsFile::restart_round(int64_t round) {
  const auto in_round = [&](const Run& run) { return run.round == round; };
  if (std::erase_if(results_.runs, in_round) + std::erase_if(failed_, in_round) > 0) restarted_ = round;
}

void ResultsFile::add(Run run) {
  require_alike(results_, run);
  begin();
  const auto is_same = [&](const Run& other) { return other.round == run.round && other.is_of(run.row()); };
  const auto same = std::ranges::find_if(results_.runs, is_same);
  const bool again = std::erase_if(failed_, is_same) > 0 || same != results_.runs.end();
  Json json = line("run");
  if (restarted_ == run.round)
    json["replaces"] = "round";
  else if (again)
    json["replaces"] = "run";
  json.update(to_json(run));
  write(json);
  replace();
  restarted_.reset();
  if (!resumes_.empty() && !std::exchange(told_, true)) tell_resumed(results_, context_);
  if (same != results_.runs.end())
    *same = std::move(run);
  else
    results_.runs.push_back(std::move(run));
}

void ResultsFile::add_profile(const Json& profile) {
  begin();
  Json json = line("profile");
  json.update(profile);
  write(json);
  replace();
}

void ResultsFile::finish(Json stopped, const std::function<int(const Results&)>& exit_code) {
  for (Run& run : std::exchange(failed_, {})) results_.runs.push_back(std::move(run));  // those not repeated
  results_.stopped = std::move(stopped);
  results_.complete = true;
  const Json how = {{"complete", true}, {"stopped", results_.stopped}};
  if (begun_ || how != ended_) end(how, exit_code(results_));  // else this session added nothing
}

void ResultsFile::interrupt(int exit_code) {
  if (!kept_) end({{"complete", false}, {"stopped", nullptr}}, exit_code);
}

void ResultsFile::skip(const std::string& reason) {
  end({{"complete", false}, {"stopped", nullptr}, {"skipped", reason}}, kExitOk);
}

void ResultsFile::end(const Json& how, int exit_code) {
  begin();
  Json json = line("end");
  json.update(how);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start_;
  json.update({{"exit_code", exit_code}, {"wall_s", std::round(wall.count() * 1e3) / 1e3}});
  write(json);
  replace();
}

}  // namespace stepladder
