#include "bench/run/child_report.h"

#include <cmath>
#include <csignal>
#include <limits>
#include <utility>

#include "bench/base/json_fields.h"
#include "bench/base/process.h"
#include "bench/base/text.h"
#include "bench/run/events.h"
#include "bench/run/placeholders.h"

namespace stepladder {
namespace {

using Event = nlohmann::json;

constexpr double kLeastMs = 1e-6;  // a step's shortest time: a nanosecond, the unit of clocks

/// `step` rounded to the precision of its measurement: step_ms to nanoseconds, the rest to floats.
Step as_measured(Step step) {
  step.step_ms = std::round(step.step_ms * 1e6) / 1e6;
  for (auto* number : {&step.device_ms, &step.cycles, &step.loss, &step.grad_norm, &step.lr})
    if (*number) *number = of_float(**number);
  return step;
}

/// A field with the milliseconds of a part of a run. Throws InputError unless it is from 0 to `timeout_s`.
double duration_at(const Event& event, const char* key, double timeout_s) {
  const auto ms = field_at<double>(event, key);
  if (!(ms >= 0.0 && ms <= timeout_s * 1e3))
    throw InputError(cat("a ", key, " of ", number_text(ms), " ms, of a run that may take ",
                         number_text(timeout_s), " s"));
  return ms;
}

int64_t bytes_at(const Event& event, const std::string& key) {
  const auto bytes = field_at<int64_t>(event, key.c_str());
  if (bytes < 0) throw InputError(cat("memory of ", bytes, " bytes: ", printable(key, 60)));
  return bytes;
}

/// A number that a rung may have measured: one that a float can hold. Throws InputError for a larger one.
std::optional<double> number_if(const Event& event, const char* key) {
  const auto number = field_if<double>(event, key);
  if (number && std::abs(*number) > std::numeric_limits<float>::max())
    throw InputError(cat("a ", key, " of ", number_text(*number)));
  return number;
}
/// A number field; nothing where it is missing or null. Throws InputError for a negative number.
std::optional<double> least_zero_if(const Event& event, const char* key) {
  const auto value = number_if(event, key);
  if (value && *value < 0.0) throw InputError(cat("a ", key, " of ", number_text(*value)));
  return value;
}

}  // namespace

void ChildReport::take(std::string_view line) {
  constexpr size_t kMaxStep = 1 << 12, kMaxOther = 1 << 18;  // bytes; a profile has more
  constexpr size_t kMaxBetween = 8 << 20;                    // bytes of events between two steps
  Event event = parse_event(line);
  if (event.is_null())
    throw BadReport(
        cat("not an event (JSON, in which null is a number that is not finite) on its event stream: '",
            printable(line, 200), "'"));
  const std::string kind = event["event"];
  if (kind != "profile" && line.size() > (kind == "step" ? kMaxStep : kMaxOther))
    throw BadReport(cat("an event of ", line.size(), " bytes on its event stream"));
  between_steps_ = kind == "step" ? 0 : between_steps_ + line.size();
  if (between_steps_ > kMaxBetween)
    throw BadReport(cat("it floods its event stream, the last event is '", printable(kind, 60), "'"));
  if (ended && (kind == "step" || kind == "eval" || kind == "end"))
    throw BadReport(cat("an event after its end: ", kind));
  if (meter_) meter_->add_to(event);
  const std::string of_step = kind == "step" ? cat(" of step ", run_.steps.size()) : "";
  try {
    if (kind == "start")
      start(event);
    else if (kind == "step")
      step(event);
    else if (kind == "eval")
      evaluated(event);
    else if (kind == "profile" && workload_.program.native)
      run_.profile = field_at<Event>(event, "profile");
    else if (kind == "end")
      end(event);
    else if (kind == "exit" && launched_)
      exited(event);
    else if (kind == "error")
      error = {field_at<std::string>(event, "status"),
               printable(field_at<std::string>(event, "reason"), 500)};
  } catch (const InputError& e) {
    throw BadReport(cat("its event '", kind, "'", of_step, ": ", e.what()));
  }
}

void ChildReport::start(const Event& event) {
  if (started)
    throw BadReport(workload_.command_starts_ranks()
                        ? cat("a second start: two ranks write to STEPLADDER_EVENTS_", rank_,
                              "; RANK has to tell each which it is")
                        : "a second start");
  const auto protocol = field_if<int64_t>(event, "protocol").value_or(kProtocol);
  if (protocol > kProtocol)
    throw BadReport(
        cat("it speaks version ", protocol, " of the protocol, this stepladder up to ", kProtocol));
  if (workload_.program.native) check_identity(event);
  run_.backend = field_if<std::string>(event, "backend").value_or(workload_.backend);
  if (run_.backend != "cpu" && run_.backend != "cuda")
    throw InputError(cat("the backend '", printable(run_.backend, 60), "' is neither cpu nor cuda"));
  const Event config = config_of(event);
  // A rank that did not find the others would train alone, and its speed would count as that of all ranks.
  const auto rank = field_if<int64_t>(event, "rank").value_or(rank_),
             world = field_if<int64_t>(config, "world_size").value_or(workload_.devices);
  if (rank != rank_ || world != workload_.devices)
    throw BadReport(
        cat("it is rank ", rank, " of ", world, ", was started as rank ", rank_, " of ", workload_.devices));
  constexpr int64_t kMost = int64_t{1} << 30;  // sequences, tokens: their product is a whole number too
  for (const char* key : {"B", "T"}) {
    const auto told = field_at<int64_t>(config, key), asked = run_.config.value(key, told);
    if (told != asked)
      throw BadReport(cat("it trains with ", key, "=", told, ", was asked for ", key, "=", asked,
                          workload_.program.native
                              ? ""
                              : cat(": give its command {", *key == 'B' ? "batch" : "seq",
                                    "}, or its ladder's workload that number")));
    if (told < 1 || told > kMost) throw InputError(cat(key, "=", told, ", which is no size of a batch"));
  }
  const auto model = field_if<std::string>(config, "model");
  if (const auto asked = run_.config["model"].get<std::string>(); model && *model != asked) {
    if (is_told(workload_.program, "model"))
      throw BadReport(cat("it trains ", printable(*model, 60), ", was asked for ", asked));
    run_.config["trained_model"] = *model;
  }
  for (const auto& [key, value] : config.items())
    if (!run_.config.contains(key)) run_.config[key] = value;
  summary.startup_ms = field_if<double>(event, "startup_ms")
                           ? duration_at(event, "startup_ms", workload_.timeout_s)
                           : ms_since(created_);
  host = field_if<std::string>(event, "host").value_or("");
  if (const auto its = field_if<Event>(event, "device"))  // llm.c does not tell its device's uuid
    device = field_if<std::string>(*its, "uuid").value_or("");
  if (const auto told = field_if<Event>(event, "flops_per_token"); told && workload_.program.native)
    flops = {field_at<double>(*told, "nanogpt"), field_at<double>(*told, "llmc")};
  const Event memory_by_name = field_if<Event>(event, "memory_by_name").value_or(Event::object());
  for (const auto& [name, bytes] : memory_by_name.items())
    if (bytes.is_number_integer()) summary.memory.by_name[name] = bytes_at(memory_by_name, name);
  started = true;
}

/// The event's config as a results file may hold it. Only the harness says whether ranks are independent.
ChildReport::Event ChildReport::config_of(const Event& event) const {
  auto config = field_at<Event>(event, "config");
  for (const char* key : {"world_size", "threads", "independent_ranks"})
    if (config.contains(key) && config[key].is_null()) config.erase(key);
  for (const auto& [key, value] : config.items())
    if (value.is_structured() && config_depth(value) >= kMaxConfigDepth)
      throw BadReport(cat("its config's ", printable(key, 60), " is nested too deep"));
  if (const auto threads = field_if<int64_t>(config, "threads"); threads && *threads < 1)
    throw InputError(cat("threads=", *threads, " in its config"));
  const bool independent = run_.config.value("independent_ranks", false);
  if (const char* key = "independent_ranks"; config.contains(key) && config[key] != independent)
    throw BadReport(cat("its config has ", key, "=", printable(config[key].dump(), 60),
                        ", which is the harness's to say: leave it out"));
  // In B, our rungs and peers, which tell their variant, have a micro-batch; other trainers a step's whole
  // batch.
  config.erase(kWholeBatch);
  if (config.contains("accumulate") && !event.contains("variant")) config[kWholeBatch] = true;
  return config;
}

/// Checks that a start event is from the plan's executable. Throws BadReport for another variant, Error for
/// another source hash.
void ChildReport::check_identity(const Event& event) const {
  const Program& program = workload_.program;
  const auto variant = field_at<std::string>(event, "variant");
  if (variant != program.calls_itself) throw BadReport(cat("it is ", printable(variant, 60)));
  if (field_at<std::string>(event, "source_hash") != workload_.source_hash)
    throw Error(cat(program.variant,
                    " was built anew since its first run: measure again from the start (run: --overwrite)"),
                kExitNotComparable);
}

void ChildReport::step(const Event& event) {
  if (!started) throw BadReport("a step before its start");
  Step step;
  step.step = field_at<int64_t>(event, "step");
  if (step.step != static_cast<int64_t>(run_.steps.size()))
    throw BadReport(cat("step ", step.step, " where step ", run_.steps.size(), " was due"));
  if (step.step >= workload_.steps)
    throw BadReport(cat("more than the ", workload_.steps, " steps asked for"));
  step.step_ms = field_at<double>(event, "step_ms");
  if (!(step.step_ms > 0.0)) throw BadReport(cat("step ", step.step, " took ", step.step_ms, " ms"));
  if (step.step_ms < kLeastMs) throw BadReport(cat("step ", step.step, " took less than a nanosecond"));
  duration_at(event, "step_ms", workload_.timeout_s);
  step.device_ms = least_zero_if(event, "device_ms");
  step.cycles = number_if(event, "cycles");
  if (step.cycles && *step.cycles < 1.0)
    throw InputError(
        cat("a cycles of ", number_text(*step.cycles), ", where null says that none are counted"));
  step.loss = number_if(event, "loss");
  step.grad_norm = least_zero_if(event, "grad_norm");
  step.lr = number_if(event, "lr");
  // Ignore the clocks that a ladder file's trainer tells for rank 0 where telemetry is off.
  if (workload_.program.native || !first_ || workload_.telemetry)
    step.device = {field_if<int64_t>(event, "sm_mhz"), field_if<int64_t>(event, "memory_mhz"),
                   number_if(event, "power_w"), field_if<int64_t>(event, "temperature_c"),
                   field_if<std::vector<std::string>>(event, "throttle")};
  if (workload_.telemetry) step.energy_j = number_if(event, "energy_j");
  if (first_ && !event.contains("loss"))
    throw BadReport(cat("step ", step.step, " without its loss, which is null where it is not finite"));
  if (workload_.until_loss && workload_.eval_every > 0 && step.step > 2 * workload_.eval_every &&
      run_.evaluations.empty() && first_)
    throw BadReport(cat("no validation loss came in ", step.step, " steps, where one is wanted every ",
                        workload_.eval_every, ": an eval event, of the Python module run.evaluated()"));
  const bool evaluated = !run_.evaluations.empty() && run_.evaluations.back().step == step.step;
  if (step.step > 0 && !evaluated) {
    between_arrivals_ms += ms_since(last_step_);
    in_steps_ms += step.step_ms;
  }
  last_step_ = std::chrono::steady_clock::now();
  run_.steps.push_back(as_measured(step));
  if (first_) on_step_(step);
}

void ChildReport::exited(const Event& event) {
  const auto status = field_at<int64_t>(event, "status");  // as a shell has it: 128 + n for signal n
  const bool by_signal = status > 128;
  exit = ChildEnd{.how = !by_signal                ? ChildEnd::How::exited
                         : status == 128 + SIGSTOP ? ChildEnd::How::stopped
                                                   : ChildEnd::How::signalled,
                  .code = static_cast<int>(by_signal ? status - 128 : status),
                  .stderr_tail = field_if<std::string>(event, "stderr").value_or("")};
  energy_elsewhere_ = {field_if<bool>(event, "shared"),
                       printable(field_if<std::string>(event, "unknown").value_or(""), 300)};
}

void ChildReport::evaluated(const Event& event) {
  val_loss = number_if(event, "val_loss");
  if (!event.contains("val_loss")) throw BadReport("an evaluation without its val_loss");
  const int64_t done = std::ssize(run_.steps);
  if (const auto step = field_at<int64_t>(event, "step"); step != done)
    throw BadReport(cat("an evaluation after ", step, " steps, where ", done, " are done"));
  if (!run_.evaluations.empty() && run_.evaluations.back().step == done)
    throw BadReport(cat("a second evaluation after step ", done));
  run_.evaluations.push_back({done, val_loss ? std::optional(of_float(*val_loss)) : std::nullopt});
}

void ChildReport::end(const Event& event) {
  ended = true;
  const bool native = workload_.program.native;  // a native program tells every field
  const Event bytes = native ? field_at<Event>(event, "memory_bytes")
                             : field_if<Event>(event, "memory_bytes").value_or(Event::object());
  Memory& memory = summary.memory;
  for (auto [key, peak] :
       {std::pair("live_peak", &memory.live_peak), std::pair("reserved_peak", &memory.reserved_peak),
        std::pair("process_peak", &memory.process_peak)})
    if (native || field_if<int64_t>(bytes, key)) *peak = bytes_at(bytes, key);
  memory.exact = field_if<bool>(bytes, "exact");
  if (!native) return;
  if (event.contains("compile")) {
    const Event spent = field_at<Event>(event, "compile");
    summary.compile = {
        duration_at(spent, "search_ms", workload_.timeout_s),
        duration_at(spent, "capture_ms", workload_.timeout_s), field_at<int64_t>(spent, "searched"),
        field_at<int64_t>(spent, "from_cache"),
        spent.contains("algorithms") ? printable(field_at<std::string>(spent, "algorithms"), 60) : ""};
  }
  summary.skipped_steps = field_if<int64_t>(event, "skipped_steps");
}

bool ChildReport::reached() const {
  if (!workload_.until_loss || run_.evaluations.empty()) return false;
  const Evaluation& last = run_.evaluations.back();
  return last.step == std::ssize(run_.steps) && last.val_loss && *last.val_loss <= *workload_.until_loss;
}

void ChildReport::check_steps(double wall_ms) const {
  constexpr double kRounding = 1.01;  // tolerance for times rounded in a peer's log
  double sum = 0.0;
  for (const Step& step : run_.steps) sum += step.step_ms;
  if (sum > wall_ms * kRounding)
    throw BadReport(
        cat("its steps add up to ", fixed(sum, 0), " ms, its process ran for ", fixed(wall_ms, 0)));
}

}  // namespace stepladder
