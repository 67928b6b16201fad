#include "bench/rung/profile.h"

#include <cxxabi.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <regex>

#include "bench/plan/ladder.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr const char* kUnknown = "other";  // type and phase of a kernel whose op is unknown

double ms_of(int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

/// `times` as a list, the longest time first.
template <class Time>
std::vector<std::pair<std::string, Time>> by_time(const std::map<std::string, Time>& times) {
  std::vector<std::pair<std::string, Time>> sorted(times.begin(), times.end());
  std::ranges::stable_sort(sorted, std::greater<>(), [](const auto& s) { return s.second.ms; });
  return sorted;
}

Json ratio(double over, double under) {
  return under > 0.0 ? Json(over / under) : Json();
}

constexpr int64_t kProcess = 1;  // of a timeline

/// Adds slices of one kind to `events`. Slices that overlap lie on different tracks.
class Tracks {
 public:
  Tracks(Json& events, std::string name, int64_t first)
      : events_(events), name_(std::move(name)), first_(first) {}

  void add(const std::string& name, const std::string& category, int64_t start_ns, int64_t end_ns,
           Json args) {
    const auto free = std::ranges::find_if(ends_, [&](int64_t end) { return end <= start_ns; });
    const int64_t track = first_ + (free - ends_.begin());
    if (free == ends_.end()) {
      const std::string title = ends_.empty() ? name_ : cat(name_, " ", ends_.size() + 1);
      events_.push_back({{"ph", "M"},
                         {"name", "thread_name"},
                         {"pid", kProcess},
                         {"tid", track},
                         {"args", {{"name", title}}}});
      ends_.push_back(end_ns);
    } else {
      *free = end_ns;
    }
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", category},
                       {"pid", kProcess},
                       {"tid", track},
                       {"ts", static_cast<double>(start_ns) * 1e-3},
                       {"dur", static_cast<double>(end_ns - start_ns) * 1e-3},
                       {"args", std::move(args)}});
  }

 private:
  Json& events_;
  const std::string name_;
  const int64_t first_;          // the first track's number
  std::vector<int64_t> ends_{};  // the end of each track's last slice
};

/// The call of the op that a span is of; null where it is unknown.
const OpCall* call_of(const Span& span, const std::vector<OpCall>& calls) {
  return span.call < 0 ? nullptr : &calls.at(static_cast<size_t>(span.call));
}

}  // namespace

Profile::PhaseTime& Profile::phase(const std::string& name) {
  const auto found = std::ranges::find(phases_, name, &PhaseTime::name);
  return found == phases_.end() ? phases_.emplace_back(PhaseTime{.name = name}) : *found;
}

void Profile::add(const Tracing::Step& step, const std::vector<OpCall>& calls, double step_ms,
                  double device_ms) {
  ++steps_;
  step_ms_ += step_ms;
  device_ms_ += device_ms;
  for (const int64_t id : step.calls) {
    const OpCall& call = calls.at(static_cast<size_t>(id));
    ++phase(call.phase).calls;
    OpTime& op = ops_[call.op];
    op.kind = call.kind;
    op.math = call.math;
    if (!call.types.empty()) op.types.insert(call.types);
    op.bytes += call.bytes;
    op.flops += call.flops;
    op.floor_ms += ceilings_.floor_ms(call.bytes, call.flops, call.math);
    ++op.count;
  }
  int64_t done = 0;  // nanoseconds from the step's begin that are counted already
  for (const Span& span : step.times.spans) {
    const OpCall* call = call_of(span, calls);
    const std::string kind = call ? name_of(call->kind) : kUnknown;
    const double ms = ms_of(span.end_ns - span.start_ns);
    busy_ms_ += ms;
    idle_ms_ += ms_of(std::max<int64_t>(0, span.start_ns - done));
    phase(call ? call->phase : kUnknown).ms +=
        ms_of(std::max<int64_t>(0, span.end_ns - std::max(span.start_ns, done)));
    done = std::max(done, span.end_ns);
    if (call) ops_[call->op].ms += ms;
    const auto count = [&](KernelTime& time) {
      time.kind = kind;
      time.ms += ms;
      ++time.count;
    };
    count(kinds_[kind]);
    if (!span.kernel.empty()) count(kernels_[short_kernel_name(span.kernel)]);
  }
  span_ms_ += ms_of(done);
  idle_ms_ += ms_of(std::max<int64_t>(0, step.times.ns - done));
}

Json Profile::json(const std::string& source, std::optional<double> untraced_ms) const {
  const double device_ms = per_step(device_ms_);
  double sum_ms = 0.0;
  Json phases = Json::array();
  const auto add_phase = [&](const std::string& name, double total_ms, double total_calls) {
    sum_ms += per_step(total_ms);
    phases.push_back({{"name", name},
                      {"ms", per_step(total_ms)},
                      {"percent", 100.0 * per_step(total_ms) / device_ms},
                      {"ops", per_step(total_calls)}});
  };
  for (const PhaseTime& p : phases_) add_phase(p.name, p.ms, static_cast<double>(p.calls));
  add_phase("idle", idle_ms_, 0.0);

  const auto kernel_rows = [&](const char* key, const std::map<std::string, KernelTime>& times) {
    Json rows = Json::array();
    for (const auto& [name, time] : by_time(times)) {
      Json row = {{key, name}};
      if (time.kind != name) row["type"] = time.kind;
      row.update({{"ms", per_step(time.ms)},
                  {"percent", 100.0 * time.ms / busy_ms_},
                  {"count", per_step(static_cast<double>(time.count))}});
      rows.push_back(row);
    }
    return rows;
  };

  double floor_ms = 0.0, bytes = 0.0, flops = 0.0;
  for (const auto& [name, op] : ops_) {
    floor_ms += op.floor_ms;
    bytes += op.bytes;
    flops += op.flops;
  }
  const double gap_ms = device_ms - per_step(floor_ms);
  Json ops = Json::array();
  for (const auto& [name, op] : by_time(ops_)) {
    const double ms = per_step(op.ms), floor = per_step(op.floor_ms);
    ops.push_back({{"op", name},
                   {"type", name_of(op.kind)},
                   {"math", op.flops > 0.0 ? Json(name_of(op.math)) : Json()},
                   {"types", op.types},
                   {"count", per_step(static_cast<double>(op.count))},
                   {"ms", ms},
                   {"bytes", per_step(op.bytes)},
                   {"flops", per_step(op.flops)},
                   {"intensity", ratio(op.flops, op.bytes)},
                   {"gb_per_s", ratio(op.bytes * 1e-6, op.ms)},
                   {"tflops", ratio(op.flops * 1e-9, op.ms)},
                   {"floor_ms", floor},
                   {"percent_of_ceiling", ratio(100.0 * op.floor_ms, op.ms)},
                   {"percent_of_gap", ratio(100.0 * (ms - floor), gap_ms)}});
  }

  const double apart = std::abs(sum_ms - device_ms) / device_ms;
  const auto [least, most] = std::minmax({step_ms_, device_ms_, span_ms_});
  const double clocks_apart = (most - least) / most;
  return {{"times", source},
          {"steps", steps_},
          {"step_ms", per_step(step_ms_)},
          {"device_ms", device_ms},
          {"span_ms", per_step(span_ms_)},
          {"clocks_apart", clocks_apart},
          {"clocks_agree", clocks_apart <= kClocksApart},
          {"untraced_step_ms", untraced_ms ? Json(*untraced_ms) : Json()},
          {"phases", phases},
          {"phases_ms", sum_ms},
          {"phases_apart", apart},
          {"phases_add_up", apart <= kPhasesApart},
          {"kernel_types", kernel_rows("type", kinds_)},
          {"kernels", kernel_rows("name", kernels_)},
          {"ceilings", ceilings_.json()},
          {"bytes", per_step(bytes)},
          {"flops", per_step(flops)},
          {"floor_ms", per_step(floor_ms)},
          {"gap_ms", gap_ms},
          {"idle_percent_of_gap", ratio(100.0 * per_step(idle_ms_), gap_ms)},
          {"ops", ops}};
}

StepTracer::StepTracer(Ops& ops, const Config& config, int64_t first)
    : ops_(ops), first_(first), profile_(measure_ceilings(ops, config)), tracing_(ops) {}

void StepTracer::begin_step(int64_t step) {
  if (step + 1 >= first_) tracing_.begin_step();
}

void StepTracer::end_step(int64_t step, double step_ms) {
  if (step + 1 < first_) return;
  last_ = tracing_.end_step();
  if (step >= first_) profile_.add(last_, tracing_.calls(), step_ms, ops_.device().elapsed().ms);
}

Json StepTracer::json(std::optional<double> untraced_ms) const {
  return profile_.json(tracing_.source(), untraced_ms);
}

std::string timeline(const Tracing::Step& step, const std::vector<OpCall>& calls, const std::string& title) {
  Json events = {{{"ph", "M"}, {"name", "process_name"}, {"pid", kProcess}, {"args", {{"name", title}}}}};
  Tracks phases(events, "phases", 100), ops(events, "ops", 200), kernels(events, "kernels", 300);
  const std::vector<Span>& spans = step.times.spans;
  const auto phase_of = [&](const Span& span) {
    const OpCall* call = call_of(span, calls);
    return call ? call->phase : kUnknown;
  };
  /// The end of the stretch of alike spans that begins at `i`, and the time by which all of them are done.
  const auto stretch = [&](size_t i, auto alike) {
    size_t end = i;
    int64_t done = 0;
    for (; end < spans.size() && alike(spans[end]); ++end) done = std::max(done, spans[end].end_ns);
    return std::pair(end, done);
  };
  int64_t before = 0;  // the end of the phase before: no phase begins earlier
  for (size_t i = 0; i < spans.size();) {
    const std::string phase = phase_of(spans[i]);
    const auto [end, done] = stretch(i, [&](const Span& span) { return phase_of(span) == phase; });
    if (done > before) phases.add(phase, "phase", std::max(before, spans[i].start_ns), done, Json::object());
    before = std::max(before, done);
    i = end;
  }
  for (size_t i = 0; i < spans.size();) {
    const auto [end, done] = stretch(i, [&](const Span& span) { return span.call == spans[i].call; });
    if (const OpCall* call = call_of(spans[i], calls))
      ops.add(
          call->op, name_of(call->kind), spans[i].start_ns, done,
          {{"phase", call->phase}, {"bytes", call->bytes}, {"flops", call->flops}, {"types", call->types}});
    i = end;
  }
  for (const Span& span : spans) {
    const OpCall* call = call_of(span, calls);
    if (!span.kernel.empty())
      kernels.add(short_kernel_name(span.kernel), call ? name_of(call->kind) : kUnknown, span.start_ns,
                  span.end_ns, {{"op", call ? call->op : kUnknown}, {"phase", phase_of(span)}});
  }
  return Json{{"kind", "timeline"}, {"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump() + "\n";
}

Json stretches(const Tracing::Step& step, const std::vector<OpCall>& calls) {
  constexpr int64_t kNoGapNs = 5'000;
  const auto ms = [](int64_t ns) { return std::round(static_cast<double>(ns) * 1e-3) * 1e-3; };
  Json rows = Json::array();
  int64_t start = 0, done = 0;
  for (const Span& span : step.times.spans) {
    if (span.end_ns <= done) continue;
    const OpCall* call = call_of(span, calls);
    const std::string phase = call ? call->phase : kUnknown, type = call ? name_of(call->kind) : kUnknown;
    const bool goes_on = !rows.empty() && span.start_ns - done <= kNoGapNs && rows.back()["phase"] == phase &&
                         rows.back()["type"] == type;
    if (!goes_on) {
      start = std::max(span.start_ns, done);
      rows.push_back({{"phase", phase}, {"type", type}, {"start_ms", ms(start)}});
    }
    done = span.end_ns;
    rows.back()["ms"] = ms(done - start);
  }
  return rows;
}

std::string short_kernel_name(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0 || !name.starts_with("_Z")) return name;
  std::string text =
      std::regex_replace(demangled.get(), std::regex(R"(\(anonymous namespace\)::|\w+::)"), "");
  int depth = 0;  // of template arguments
  size_t begin = 0, end = 0;
  for (; end < text.size() && !(depth == 0 && text[end] == '('); ++end) {
    depth += text[end] == '<' ? 1 : text[end] == '>' ? -1 : 0;
    if (depth == 0 && text[end] == ' ') begin = end + 1;  // behind the return type
  }
  return text.substr(begin, end - begin);
}

}  // namespace stepladder
