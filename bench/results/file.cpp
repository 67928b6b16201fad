#include "bench/results/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "bench/base/text.h"
#include "bench/results/configuration.h"
#include "bench/results/json.h"
#include "model/atomic_file.h"
#include "model/error.h"
#include "model/fd.h"

namespace stepladder {
namespace {

/// Beside the file itself, so that whoever writes it through a link finds it taken.
std::string journal_of(const std::string& path) {
  return target_of(path) + ".journal";
}

/// `otherwise` where no file is there.
std::string read_text(const std::string& path, std::optional<std::string> otherwise = {}) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (error && type != std::filesystem::file_type::not_found)
    throw InputError(cat("cannot be read: ", error.message()));
  if (type != std::filesystem::file_type::not_found && type != std::filesystem::file_type::regular)
    throw InputError("is not a regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == ENOENT && otherwise) return *otherwise;
  if (!file)
    throw InputError(
        cat("cannot be read: ", std::strerror(errno),
            path == kLatestResults ? ": `stepladder run` measures into it, or name another" : ""));
  return {std::istreambuf_iterator<char>(file), {}};
}

/// By kind, what a file of ours is called.
const std::map<std::string, const char*>& kinds() {
  static const std::map<std::string, const char*> kinds = {
      {"results", "a results file"}, {"profile", "a profile"}, {"noise", "a noise file"},
      {"comparison", "a verdict"},   {"history", "a history"}, {"campaign", "a campaign"}};
  return kinds;
}

/// Whether what is at `path` begins as a text of ours does: "csv", "page", ..., or a JSON file that is
/// "damaged".
bool begins_as(const std::string& kind, const std::string& path) {
  static const std::multimap<std::string, std::string> beginnings = {
      {"csv", "variant,"},
      {"damaged", "{\n\"schema\""},
      {"damaged", "{\"schema\""},
      {"googlebenchmark", "{\n \"context\": {"},
      {"published", "# Published numbers and ours\n"},
      {"summary", "# Stepladder\n"},
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
  return std::any_of(first, last, [&](const auto& item) {  // of which it may have the beginning alone
    return text.starts_with(item.second) || item.second.starts_with(text);
  });
}

/// What JSON that is none of ours seems to be.
std::string seems_to_be(const Json& json) {
  static const std::vector<std::pair<std::vector<const char*>, const char*>> known = {
      {{"machine_info", "benchmarks"}, "pytest-benchmark's JSON"},
      {{"context", "benchmarks"}, "Google Benchmark's JSON"},
      {{"meta", "devices", "benchmarks"}, "nvbench's JSON"},
      {{"traceEvents"}, "a trace's JSON"},
      {{"name", "rungs"}, "a ladder file, which --ladder takes"}};
  if (!json.is_object()) return json.is_array() ? "a JSON list" : "a single JSON value";
  for (const auto& [fields, name] : known)
    if (std::ranges::all_of(fields, [&](const char* field) { return json.contains(field); })) return name;
  if (json.contains(Json::json_pointer("/results/0/command"))) return "hyperfine's JSON";
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items())
    if (names.size() < 4) names.push_back(name);
  return names.empty() ? "an empty JSON object" : cat("JSON of something else (", join(names, ", "), ")");
}

/// How to name the parts of a campaign's file: "name a part, such as FILE:ladder (others: energy_16)".
std::string parts_in(const std::string& path, const Json& campaign) {
  std::vector<std::string> names;
  for (const Json& part : campaign["parts"])
    if (part.contains("result")) names.push_back(text_at(part, "name"));
  if (names.empty()) return "none of its parts has a result";
  const std::string first = cat("name a part, such as ", path, ":", names.front());
  names.erase(names.begin());
  return names.empty() ? first : cat(first, " (others: ", join(names, ", "), ")");
}

}  // namespace

std::string kind_of(const Json& json) {
  if (!json.is_object() || !json.contains("schema")) return "";
  if (json.contains("kind")) return text_at(json, "kind");
  return json.contains("profile") ? "profile" : json.contains("runs") ? "results" : "";
}

std::string file_text(const Json& json) {
  std::string text;
  for (const auto& [key, value] : json.items()) {
    std::string items;
    for (const Json& item : value.is_array() ? value : Json::array())
      items += (items.empty() ? "\n" : ",\n") + dump(item);
    text += cat(text.empty() ? "{\n" : ",\n", dump(key), ": ",
                value.is_array() ? "[" + items + "]" : dump(value));
  }
  return text + "\n}\n";
}

void add_journal(Results& results, const std::string& text) {
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
  std::string line;
  if (!std::getline(lines, line)) return;
  const Json header = parse_json(line);
  const int64_t schema = schema_of(header);
  if (header.value("context", Json()) != results.context) return;
  while (std::getline(lines, line)) try {
      Run run = run_from(parse_json(line), schema);
      const RowKey row = run.row();
      std::erase_if(results.runs, [&](const Run& old) {  // which --retry-failed has run again
        return old.round == run.round && old.is_of(row);
      });
      results.runs.push_back(std::move(run));
    } catch (const InputError&) {  // costs that run alone
    }
}

Json load_json(const std::string& path) try {
  return parse_json(read_text(path));
} catch (const InputError& e) {
  throw InputError(cat(path, ": ", e.what()));
}

void check_ours(const std::string& path, const Json& json) {
  if (json.is_object() && json.contains("schema")) return;
  throw InputError(cat(path, " is ", seems_to_be(json),
                       ", not a file of Stepladder's: `stepladder run` measures and writes one"));
}

void check_same_kind(const std::string& path, const std::string& kind, const std::string& way_out) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) == 0) return;
  const auto wanted = kinds().find(kind);
  const auto refuse = [&](const char* what) {
    throw InputError(cat(path, " is ", what, ", which ",
                         wanted == kinds().end() ? "the output" : wanted->second,
                         " would replace: ", way_out));
  };
  std::string found;
  try {
    found = kind_of(load_json(path));
  } catch (const InputError&) {
    if (wanted != kinds().end() && begins_as("damaged", path)) return;
    if (wanted != kinds().end()) refuse("no JSON");
  }
  if (found == kind) return;
  if (kinds().contains(found)) refuse(kinds().at(found));
  if (wanted != kinds().end() || !begins_as(kind, path)) refuse("none of Stepladder's own files");
}

bool is_of_a_gate(const Results& results) {
  return text_at(results.context, "command_line").starts_with("stepladder gate ");
}

bool is_campaign(const Json& json) {
  return text_at(json, "kind") == "campaign";
}

void check_campaign(const std::string& path, const Json& json) {
  check_ours(path, json);
  if (!is_campaign(json) || !json.contains("parts") || !json["parts"].is_array())
    throw InputError(path + " is no campaign's file");
  try {
    schema_of(json);
  } catch (const InputError& e) {
    throw InputError(cat(path, ": ", e.what()));
  }
  std::set<std::string> names;
  for (const Json& part : json["parts"])
    if (!part.is_object() || !part.value("result", Json::object()).is_object() ||
        !part.value("wall_s", Json(0)).is_number() || !names.insert(text_at(part, "name")).second)
      throw InputError(cat(path, ": its part ", names.size(), " (", text_at(part, "name"),
                           ") is damaged, or there twice"));
}

bool has_ended(const Json& part, double own_limit_s) {
  if (part.contains("skipped")) return true;
  if (!part.contains("exit_code") || part["exit_code"] > 128) return false;
  if (!part.contains("result")) return part["exit_code"] != kExitOk;
  const Json& result = part["result"];
  if (result.contains("profile")) return true;
  const Json complete = result.value("complete", Json()), stopped = result.value("stopped", Json());
  if (complete != true || text_at(stopped, "reason") != "max_time") return complete == true;
  const Json limit = result.value("plan", Json::object()).value("max_time_s", Json());
  return limit.is_number() && limit >= own_limit_s;
}

bool has_less(const Json& result, const Json& than) {
  if (result.is_null()) return true;
  if (!result.contains("runs") || result.value("complete", Json()) == true) return false;
  const auto runs = [](const Json& of) {
    return of["runs"].is_object() ? of["runs"].value("rows", size_t{0}) : of["runs"].size();
  };
  return !than.contains("runs") || than.value("complete", Json()) == true || runs(result) < runs(than);
}

Json load_part(const std::string& path) {
  const size_t colon = path.rfind(':');
  const std::string file = path.substr(0, colon);
  std::error_code none;
  if (colon == std::string::npos || std::filesystem::exists(path, none) ||
      !std::filesystem::exists(file, none)) {
    Json json = load_json(path);
    check_ours(path, json);
    return json;
  }
  const std::string name = path.substr(colon + 1);
  const Json json = load_json(file);
  check_campaign(file, json);
  for (const Json& part : json["parts"])
    if (text_at(part, "name") == name && part.contains("result")) return part["result"];
  throw InputError(
      cat(file, " has no part \"", printable(name, 60), "\" with a result: ", parts_in(file, json)));
}

void make_folder_of(const std::string& path) {
  std::error_code error;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) throw InputError(cat(path, ": cannot make its folder: ", error.message()));
}

Results load_results(const std::string& path) {
  return load_results(path, load_part(path));
}

Results load_results(const std::string& path, const Json& json) {
  if (is_campaign(json)) {
    check_campaign(path, json);
    throw InputError(cat(path, " is a campaign: ", parts_in(path, json)));
  }
  if (const auto other = kinds().find(kind_of(json)); other != kinds().end() && other->first != "results")
    throw InputError(cat(path, " is ", other->second, ", not results"));
  std::string at = path;
  try {
    Results results = results_from(json);
    require_alike(results, path);
    at = journal_of(path);
    if (results.complete) return results;
    std::error_code none;
    const bool there = std::filesystem::exists(path, none);  // no part of a campaign
    const std::string journal = there ? read_text(at, "") : "";
    // Finished meanwhile, or gone on with: what was in the journal is in the file now.
    if (const Json now = there ? load_json(path) : json; now != json) return load_results(path, now);
    add_journal(results, journal);
    require_alike(results, path);
    return results;
  } catch (const InputError& e) {
    throw InputError(
        cat(at, ": ", e.what(), at == path ? "" : ": without it " + path + " goes on, but for its runs"));
  }
}

ResultsFile::ResultsFile(const std::string& path, Json context, Json plan, Existing existing, Writing to_json,
                         std::string way_on)
    : to_json_(std::move(to_json)),
      way_on_(std::move(way_on)),
      path_(path),
      target_(target_of(path)),
      journal_path_(journal_of(path)) {
  if (path == "-") throw InputError("-: name a file; `stepladder export` prints what is in one");
  make_folder_of(path);
  {
    const AtomicFile probe(path);  // says what is wrong with the place before anything is there
  }
  open_journal();  // before the file is read, which another run may still add to
  try {
    std::error_code none;
    const bool there = std::filesystem::exists(path, none);
    if (there && existing == Existing::refuse)
      throw InputError(cat(path, " is there already: --resume continues it, --overwrite starts again"));
    if (there && (existing == Existing::resume || existing == Existing::retry)) {
      resume(context, std::move(plan), existing);
    } else {
      results_.context = std::move(context);
      results_.plan = std::move(plan);
    }
    if (!there && existing != Existing::overwrite && !journal_is_empty())
      throw InputError(cat(journal_path_, " has finished runs of ", path,
                           ", which is gone: --overwrite starts again, without them"));
    results_.complete = false;
    results_.stopped = nullptr;
    // What is overwritten stays until there is a run in its place.
    if (!there || existing != Existing::overwrite) start();
  } catch (...) {
    begun_ = false;
    close_journal();
    throw;
  }
}

void ResultsFile::resume(const Json& context, Json plan, Existing existing) {
  results_ = load_results(path_);
  Json same = plan;  // but for how many rounds there are at most, and on which of a machine's devices
  for (const char* field : {"rounds", "max_rounds", "max_time_s", "device"})
    if (plan.contains(field) && results_.plan.contains(field)) same[field] = results_.plan[field];
  const auto require = [&](const std::string& field, const Json& was, const Json& now,
                           const std::string& way_out = "--overwrite starts again") {
    require_same(path_ + " cannot be resumed", field, was, now, way_out);
  };
  require("plan", results_.plan, same,
          cat("`stepladder resume ", path_,
              "` goes on with its own options, --out names another file, --overwrite starts again"));
  int64_t done = 0;
  for (const Run& run : results_.runs) done = std::max(done, run.round + 1);
  const auto most = number_at(plan, "max_rounds"), rounds = most ? most : number_at(plan, "rounds");
  if (rounds && *rounds < static_cast<double>(done))
    throw InputError(cat(path_, " has runs of ", done, " rounds: --rounds may be more, not less"));
  results_.plan = std::move(plan);
  results_.context["command_line"] = context.value("command_line", Json());  // of this plan
  if (existing == Existing::retry) {
    auto& runs = results_.runs;
    const auto failed = std::stable_partition(runs.begin(), runs.end(), [](const Run& run) {
      return run.status == Status::ok || run.status == Status::unsupported;
    });
    failed_.assign(failed, runs.end());
    runs.erase(failed, runs.end());
  }
  Json was = results_.context, now = context;
  for (Json* device : {&was["device"], &now["device"]})
    if (device->is_object()) device->erase("uuid");  // another card of its kind does a round as well
  std::vector<const char*> fields = {"build", "cpu", "device", "environment"};
  if (text_at(now["device"], "backend") == "cpu") {
    fields.push_back("cores");
    if (was.contains("thread_environment")) fields.push_back("thread_environment");
  }
  for (const char* field : fields) require(field, was.value(field, Json()), now.value(field, Json()));
  call_ = {{"time", context.value("time", Json())},
           {"device", context.at("device").value("uuid", Json())},
           {"busy_cores", context.value("busy_cores", Json())}};
}

void ResultsFile::start() try { begin(); } catch (const Error& e) {
  throw InputError(e.what());  // nothing has been measured: another --out is the way out
}

void ResultsFile::begin() {
  begun_ = true;
  // The file takes the old journal's runs before the journal starts afresh.
  write_file();
  if (::ftruncate(journal_, 0) != 0) throw Error(cat(journal_path_, ": ", std::strerror(errno)));
  append({{"schema", kSchema}, {"context", results_.context}});
}

ResultsFile::~ResultsFile() {
  close_journal();
}

bool ResultsFile::journal_is_empty() const {
  struct stat journal {};
  return ::fstat(journal_, &journal) == 0 && journal.st_size == 0;
}

void ResultsFile::close_journal() {
  if (journal_ < 0) return;
  if (!begun_ && journal_is_empty()) ::unlink(journal_path_.c_str());
  ::close(std::exchange(journal_, -1));
}

void ResultsFile::open_journal() {
  struct stat locked {};
  struct stat there {};
  do {  // until what is locked is what has the name: a run that ends in between removes its journal
    if (journal_ >= 0) ::close(journal_);
    // Neither is a link followed, to what would be emptied, nor a FIFO waited for.
    constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    journal_ = ::open(journal_path_.c_str(), kFlags, 0666);
    const bool in_the_way = journal_ < 0 ? errno == ELOOP || errno == ENXIO
                                         : ::fstat(journal_, &locked) == 0 && !S_ISREG(locked.st_mode);
    if (in_the_way)
      throw InputError(
          cat(journal_path_, ": is a link or no regular file: remove it, or name another --out"));
    if (journal_ < 0)
      throw InputError(cat(journal_path_, ": cannot write: ", std::strerror(errno), "; name another --out"));
    // Whoever may read the one may read the other.
    if (struct stat results{}; ::stat(target_.c_str(), &results) == 0)
      ::fchmod(journal_, results.st_mode & 0777);
    // A file system without locks goes without.
    if (::flock(journal_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw InputError(cat(path_, " is being written by another run: wait for it, or name another --out"));
  } while (::fstat(journal_, &locked) == 0 &&
           (::stat(journal_path_.c_str(), &there) != 0 || locked.st_ino != there.st_ino));
}

void ResultsFile::append(const Json& line) {
  if (!write_all(journal_, dump(line) + "\n"))
    throw Error(
        cat(journal_path_, ": cannot write: ", std::strerror(errno), "; free some space, then ", way_on_));
  if (::fsync(journal_) != 0)
    throw Error(cat(journal_path_, ": cannot flush to disk: ", std::strerror(errno), "; then ", way_on_));
}

void ResultsFile::write_file() try {
  Results whole = results_;
  for (const Run& run : failed_)  // that are to be run again, and were not yet
    if (!results_.find(run.row(), run.round)) whole.runs.push_back(run);
  write_atomically(target_, file_text(to_json_(whole)));
} catch (const InputError& e) {
  throw Error(e.what());  // what was measured is in the journal
}

void ResultsFile::forget(const std::function<bool(const Run&)>& which) {
  if (std::erase_if(results_.runs, which) > 0 && begun_) begin();
}

void ResultsFile::add(Run run) {
  require_alike(results_, run);
  if (!call_.is_null()) {
    call_["runs"] = results_.runs.size();
    Json& resumed = results_.context["resumed"];
    if (!resumed.is_array()) resumed = Json::array();
    resumed.push_back(std::exchange(call_, nullptr));
    if (begun_) begin();
  }
  if (begun_) append(to_json(run));
  results_.runs.push_back(std::move(run));
  if (!begun_) begin();
}

void ResultsFile::finish(Json stopped) {
  if (!begun_) begin();
  for (Run& run : std::exchange(failed_, {}))  // for which there was no time
    if (!results_.find(run.row(), run.round)) results_.runs.push_back(std::move(run));
  results_.stopped = std::move(stopped);
  results_.complete = true;
  try {
    write_file();
  } catch (const Error& e) {
    throw Error(cat(e.what(), "; then ", way_on_));
  }
  ::unlink(journal_path_.c_str());
}

}  // namespace stepladder
