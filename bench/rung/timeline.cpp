#include "bench/rung/timeline.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/plan/ladder.h"
#include "bench/rung/profile.h"
#include "model/error.h"

namespace stepladder {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUnknown = "other";  // phase and type of a span without a known op
constexpr int64_t kProcess = 1;
constexpr int64_t kNoGapNs = 5'000;

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

}  // namespace

std::string timeline(const Tracing::Step& step, const std::vector<OpCall>& calls, const std::string& title) {
  Json events = {{{"ph", "M"}, {"name", "process_name"}, {"pid", kProcess}, {"args", {{"name", title}}}}};
  Tracks phases(events, "phases", 100), ops(events, "ops", 200), kernels(events, "kernels", 300);
  const std::vector<Span>& spans = step.times.spans;
  const auto call_of = [&](const Span& span) {
    return span.call < 0 ? nullptr : &calls.at(static_cast<size_t>(span.call));
  };
  const auto phase_of = [&](const Span& span) { return call_of(span) ? call_of(span)->phase : kUnknown; };
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
    if (const OpCall* call = call_of(spans[i]))
      ops.add(
          call->op, name_of(call->kind), spans[i].start_ns, done,
          {{"phase", call->phase}, {"bytes", call->bytes}, {"flops", call->flops}, {"types", call->types}});
    i = end;
  }
  for (const Span& span : spans) {
    const OpCall* call = call_of(span);
    if (!span.kernel.empty())
      kernels.add(short_kernel_name(span.kernel), call ? name_of(call->kind) : kUnknown, span.start_ns,
                  span.end_ns, {{"op", call ? call->op : kUnknown}, {"phase", phase_of(span)}});
  }
  return Json{{"kind", "timeline"}, {"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump() + "\n";
}

Json stretches(const Tracing::Step& step, const std::vector<OpCall>& calls) {
  const auto ms = [](int64_t ns) { return std::round(static_cast<double>(ns) * 1e-3) * 1e-3; };
  Json rows = Json::array();
  int64_t start = 0, done = 0;
  for (const Span& span : step.times.spans) {
    if (span.end_ns <= done) continue;
    const OpCall* call = span.call < 0 ? nullptr : &calls.at(static_cast<size_t>(span.call));
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

}  // namespace stepladder
