#include "bench/run/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <deque>
#include <filesystem>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "bench/base/peak.h"
#include "bench/base/statistics.h"
#include "bench/base/text.h"
#include "bench/run/child.h"
#include "bench/run/energy.h"
#include "bench/run/events.h"
#include "bench/run/hub.h"
#include "bench/run/ranks.h"
#include "model/config.h"
#include "model/flops.h"

namespace stepladder {
namespace {

/// A report that makes no sense: the run's status is crash, its reason this.
struct BadReport : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The same of a field of an event, as what the event has: "no number lr". ChildReport::take() says which
/// event.
struct BadField : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Event = nlohmann::json;

constexpr double kLeastMs = 1e-6;  // of a step: a nanosecond, which is what clocks count

/// Without digits that nobody measured: energy counters count microjoules at best.
std::optional<double> rounded_joules(std::optional<double> joules) {
  if (joules) *joules = std::round(*joules * 1e6) / 1e6;
  return joules;
}

/// The same: clocks count nanoseconds, the rest are floats.
Step as_measured(Step step) {
  step.step_ms = std::round(step.step_ms * 1e6) / 1e6;
  if (!(step.step_ms > 0.0 && std::isfinite(step.step_ms)))
    throw BadReport(cat("step ", step.step, " took no time that a clock could tell"));
  for (auto* number : {&step.device_ms, &step.cycles, &step.loss, &step.grad_norm, &step.lr})
    if (*number) *number = of_float(**number);
  return step;
}

template <class T>
bool is(const Event& value) {
  if constexpr (std::is_same_v<T, bool>) return value.is_boolean();
  if constexpr (std::is_same_v<T, double>) return value.is_number();
  if constexpr (std::is_same_v<T, int64_t>)
    return value.is_number_integer() &&
           (!value.is_number_unsigned() || std::in_range<int64_t>(value.get<uint64_t>()));
  if constexpr (std::is_same_v<T, std::string>) return value.is_string();
  if constexpr (std::is_same_v<T, Event>) return value.is_object();
  return value.is_array() && std::all_of(value.begin(), value.end(), is<std::string>);
}

template <class T>
const char* kind() {
  if constexpr (std::is_same_v<T, bool>) return "true or false ";
  if constexpr (std::is_same_v<T, double>) return "number ";
  if constexpr (std::is_same_v<T, int64_t>) return "whole number ";
  if constexpr (std::is_same_v<T, std::string>) return "string ";
  if constexpr (std::is_same_v<T, Event>) return "object ";
  return "list of strings ";
}

/// A field of an event; nothing where it is missing or null. Throws BadField where it is of another type.
template <class T>
std::optional<T> value_if(const Event& event, const char* key) {
  const auto found = event.find(key);
  if (found == event.end() || found->is_null()) return std::nullopt;
  if (!is<T>(*found)) throw BadField(cat("no ", kind<T>(), key));
  return found->get<T>();
}

/// The same, known to be there.
template <class T>
T value_at(const Event& event, const char* key) {
  if (const auto value = value_if<T>(event, key)) return *value;
  throw BadField(cat("no ", kind<T>(), key));
}

/// A number that a rung may have measured: no float is larger, and no table could show it.
double plausible(double number, const char* key) {
  if (std::abs(number) > std::numeric_limits<float>::max())
    throw BadField(cat("a ", key, " of ", number_text(number)));
  return number;
}

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// Milliseconds of a part of a run.
double duration_at(const Event& event, const char* key, double timeout_s) {
  const auto ms = value_at<double>(event, key);
  if (!(ms >= 0.0 && ms <= timeout_s * 1e3))
    throw BadField(cat("a ", key, " of ", number_text(ms), " ms, of a run that may take ",
                       number_text(timeout_s), " s"));
  return ms;
}

int64_t bytes_at(const Event& event, const std::string& key) {
  const auto bytes = value_at<int64_t>(event, key.c_str());
  if (bytes < 0) throw BadField(cat("memory of ", bytes, " bytes: ", printable(key, 60)));
  return bytes;
}

/// Whether its ranks are started for it.
bool has_ranks(const RunRequest& request) {
  return request.devices > 1 && !request.program.starts_ranks();
}

/// Whether they report from afar.
bool has_launcher(const RunRequest& request) {
  return has_ranks(request) && !request.launcher.words.empty();
}

/// Whether its command starts several ranks, which then write to paths.
bool command_starts_ranks(const RunRequest& request) {
  return request.devices > 1 && request.program.starts_ranks();
}

EnergyDue energy_due(const RunRequest& request) {
  return {request.warmup, request.steps, request.eval_every};
}

/// A loss that was not reached is no failure.
bool is_failure(int64_t exit_status, const RunRequest& request) {
  return exit_status != 0 && !(exit_status == kExitInconclusive && request.until_loss);
}

/// What is wrong with a line that is no event, and where.
std::string around_error(std::string_view line) {
  constexpr size_t kBefore = 30, kShown = 60;
  size_t at = 0;
  try {
    [[maybe_unused]] const Event whole = Event::parse(line);
  } catch (const Event::parse_error& e) {
    at = e.byte;
  } catch (const Event::exception&) {  // such as a number that is too large
  }
  const size_t begin = at > kBefore && line.size() > kShown ? at - kBefore : 0;
  std::string lower_case(line.substr(begin, kShown));
  std::ranges::transform(lower_case, lower_case.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool not_finite =
      lower_case.find("nan") != lower_case.npos || lower_case.find("inf") != lower_case.npos;
  return cat(": '", begin > 0 ? "..." : "", printable(line.substr(begin), kShown), "'",
             not_finite ? "; a number that is not finite is null" : "");
}

/// What a child's events come to.
class ChildReport {
 public:
  ChildReport(Run& run, const RunRequest& request, size_t rank,
              const std::function<void(const Step&)>& on_step)
      : run_(run),
        request_(request),
        rank_(static_cast<int64_t>(rank)),
        first_(rank == 0),
        launched_(has_launcher(request)),
        on_step_(on_step) {}

  /// Throws BadReport.
  void take(std::string_view line) {
    constexpr size_t kMaxStep = 1 << 12, kMaxOther = 1 << 18;  // bytes; a profile has more
    constexpr size_t kMaxBetween = 8 << 20;                    // of others between two steps
    const Event event = parse_event(line);
    if (event.is_null()) throw BadReport("not an event on its event stream" + around_error(line));
    const std::string kind = event["event"];
    if (kind != "profile" && line.size() > (kind == "step" ? kMaxStep : kMaxOther))
      throw BadReport(cat("an event of ", line.size(), " bytes on its event stream"));
    between_steps_ = kind == "step" ? 0 : between_steps_ + line.size();
    if (between_steps_ > kMaxBetween)
      throw BadReport(cat("it floods its event stream, the last event is '", printable(kind, 60), "'"));
    if (ended && (kind == "step" || kind == "eval" || kind == "end"))
      throw BadReport(cat("an event after its end: ", kind));
    const std::string of_step = kind == "step" ? cat(" of step ", run_.steps.size()) : "";
    try {
      take(kind, event);
    } catch (const BadField& e) {
      throw BadReport(cat("its event '", kind, "'", of_step, " has ", e.what()));
    }
  }

  struct Failure {
    std::string status, reason;
  };
  bool failed() const { return is_failure(exit_status.value_or(0), request_); }
  bool started = false, ended = false;
  double startup_ms = 0.0;
  Memory memory;
  std::optional<double> val_loss;
  std::optional<Compile> compile;
  std::optional<int64_t> skipped_steps;
  std::optional<Failure> error;
  std::optional<int64_t> exit_status;  // as a shell has it: 128 + n for signal n
  std::string stderr_tail;             // of a rank elsewhere
  std::string host, device;
  double from_first_ms = 0.0;  // to the last step, as they were told

  /// Of its device, besides what each step used; nothing where nobody reads it.
  struct Energy {
    std::optional<bool> shared;
    std::string unknown;
  };
  std::optional<Energy> energy() const {
    if (!request_.telemetry || !started) return std::nullopt;
    return meter_ ? Energy{meter_->shared(), meter_->unknown()} : unmetered_;
  }

 private:
  /// Throws BadReport and BadField. What it does not know is left alone.
  void take(const std::string& kind, const Event& event) {
    if (kind == "start")
      start(event);
    else if (kind == "step")
      step(event);
    else if (kind == "eval")
      evaluated(event);
    else if (kind == "profile" && request_.program.ours())
      run_.profile = value_at<Event>(event, "profile");
    else if (kind == "end")
      end(event);
    else if (kind == "exit" && has_ranks(request_))  // from job_of_ranks()
      exited(event);
    else if (kind == "measured" && launched_)
      measured(event);
    else if (kind == "energy" && launched_)
      unmetered_ = {value_if<bool>(event, "shared"), printable(value_at<std::string>(event, "unknown"), 300)};
    else if (kind == "error")
      error = {value_at<std::string>(event, "status"),
               printable(value_at<std::string>(event, "reason"), 500)};
  }

  static std::optional<double> number_if(const Event& event, const char* key) {
    const auto number = value_if<double>(event, key);
    return number ? std::optional(plausible(*number, key)) : std::nullopt;
  }
  /// A quantity that is never below zero.
  static std::optional<double> least_zero_if(const Event& event, const char* key) {
    const auto value = number_if(event, key);
    if (value && *value < 0.0) throw BadField(cat("a ", key, " of ", number_text(*value)));
    return value;
  }

  void start(const Event& event) {
    if (started)
      throw BadReport(command_starts_ranks(request_)
                          ? cat("a second start: two ranks write to STEPLADDER_EVENTS_", rank_,
                                "; RANK has to tell each which it is")
                          : "a second start");
    const auto protocol = value_if<int64_t>(event, "protocol").value_or(kProtocol);
    if (protocol > kProtocol)
      throw BadReport(
          cat("it speaks version ", protocol, " of the protocol, this stepladder up to ", kProtocol));
    if (request_.program.ours()) check_identity(event);
    run_.backend = value_if<std::string>(event, "backend").value_or(request_.backend);
    const Event config = config_of(event);
    // One that did not find the others would train alone, and its speed pass for that of all.
    const auto rank = value_if<int64_t>(event, "rank").value_or(rank_),
               world = value_if<int64_t>(config, "world_size").value_or(request_.devices);
    if (rank != rank_ || world != request_.devices)
      throw BadReport(
          cat("it is rank ", rank, " of ", world, ", was started as rank ", rank_, " of ", request_.devices));
    constexpr int64_t kMost = int64_t{1} << 30;  // sequences, tokens: their product is a whole number too
    for (const char* key : {"B", "T"}) {
      const auto told = value_at<int64_t>(config, key), asked = run_.config.value(key, told);
      if (told != asked)
        throw BadReport(cat("it trains with ", key, "=", told, ", was asked for ", key, "=", asked,
                            request_.program.ours()
                                ? ""
                                : cat(": give its command {", *key == 'B' ? "batch" : "seq",
                                      "}, or its ladder's workload that number")));
      if (told < 1 || told > kMost) throw BadField(cat(key, "=", told, ", which is no size of a batch"));
    }
    const auto model = value_if<std::string>(config, "model");
    if (model && request_.model_is_told && *model != run_.config["model"])
      throw BadReport(cat("it trains ", printable(*model, 60), ", was asked for ",
                          run_.config["model"].get<std::string>()));
    for (const auto& [key, value] : config.items())
      if (!run_.config.contains(key)) run_.config[key] = value;
    startup_ms = value_if<double>(event, "startup_ms") ? duration_at(event, "startup_ms", request_.timeout_s)
                                                       : ms_since(created_);
    host = value_if<std::string>(event, "host").value_or("");
    if (const auto its = value_if<Event>(event, "device"))  // llm.c does not tell its device's uuid
      device = value_if<std::string>(*its, "uuid").value_or("");
    if (request_.telemetry && !launched_) {
      // Its own backend, whatever the others run on.
      const auto metered =
          metered_device(run_.backend, device, request_.devices == 1 ? request_.device.uuid : "");
      telemetry_ = &(*request_.telemetry)[metered.value_or(request_.device.uuid)];
      if (metered)
        meter_.emplace(*telemetry_);
      else
        unmetered_.unknown = kDeviceNotTold;
    }
    const Event memory_by_name = value_if<Event>(event, "memory_by_name").value_or(Event::object());
    for (const auto& [name, bytes] : memory_by_name.items())
      if (bytes.is_number_integer()) memory.by_name[name] = bytes_at(memory_by_name, name);
    started = true;
  }

  /// What a results file may hold of it. Whether ranks train each by itself is the harness's to say.
  Event config_of(const Event& event) const {
    auto config = value_at<Event>(event, "config");
    for (const char* key : {"world_size", "threads", "independent_ranks", "apart"})
      if (config.contains(key) && config[key].is_null()) config.erase(key);
    for (const auto& [key, value] : config.items())
      if (value.is_structured() && config_depth(value) >= kMaxConfigDepth)
        throw BadReport(cat("its config's ", printable(key, 60), " is nested too deep"));
    if (const auto threads = value_if<int64_t>(config, "threads"); threads && *threads < 1)
      throw BadField(cat("threads=", *threads, " in its config"));
    const bool independent = run_.config.value("independent_ranks", false);
    for (const char* key : {"independent_ranks", "apart"})  // as files of schema 1 call it
      if (config.contains(key) && config[key] != independent)
        throw BadReport(cat("its config has ", key, "=", printable(config[key].dump(), 60),
                            ", which is the harness's to say: leave it out"));
    return config;
  }

  /// That it is the executable of the plan.
  void check_identity(const Event& event) const {
    const Program& program = request_.program;
    const auto variant = value_at<std::string>(event, "variant");
    if (variant != (program.calls_itself.empty() ? program.variant : program.calls_itself))
      throw BadReport(cat("it is ", printable(variant, 60)));
    if (value_at<std::string>(event, "source_hash") != request_.source_hash)
      throw Error(cat(program.variant,
                      " was built anew since its first run: measure again from the start (run: --overwrite)"),
                  kExitNotComparable);
  }

  void step(const Event& event) {
    if (!started) throw BadReport("a step before its start");
    Step step;
    step.step = value_at<int64_t>(event, "step");
    if (step.step != static_cast<int64_t>(run_.steps.size()))
      throw BadReport(cat("step ", step.step, " where step ", run_.steps.size(), " was due"));
    if (step.step >= request_.steps)
      throw BadReport(cat("more than the ", request_.steps, " steps asked for"));
    step.step_ms = value_at<double>(event, "step_ms");
    if (!(step.step_ms > 0.0)) throw BadReport(cat("step ", step.step, " took ", step.step_ms, " ms"));
    if (step.step_ms < kLeastMs) throw BadReport(cat("step ", step.step, " took less than a nanosecond"));
    duration_at(event, "step_ms", request_.timeout_s);
    step.device_ms = least_zero_if(event, "device_ms");
    step.cycles = number_if(event, "cycles");
    if (step.cycles && *step.cycles < 1.0)
      throw BadField(
          cat("a cycles of ", number_text(*step.cycles), ", where null says that none are counted"));
    step.loss = number_if(event, "loss");
    step.grad_norm = least_zero_if(event, "grad_norm");
    step.lr = number_if(event, "lr");
    if (request_.program.ours() || !first_)
      step.device = device_state(event);
    else if (telemetry_)
      step.device = telemetry_->sample();
    if (meter_) step.energy_j = rounded_joules(meter_->after_step(energy_due(request_).after(step.step + 1)));
    if (first_ && !event.contains("loss"))
      throw BadReport(cat("step ", step.step, " without its loss, which is null where it is not finite"));
    if (request_.until_loss && request_.eval_every > 0 && step.step > 2 * request_.eval_every &&
        run_.evaluations.empty() && first_)
      throw BadReport(cat("no validation loss came in ", step.step,
                          " steps, where --until-loss waits for one: ",
                          "an eval event, of the Python module run.evaluated()"));
    run_.steps.push_back(as_measured(step));
    if (step.step == 0) first_step_ = std::chrono::steady_clock::now();
    from_first_ms = ms_since(first_step_);
    if (first_) on_step_(step);
  }

  static DeviceState device_state(const Event& event) {
    return {value_if<int64_t>(event, "sm_mhz"), value_if<int64_t>(event, "memory_mhz"),
            number_if(event, "power_w"), value_if<int64_t>(event, "temperature_c"),
            value_if<std::vector<std::string>>(event, "throttle")};
  }

  /// What was read of a device elsewhere, after its last step.
  void measured(const Event& event) {
    if (run_.steps.empty()) throw BadReport("a reading of its device before its first step");
    Step& last = run_.steps.back();
    last.energy_j = rounded_joules(number_if(event, "energy_j"));
    if (event.contains("sm_mhz") || event.contains("power_w")) last.device = device_state(event);
  }

  void exited(const Event& event) {
    exit_status = value_at<int64_t>(event, "status");
    stderr_tail = value_if<std::string>(event, "stderr").value_or("");
  }

  void evaluated(const Event& event) {
    val_loss = number_if(event, "val_loss");
    if (!event.contains("val_loss")) throw BadReport("an evaluation without its val_loss");
    if (meter_) meter_->after_evaluation();
    const int64_t done = std::ssize(run_.steps);
    if (const auto step = value_at<int64_t>(event, "step"); step != done)
      throw BadReport(cat("an evaluation after ", step, " steps, where ", done, " are done"));
    if (!run_.evaluations.empty() && run_.evaluations.back().step == done)
      throw BadReport(cat("a second evaluation after step ", done));
    run_.evaluations.push_back({done, val_loss ? std::optional(of_float(*val_loss)) : std::nullopt});
  }

  void end(const Event& event) {
    ended = true;
    const bool ours = request_.program.ours();
    const Event bytes = ours ? value_at<Event>(event, "memory_bytes")
                             : value_if<Event>(event, "memory_bytes").value_or(Event::object());
    for (auto [key, peak] :
         {std::pair("live_peak", &memory.live_peak), std::pair("reserved_peak", &memory.reserved_peak),
          std::pair("process_peak", &memory.process_peak)})
      if (ours || value_if<int64_t>(bytes, key)) *peak = bytes_at(bytes, key);
    if (!ours) return;
    if (event.contains("compile")) {
      const Event spent = value_at<Event>(event, "compile");
      compile = {
          duration_at(spent, "search_ms", request_.timeout_s),
          duration_at(spent, "capture_ms", request_.timeout_s), value_at<int64_t>(spent, "searched"),
          value_at<int64_t>(spent, "from_cache"),
          spent.contains("algorithms") ? printable(value_at<std::string>(spent, "algorithms"), 60) : ""};
    }
    if (event.contains("skipped_steps")) skipped_steps = value_at<int64_t>(event, "skipped_steps");
  }

  Run& run_;
  const RunRequest& request_;
  size_t between_steps_ = 0;  // bytes of events since the last step
  const int64_t rank_;
  const bool first_;  // rank 0, which is on the device that is sampled and is heard of
  const bool launched_;
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point first_step_;
  Telemetry* telemetry_ = nullptr;
  std::optional<EnergyMeter> meter_;
  Energy unmetered_{{}, "its device's energy was not read"};  // without a meter here
  const std::function<void(const Step&)>& on_step_;
};

/// Throws BadReport where the steps took longer than the process that made them.
void check_steps(const Run& part, double wall_ms) {
  constexpr double kRounding = 1.01;  // of a peer's log
  double sum = 0.0;
  for (const Step& step : part.steps) sum += step.step_ms;
  if (sum > wall_ms * kRounding)
    throw BadReport(
        cat("its steps add up to ", fixed(sum, 0), " ms, its process ran for ", fixed(wall_ms, 0)));
}

struct Ending {
  Status status = Status::ok;
  std::string reason;
};

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? cat("SIG", name) : cat("signal ", signal);
}

Ending reported_failure(const ChildReport::Failure& failure) {
  for (Status status : {Status::oom, Status::unsupported, Status::diverged})
    if (failure.status == name_of(status)) return {status, failure.reason};
  return {Status::crash, failure.reason};
}

/// Whether it has trained to the loss that was to be reached.
bool reached(const Run& run, const RunRequest& request) {
  if (!request.until_loss || run.evaluations.empty()) return false;
  const Evaluation& last = run.evaluations.back();
  return last.step == std::ssize(run.steps) && last.val_loss && *last.val_loss <= *request.until_loss;
}

/// Of one process. Only rank 0 has the loss.
Ending ending_of(const ChildEnd& end, const ChildReport& report, const Run& run, const RunRequest& request,
                 size_t rank) {
  const std::string last = end.last_words();
  const auto crash = [&](const auto&... what) { return Ending{Status::crash, cat(what..., last)}; };
  switch (end.how) {
    case ChildEnd::How::timed_out:
      if (report.error) return reported_failure(*report.error);
      return {Status::timeout, cat("killed after ", number_text(request.timeout_s), " s at step ",
                                   run.steps.size(), " of ", request.steps, "; --timeout allows more")};
    case ChildEnd::How::signalled:
      return crash("killed by ", signal_name(end.code), " at step ", run.steps.size(), " of ", request.steps);
    case ChildEnd::How::stopped:
      return crash("stopped by a signal at step ", run.steps.size(), " of ", request.steps);
    case ChildEnd::How::refused:
      return crash("too long a line on its event stream");
    case ChildEnd::How::exited:
      break;
  }
  if (end.code == kExitUsage && request.program.ours())
    throw InputError(report.error ? report.error->reason
                                  : cat(request.program.variant, " refused its options", last));
  if (report.error) return reported_failure(*report.error);
  if (is_failure(end.code, request)) return crash("exit status ", end.code);
  if (!report.started)
    return command_starts_ranks(request)
               ? crash("it told nothing: no start came at the path that STEPLADDER_EVENTS_", rank, " names")
               : crash("it told nothing: no start came on the file descriptor that STEPLADDER_EVENTS names");
  if (!report.ended)
    return crash("ended without reporting its end, after ", run.steps.size(), " of ", request.steps,
                 " steps");
  if (static_cast<int64_t>(run.steps.size()) != request.steps && !reached(run, request))
    return crash("reported ", run.steps.size(), " of ", request.steps, " steps");
  if (std::ssize(run.steps) <= request.warmup)
    return crash("reached the loss after ", run.steps.size(), " steps, of which --warmup ", request.warmup,
                 " leaves none to time: lower it, or --until-loss");
  for (const Step& step : run.steps)
    if (rank == 0 && !step.loss)
      return {Status::diverged, cat("step ", step.step, ": the loss is not finite")};
  return {};
}

/// Marks the warm-up and sums up the rest. Throws std::logic_error on an MFU over 1.
Summary summarize(Run& run, const ChildReport& report, const RunRequest& request) {
  std::vector<double> ms;
  for (const Step& step : run.steps) ms.push_back(step.step_ms);
  const size_t warmup = warmup_steps(ms, static_cast<size_t>(request.warmup));
  for (size_t i = 0; i < warmup; ++i) run.steps[i].warmup = true;
  const std::span<const double> timed = std::span(ms).subspan(warmup);

  Summary summary;
  summary.median_step_ms = median(timed);
  summary.p10_step_ms = quantile(timed, 0.1);
  summary.p90_step_ms = quantile(timed, 0.9);
  summary.first_step_ms = ms.front();
  summary.startup_ms = report.startup_ms;
  summary.warmup_steps = static_cast<int64_t>(warmup);
  if (!run.evaluations.empty() && run.evaluations.back().step == std::ssize(run.steps))
    summary.val_loss = report.val_loss;
  summary.memory = report.memory;
  summary.compile = report.compile;
  summary.skipped_steps = report.skipped_steps;
  std::vector<double> cycles;
  for (const Step& step : std::span(run.steps).subspan(warmup)) {
    if (step.cycles) cycles.push_back(*step.cycles);
    if (const auto throttled = step.device.throttled())
      summary.throttled_steps = summary.throttled_steps.value_or(0) + *throttled;
  }
  if (!cycles.empty()) summary.cycles = median(cycles);
  if (summary.throttled_steps)
    summary.throttled = 2 * *summary.throttled_steps > std::ssize(run.steps) - summary.warmup_steps;

  const auto devices = static_cast<double>(request.devices);
  // Of one's own trainer B has all micro-batches.
  const double micro_batches = request.program.ours() ? run.config.value("accumulate", 1.0) : 1.0;
  const double tokens =
      run.config.at("B").get<double>() * run.config.at("T").get<double>() * micro_batches * devices;
  summary.tokens_per_second = tokens / (summary.median_step_ms * 1e-3);
  if (request.until_loss)
    summary.to_loss = {.loss = *request.until_loss,
                       .reached = reached(run, request),
                       .steps = std::ssize(run.steps),
                       .seconds = std::accumulate(ms.begin(), ms.end(), 0.0) * 1e-3,
                       .tokens = tokens * static_cast<double>(ms.size()),
                       .joules = {}};
  const bool between = !request.until_loss;  // where evaluations lie between its steps
  if (!request.program.ours() && between && run.steps.size() > 1 && report.from_first_ms > 0.0)
    summary.covered = std::min(1.0, std::accumulate(ms.begin() + 1, ms.end(), 0.0) / report.from_first_ms);
  const std::string model = run.config.at("model");
  if (const auto& models = Config::names(); std::ranges::find(models, model) == models.end()) return summary;
  Config config = Config::named(model);
  config.B = run.config.at("B");
  config.T = run.config.at("T");
  auto peak = gemm_peak(request.device, request.program.math);
  if (peak) *peak *= devices;
  summary.mfu_nanogpt = mfu(flops_per_token_nanogpt(config), summary.tokens_per_second, peak);
  summary.mfu_llmc = mfu(flops_per_token_llmc(config), summary.tokens_per_second, peak);
  return summary;
}

// ---- several devices

/// The ranks' runs as one: rank 0's, with the slowest rank's time for each step.
void merge(Run& run, const std::vector<Run>& parts, const std::deque<ChildReport>& reports) {
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const Run& part = parts[rank];
    const ChildReport& report = reports[rank];
    Rank& row = run.ranks.emplace_back();
    row.rank = static_cast<int64_t>(rank);
    row.host = report.host;
    row.device = report.device;
    row.memory = report.memory;
    row.memory.by_name.clear();  // as rank 0's
    for (const Step& step : part.steps) row.step_ms.push_back(step.step_ms);
    for (size_t i = 0; i < std::min(run.steps.size(), part.steps.size()); ++i) {
      Step& step = run.steps[i];
      step.step_ms = std::max(step.step_ms, part.steps[i].step_ms);
      step.cycles = std::max(step.cycles, part.steps[i].cycles);
      if (part.steps[i].device.throttled().value_or(false)) step.device = part.steps[i].device;
    }
  }
}

/// The energy of all devices, each counted once, and whether another process used one of them.
void add_energy(Summary& summary, std::vector<Rank>& ranks, const std::vector<Run>& parts,
                const std::deque<ChildReport>& reports) {
  std::set<std::pair<std::string, std::string>> counted;  // ranks on the CPU of a machine have the same
  double joules = 0.0;
  std::optional<double> to_loss = 0.0;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const auto energy = reports[rank].energy();
    if (!energy) return;
    if (energy->shared) summary.shared = summary.shared.value_or(false) || *energy->shared;
    if (!counted.emplace(reports[rank].host, reports[rank].device).second) continue;
    const StepEnergy used = energy_of(parts[rank].steps, static_cast<size_t>(summary.warmup_steps));
    if (!used.joules && summary.joules_unknown.empty())
      summary.joules_unknown = energy->unknown.empty() ? used.unknown : energy->unknown;
    joules += used.joules.value_or(0.0);
    if (!ranks.empty()) ranks[rank].joules = used.joules;
    const auto& in_all = parts[rank].steps.back().energy_j;
    to_loss = to_loss && in_all ? std::optional(*to_loss + *in_all) : std::nullopt;
  }
  if (summary.joules_unknown.empty()) summary.joules = joules;
  if (summary.to_loss) summary.to_loss->joules = to_loss;
}

void merge(Summary& summary, std::vector<Rank>& ranks, const std::vector<Run>& parts) {
  for (Rank& rank : ranks) {
    for (auto peak : {&Memory::live_peak, &Memory::reserved_peak, &Memory::process_peak})
      summary.memory.*peak = std::max(summary.memory.*peak, rank.memory.*peak);
    std::vector<double> mhz, watts;
    const std::span<const Step> steps = parts[static_cast<size_t>(rank.rank)].steps;
    for (const Step& step : steps.subspan(static_cast<size_t>(summary.warmup_steps))) {
      if (step.device.sm_mhz) mhz.push_back(static_cast<double>(*step.device.sm_mhz));
      if (step.device.power_w) watts.push_back(*step.device.power_w);
    }
    if (!mhz.empty()) rank.sm_mhz = median(mhz);
    if (!watts.empty()) rank.power_w = median(watts);
  }
}

/// What is started for a run; `hub` is where its ranks report from afar, if they do.
Job job_of(const RunRequest& request, std::optional<Hub>& hub) {
  const std::string channel = std::to_string(static_cast<int>(Channel::events));
  const Program& program = request.program;
  Job::Process process{.command = program.ours() ? program.command : request.command,
                       .environment = request.environment,
                       .folder = program.folder};
  if (program.ours()) {
    process.command.insert(process.command.end(), request.arguments.begin(), request.arguments.end());
    process.command.insert(process.command.end(), {"--events", channel});
  } else if (!program.starts_ranks()) {
    process.environment.push_back("STEPLADDER_EVENTS=" + channel);
  }
  if (hub) {
    AgentOptions rank{
        .folder = process.folder.empty() ? std::filesystem::current_path().string() : process.folder,
        .backend = request.backend,
        .clocks = !program.ours(),
        .due = energy_due(request)};
    if (!process.environment.empty()) rank.command = {"env"};  // which a launcher might not pass on
    for (const auto* words : {&process.environment, &process.command})
      rank.command.insert(rank.command.end(), words->begin(), words->end());
    return job_of_launcher(request.launcher, std::move(rank), request.devices, *hub);
  }
  if (program.starts_ranks()) return job_of_ranks(process, request.devices, Starter::command);
  if (request.devices == 1) return {.processes = {process}};
  return job_of_ranks(process, request.devices,
                      program.through_mpi(request.backend) ? Starter::mpirun : Starter::harness);
}

/// The rank that told why, where all that `rank` tells is that another one died. One that was stopped tells
/// that too, once it goes on: the rank that missed it has ended the job by then.
size_t better_informed(size_t rank, const std::deque<ChildReport>& reports) {
  const auto tells_more = [](const ChildReport& report) {
    return report.error && !report.error->reason.ends_with(" died");  // model/rendezvous.cpp
  };
  if (!reports[rank].error || tells_more(reports[rank])) return rank;
  const auto found = std::ranges::find_if(reports, tells_more);
  return found == reports.end() ? rank : static_cast<size_t>(found - reports.begin());
}

/// The first rank that told of an error.
std::optional<size_t> first_with_error(const std::deque<ChildReport>& reports) {
  for (size_t rank = 0; rank < reports.size(); ++rank)
    if (reports[rank].error) return rank;
  return std::nullopt;
}

/// Of those that have not told their end, the one with the fewest steps.
size_t furthest_behind(const std::deque<ChildReport>& reports, const std::vector<Run>& parts) {
  size_t rank = 0;
  for (size_t r = 1; r < reports.size(); ++r)
    if (!reports[r].ended && (reports[rank].ended || parts[r].steps.size() < parts[rank].steps.size()))
      rank = r;
  return rank;
}

/// The rank to blame for the end of a job, with how it ended. `command` started the ranks itself: how that
/// ended is no rank's.
std::pair<size_t, ChildEnd> blamed(JobEnd job_end, const std::deque<ChildReport>& reports,
                                   const std::vector<Run>& parts, const std::vector<size_t>& exits,
                                   bool command) {
  ChildEnd& end = job_end.end;
  const auto status = [&](size_t rank) { return *reports[rank].exit_status; };
  const auto failed = [&](size_t rank) { return status(rank) != 0; };
  // A rank that a signal ended is to blame, even where others noticed and left first.
  auto rank = std::find_if(exits.begin(), exits.end(), [&](size_t r) { return status(r) > 128; });
  if (rank == exits.end()) rank = std::find_if(exits.begin(), exits.end(), failed);
  if (end.how == ChildEnd::How::timed_out)
    return {first_with_error(reports).value_or(furthest_behind(reports, parts)), end};
  if (end.how == ChildEnd::How::refused) return {job_end.process, end};
  if (const auto told = first_with_error(reports); told && command)
    return {better_informed(*told, reports), {ChildEnd::How::exited, kExitFailed, end.stderr_tail}};
  size_t first = rank == exits.end() ? job_end.process : *rank;
  if (rank == exits.end() && end.how == ChildEnd::How::exited && end.code == kExitOk && !reports[first].error)
    first = first_with_error(reports).value_or(first);  // which has not ended, nor have the others
  if (const size_t told = better_informed(first, reports); told != first)
    return {told, {ChildEnd::How::exited, kExitFailed, reports[told].stderr_tail}};
  if (rank == exits.end()) return {first, end};
  const bool signalled = status(*rank) > 128;
  const int code = static_cast<int>(signalled ? status(*rank) - 128 : status(*rank));
  const auto how = !signalled        ? ChildEnd::How::exited
                   : code == SIGSTOP ? ChildEnd::How::stopped
                                     : ChildEnd::How::signalled;
  return {*rank, {how, code, reports[*rank].stderr_tail}};
}

/// The last words of `stepladder rank` among those of a launcher, else the launcher's; " (words)", "" for
/// none.
std::string launcher_words(const ChildEnd& end) {
  constexpr std::string_view kError = "stepladder: error: ";
  if (const size_t at = end.stderr_tail.rfind(kError); at != std::string::npos)
    return ChildEnd{.stderr_tail = end.stderr_tail.substr(at, end.stderr_tail.find('\n', at) - at)}
        .last_words();
  return end.last_words();
}

/// A launcher, or a command that starts ranks, that ended before one of them had told how it did, where none
/// failed.
std::optional<std::pair<size_t, Ending>> left_by_launcher(const ChildEnd& end, const char* launcher,
                                                          const std::deque<ChildReport>& reports) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].exit_status || reports[rank].ended) continue;
    const bool by_signal = end.how == ChildEnd::How::signalled;
    return std::pair(rank, Ending{Status::crash, cat("the ", launcher, " ended before it did, ",
                                                     by_signal ? cat("killed by ", signal_name(end.code))
                                                               : cat("exit status ", end.code),
                                                     launcher_words(end))});
  }
  return std::nullopt;
}

/// A run as it is asked for, before any of it has happened.
Run asked_for(const RunRequest& request) {
  Run run;
  run.variant = request.program.variant;
  run.peer = request.program.peer;
  run.source_hash = request.source_hash;
  run.backend = request.backend;
  run.round = request.round;
  run.config = request.config;
  run.device = request.device.uuid;
  return run;
}

/// " (train.log is ...)", since who did not change a thing has a trainer that writes a file that its command
/// names.
std::string newest_source(const Program& program) {
  std::string newest;
  std::filesystem::file_time_type written;
  for (const std::string& source : program.sources) {
    std::error_code none;
    const auto time = std::filesystem::last_write_time(std::filesystem::path(program.folder) / source, none);
    if (!none && (newest.empty() || time > written)) newest = source, written = time;
  }
  return newest.empty() ? ""
                        : cat(" (", newest, " is its newest file: it may write none that its command names)");
}

}  // namespace

Run run_program(const RunRequest& request, const std::function<void(const Step&)>& on_step) {
  Run run = asked_for(request);
  run.reason = !request.unsupported.empty()
                   ? request.unsupported
                   : unsupported_reason(request.program.compute_capability, request.device);
  if (!run.reason.empty()) {
    run.status = Status::unsupported;
    return run;
  }
  if (!request.program.ours() && request.program.source_hash() != request.source_hash)
    throw Error(cat(request.program.variant, " was changed since its first run",
                    newest_source(request.program), ": measure again from the start (run: --overwrite)"),
                kExitNotComparable);

  const auto start = std::chrono::steady_clock::now();
  const size_t world = static_cast<size_t>(request.devices);
  std::vector<Run> parts(world, run);
  std::deque<ChildReport> reports;
  for (size_t rank = 0; rank < world; ++rank) reports.emplace_back(parts[rank], request, rank, on_step);
  std::vector<size_t> exits;  // ranks, as they ended
  size_t rank = 0;            // that decides
  std::optional<Hub> hub;
  Ending ending;
  std::string stderr_tail;
  try {
    const auto on_line = [&](size_t from, std::string_view line) {
      rank = from;
      reports[from].take(line);
      if (reports[from].exit_status) exits.push_back(from);
      return true;
    };
    if (has_launcher(request)) hub.emplace(world, request.launcher.interface, request.launcher.meet_s);
    Job job = job_of(request, hub);
    const auto any_failed = [&] {
      return std::ranges::any_of(reports, [](const ChildReport& r) { return r.failed(); });
    };
    if (hub) job.failed = any_failed;
    // A launcher is to end the others once a rank has failed, but Open MPI's may deadlock over it.
    job.finished = [&] {
      return any_failed() || first_with_error(reports) || std::ranges::all_of(reports, &ChildReport::ended);
    };
    JobEnd job_end = run_job(job, Channel::events, request.timeout_s, on_line);
    stderr_tail = job_end.end.stderr_tail;
    ChildEnd end;
    const std::string words = launcher_words(job_end.end);
    const bool by_itself =
        job_end.end.how == ChildEnd::How::exited || job_end.end.how == ChildEnd::How::signalled;
    const bool command = !hub && command_starts_ranks(request);
    const bool is_left = (hub && !any_failed()) || (command && !first_with_error(reports));
    if (const auto left = by_itself && is_left
                              ? left_by_launcher(job_end.end, hub ? "launcher" : "command", reports)
                              : std::nullopt) {
      std::tie(rank, ending) = *left;
    } else {
      std::tie(rank, end) = blamed(std::move(job_end), reports, parts, exits, command);
      ending = ending_of(end, reports[rank], parts[rank], request, rank);
      if (!reports[rank].stderr_tail.empty()) stderr_tail = reports[rank].stderr_tail;
      // One that did not come may have told its launcher why.
      if (hub && hub->hosts()[rank].empty()) ending.reason += words;
    }
    for (size_t other = 0; ending.status == Status::ok && other < world; ++other)
      ending = ending_of(end, reports[rank = other], parts[other], request, other);
    if (ending.status == Status::ok) {
      for (const Run& part : parts) check_steps(part, ms_since(start));
      for (size_t r = 1; r < world; ++r)  // which training until a loss leaves to them
        if (parts[r].steps.size() != parts[0].steps.size())
          throw BadReport(cat("ranks made different numbers of steps: rank 0 ", parts[0].steps.size(),
                              ", rank ", r, " ", parts[r].steps.size()));
    }
    run = parts[0];
    for (size_t r = 0; hub && r < world; ++r)
      if (reports[r].host.empty()) reports[r].host = hub->hosts()[r];
    if (world > 1) merge(run, parts, reports);
    if (ending.status == Status::ok) run.summary = summarize(run, reports[0], request);
    if (run.summary) {
      merge(*run.summary, run.ranks, parts);
      add_energy(*run.summary, run.ranks, parts, reports);
    }
  } catch (const BadReport& e) {
    run = parts[0];
    ending = {Status::crash, e.what()};
  } catch (const CannotStart& e) {
    if (hub) throw InputError(cat("--launcher: ", e.what()));
    if (request.program.ours()) throw;
    const bool words = request.command.size() == 1 && request.command[0].find(' ') != std::string::npos;
    ending = {Status::crash,
              cat(e.what(), words ? "; its command is a list, a word each"
                                  : "; --python names another Python, PATH is searched for others")};
  } catch (const std::logic_error& e) {
    ending = {Status::crash, e.what()};
  }
  run.stderr_tail = std::move(stderr_tail);
  run.wall_ms = ms_since(start);
  run.status = ending.status;
  run.reason = ending.reason;
  // One that tells of another rank is not to blame itself.
  if (world > 1 && !run.reason.empty() && !run.reason.starts_with("rank ") &&
      !run.reason.starts_with("ranks ")) {
    const std::string host = hub ? hub->hosts()[rank] : "";
    run.reason = cat("rank ", rank, host.empty() ? "" : cat(" (", host, ")"), ": ", run.reason);
  }
  return run;
}

}  // namespace stepladder
