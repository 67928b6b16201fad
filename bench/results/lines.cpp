#include "bench/results/lines.h"

#include <algorithm>
#include <list>
#include <map>
#include <set>
#include <tuple>

#include "bench/base/text.h"
#include "bench/results/run_json.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr std::string_view kBeginning = R"({"line":")";

/// Calls `call` with the text of each whole line, without the line feed, and the line's number.
template <class Call>
void for_each_line(const std::string& text, Call call) {
  size_t number = 0;
  for (size_t from = 0, end = 0; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
    call(std::string_view(text).substr(from, end - from), ++number);
}

/// Calls `read`, and adds a line's number to its InputError.
template <class Read>
void with_number(size_t number, Read read) {
  try {
    read();
  } catch (const InputError& e) {
    throw InputError(cat("line ", number, ": ", e.what()));
  }
}

/// Builds parts from lines. A line whose session is further down waits for it.
class PartsReader {
 public:
  void add(Json json, size_t number) {
    if (!json.is_object()) throw InputError("is no object");
    if (!take(json)) waiting_.push_back({std::move(json), number});
  }

  std::vector<Part> parts() {
    for (bool took = true; took;)
      took = std::erase_if(waiting_, [&](const Waiting& line) {
               bool taken = false;
               with_number(line.number, [&] { taken = take(line.json); });
               return taken;
             }) > 0;
    if (!waiting_.empty())
      throw InputError(cat("line ", waiting_.front().number, ": session ",
                           printable(whole_text_at(waiting_.front().json, "session"), 40),
                           ", or the one that it resumes, is not in the file"));
    return joined();
  }

 private:
  struct Waiting {
    Json json;
    size_t number;
  };
  struct Building {
    Part part;
    std::map<std::pair<RowKey, int64_t>, size_t> places = {};  // index of a run, by row and round
  };
  struct Session {
    Building* to = nullptr;
    Json resumes_on;  // context of a resuming session, until its first run
  };

  /// Takes a line into its session. Returns whether that session is known.
  bool take(const Json& json) {
    const std::string line = text_at(json, "line"), id = whole_text_at(json, "session");
    if (line == "session") return begin(json, id);
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return false;
    Building& to = *found->second.to;
    if (line == "run")
      add_run(to, json, found->second);
    else if (line == "profile")
      add_profile(to.part, json);
    else if (line == "end")
      add_end(to.part, json);
    else
      throw InputError(cat("\"", line, "\" is no kind of line"));
    return true;
  }

  bool begin(const Json& json, const std::string& id) {
    check_schema(json);
    const Json context = json.value("context", Json()), plan = json.value("plan", Json());
    if (id.empty() || !context.is_object() || !plan.is_object())
      throw InputError("a session needs \"session\", \"context\" and \"plan\"");
    if (sessions_.contains(id))
      throw InputError(cat("session ", printable(id, 40), " begins a second time: is a file in here twice?"));
    if (const std::string before = whole_text_at(json, "resumes"); !before.empty()) {
      const auto found = sessions_.find(before);
      if (found == sessions_.end()) return false;
      Part& part = found->second.to->part;
      part.results.context["command_line"] = context.value("command_line", Json());
      part.results.plan = plan;
      part.results.complete = false;
      part.results.stopped = nullptr;
      part.last_session = id;
      sessions_[id] = {found->second.to, context};
      return true;
    }
    Building& made = building_.emplace_back();
    std::tie(made.part.name, made.part.about) = name_and_about(whole_text_at(json, "part"));
    made.part.results.context = context;
    made.part.results.plan = plan;
    made.part.last_session = id;
    sessions_[id] = {&made, nullptr};
    return true;
  }

  /// Adds a run; "replaces" says which earlier runs it replaces: all of its round, or one.
  static void add_run(Building& to, const Json& json, Session& session) {
    Run run = run_from(json);
    std::vector<Run>& runs = to.part.results.runs;
    if (const Json on = std::exchange(session.resumes_on, nullptr); !on.is_null())
      tell_resumed(to.part.results, on);
    const std::string replaces = whole_text_at(json, "replaces");
    if (replaces == "round" &&
        std::erase_if(runs, [&](const Run& old) { return old.round == run.round; }) > 0) {
      to.places.clear();
      for (size_t i = 0; i < runs.size(); ++i) to.places[{runs[i].row(), runs[i].round}] = i;
    }
    const auto [place, is_new] = to.places.emplace(std::pair(run.row(), run.round), runs.size());
    if (is_new)
      runs.push_back(std::move(run));
    else if (replaces == "run")
      runs[place->second] = std::move(run);
    else
      throw InputError(cat("another run of ", printable(run.variant, 100), ", ",
                           printable(run.workload(), 100), ", round ", run.round, " is there already"));
  }

  static void add_profile(Part& part, const Json& json) {
    part.profile = {{"schema", kSchema}, {"context", part.results.context}, {"profile", json}};
    for (const char* of_line : {"line", "session"}) part.profile["profile"].erase(of_line);
  }

  static void add_end(Part& part, const Json& json) {
    part.results.complete = json.value("complete", Json()) == true;
    part.results.stopped = json.value("stopped", Json());
    part.skipped = whole_text_at(json, "skipped");
    if (const auto code = number_at(json, "exit_code"))
      part.exit_code = static_cast<int64_t>(std::clamp(*code, 0.0, 255.0));
    part.wall_s += std::max(0.0, number_at(json, "wall_s").value_or(0.0));
  }

  /// The parts, those of one name joined; a part that was skipped doesn't count beside a measured one.
  std::vector<Part> joined() {
    std::vector<Part> all;
    for (Building& building : building_) {
      Part& part = building.part;
      const auto same = std::ranges::find(all, part.name, &Part::name);
      if (same == all.end())
        all.push_back(std::move(part));
      else if (!same->skipped.empty())
        *same = std::move(part);
      else if (part.skipped.empty())
        join(*same, std::move(part));
    }
    return all;
  }

  static void join(Part& part, Part other) {
    require_same_plan(part.name.empty() ? "two plans" : cat("two parts called ", printable(part.name, 60)),
                      part.results, other.results.context, other.results.plan, "keep them in two files");
    if (!other.profile.is_null()) {
      if (!part.profile.is_null())
        throw InputError(cat("holds two profiles", part.name.empty() ? "" : " called ",
                             printable(part.name, 60), ": keep them in two files"));
      part.profile = std::move(other.profile);
    }
    part.joined = true;
    int64_t rounds = 0;
    for (const Run& run : part.results.runs) rounds = std::max(rounds, run.round + 1);
    for (Run& run : other.results.runs) {
      run.round += rounds;
      part.results.runs.push_back(std::move(run));
    }
    part.results.complete &= other.results.complete;
    part.wall_s += other.wall_s;
    if (other.exit_code.value_or(0) > part.exit_code.value_or(0)) part.exit_code = other.exit_code;
  }

  std::list<Building> building_;
  std::map<std::string, Session> sessions_;
  std::vector<Waiting> waiting_;
};

}  // namespace

bool is_results(const std::string& text) try {
  if (text.starts_with(kBeginning)) return true;
  return text.starts_with('{') && parse_json(text.substr(0, text.find('\n'))).contains("line");
} catch (const InputError&) {
  return false;
}

std::vector<Part> parts_from(const std::string& text) {
  PartsReader reader;
  for_each_line(text, [&](std::string_view line, size_t number) {
    if (!line.empty()) with_number(number, [&] { reader.add(parse_json(std::string(line)), number); });
  });
  return reader.parts();
}

Json session_line(const std::string& id, const std::string& part, const Json& context, const Json& plan) {
  Json line = {{"line", "session"}, {"schema", kSchema}, {"session", id}};
  if (!part.empty()) line["part"] = part;
  line.update({{"context", context}, {"plan", plan}});
  return line;
}

std::string lines_of(const Part& part) {
  const Results& results = part.results;
  const std::string name = part.about.empty() ? part.name : cat(part.name, ": ", part.about);
  std::string text = dump(session_line(part.last_session, name, results.context, results.plan)) + "\n";
  const auto add = [&](const char* kind, const Json& fields) {
    Json line = {{"line", kind}, {"session", part.last_session}};
    line.update(fields);
    text += dump(line) + "\n";
  };
  for (const Run& run : results.runs) add("run", to_json(run));
  if (!part.profile.is_null()) add("profile", part.profile["profile"]);
  Json end = {{"complete", results.complete}, {"stopped", results.stopped}};
  if (!part.skipped.empty()) end["skipped"] = part.skipped;
  if (part.exit_code) end["exit_code"] = *part.exit_code;
  end["wall_s"] = part.wall_s;
  add("end", end);
  return text;
}

std::string lines_without(const std::string& text, const std::string& part) {
  std::vector<std::pair<std::string, std::string_view>> lines;  // each with its session's id
  std::map<std::string, std::string> resumed;                   // by id of the session that resumes it
  std::set<std::string> others;                                 // ids of the sessions that are kept
  for_each_line(text, [&](std::string_view line, size_t) {
    try {
      const Json json = parse_json(std::string(line));
      const std::string id = whole_text_at(json, "session"), resumes = whole_text_at(json, "resumes");
      lines.emplace_back(id, line);
      if (text_at(json, "line") != "session") return;
      if (!resumes.empty())
        resumed[id] = resumes;
      else if (name_and_about(whole_text_at(json, "part")).first != part)
        others.insert(id);
    } catch (const InputError&) {  // a damaged line belongs to no part
    }
  });
  for (size_t before = 0; before != others.size();) {
    before = others.size();
    for (const auto& [id, earlier] : resumed)
      if (others.contains(earlier)) others.insert(id);
  }
  std::string kept;
  for (const auto& [id, line] : lines)
    if (others.contains(id)) kept.append(line).append("\n");
  return kept;
}

std::pair<std::string, std::string> name_and_about(const std::string& part) {
  const size_t colon = part.find(": ");
  if (colon == std::string::npos) return {part, ""};
  return {part.substr(0, colon), part.substr(colon + 2)};
}

void require_same_plan(const std::string& what, const Results& was, const Json& context, const Json& plan,
                       const std::string& way_out, const std::string& of_plan) {
  Json same = plan;
  for (const char* field : {"rounds", "max_rounds", "max_time_s", "device"})
    if (plan.contains(field) && was.plan.contains(field)) same[field] = was.plan[field];
  require_same(what, "plan", was.plan, same, of_plan + way_out);
  Json before = was.context, now = context;
  const bool on_cpu = text_at(now["device"], "backend") == "cpu";
  for (Json* device : {&before["device"], &now["device"]}) {
    if (!device->is_object()) continue;
    device->erase("uuid");                      // another card of its kind may measure rounds
    if (on_cpu) device->erase("total_memory");  // the host's memory, or its control group's limit
  }
  std::vector<const char*> fields = {"build", "cpu", "device", "environment"};
  if (on_cpu) {
    fields.push_back("cores");
    if (before.contains("thread_environment")) fields.push_back("thread_environment");
  }
  for (const char* field : fields)
    require_same(what, field, before.value(field, Json()), now.value(field, Json()), way_out);
}

void require_same_sources(const std::string& what, const Results& was, const Json& source_hashes,
                          bool retry) {
  const Json measured = was.plan.value("source_hashes", Json::object());
  for (const auto& item : measured.items()) {
    const std::string& variant = item.key();
    const bool all_failed = std::ranges::all_of(
        was.runs, [&](const Run& run) { return run.variant != variant || failed(run.status); });
    if (source_hashes.contains(variant) && !(retry && all_failed))
      require_same(
          what, cat("the sources of ", variant), item.value(), source_hashes[variant],
          all_failed ? "--retry-failed runs it again" : "--overwrite starts again, --out names another file");
  }
}

void tell_resumed(Results& results, const Json& context) {
  Json& resumed = results.context["resumed"];
  if (!resumed.is_array()) resumed = Json::array();
  const Json device = context.value("device", Json());
  resumed.push_back({{"time", context.value("time", Json())},
                     {"device", device.is_object() ? device.value("uuid", Json()) : Json()},
                     {"busy_cores", context.value("busy_cores", Json())},
                     {"runs", results.runs.size()}});
}

}  // namespace stepladder
