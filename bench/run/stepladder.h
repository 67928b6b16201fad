// Lets Stepladder measure a training loop of your own, in C++17: copy this file, which needs nothing else of
// the project. python/trainer/stepladder.py does the same for Python, and says more.
//
//   #include "stepladder.h"
//
//   stepladder_client::Run run(16, 1024, [] { cudaDeviceSynchronize(); });  // no function on the CPU
//   run.config("dtype", "bf16");
//   for (int i = 0; i < steps && !run.finished(); ++i) {
//     auto step = run.step();
//     const float loss = train_step();
//     step.done(loss);
//     if (run.evaluation_due()) run.evaluated(validation_loss());
//   }
//   return run.exit_code();
//
// `stepladder run --ladder ladder.json` starts the program, tells it how many steps to take, and listens. In
// a program started in any other way nothing is timed or synchronised, and finished() stays false. Once the
// harness is gone, SIGPIPE ends the program, or finished() is true where SIGPIPE is ignored.
//
// The namespace is not the harness's own, `stepladder`, so that a program may use both.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iomanip>
#include <iterator>
#include <locale>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace stepladder_client {

/// Peak memory in bytes: handed out, taken from the driver, of the process. Unknown peaks are left out.
struct Memory {
  std::optional<int64_t> live_peak, reserved_peak, process_peak;
  bool exact = false;  // live_peak is the same in each run, so a gate finds a single byte more
};

class Run;

/// One step; its clock runs from Run::step() to done().
class Step {
 public:
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Stops the clock and tells the harness of the step. Rank 0 must give a loss; a loss that is not finite
  /// ends the run as diverged. Throws std::logic_error for a second call, and on rank 0 without a loss.
  void done(std::optional<double> loss = {}, std::optional<double> grad_norm = {},
            std::optional<double> lr = {}, std::optional<double> device_ms = {});

 private:
  friend class Run;
  explicit Step(Run* run) : run_(run) {}
  Run* run_;  // null where no harness listens
};

/// The measured run of this program; does nothing where no harness listens, which `if (run)` tells. Has to
/// outlive the training: the destructor tells the harness how the run ended, if nothing has before.
class Run {
 public:
  /// batch: sequences of an optimizer step on this rank, all micro-batches together; seq: tokens of a
  /// sequence; synchronize: waits for the device. Throws std::invalid_argument, and std::runtime_error where
  /// the harness can't be written to.
  Run(int64_t batch, int64_t seq, std::function<void()> synchronize = {})
      : synchronize_(std::move(synchronize)),
        rank_(environment({"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})) {
    if (rank_.empty()) rank_ = "0";
    fd_ = stream();
    if (fd_ < 0) return;
    if (batch < 1 || seq < 1) throw std::invalid_argument("stepladder: batch and seq must be positive");
    listened_ = true;
    const std::string steps = environment({"STEPLADDER_STEPS"}),
                      every = environment({"STEPLADDER_EVAL_EVERY"}),
                      until = environment({"STEPLADDER_UNTIL_LOSS"}),
                      world_size = environment({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"});
    if (!steps.empty()) steps_ = std::stoll(steps);
    if (!every.empty()) eval_every_ = std::stoll(every);
    if (!until.empty()) until_loss_ = number(until);
    config("B", batch);
    config("T", seq);
    if (!world_size.empty() && world_size != "1") config("world_size", std::stoll(world_size));
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  ~Run() {
    if (finished() || !listened_) return;
    const std::string steps = steps_ ? std::to_string(*steps_) : "";
    if (in_step_ || (steps_ && !complete()) || done_ == 0)
      fail("error", in_step_ ? "an exception ended step " + std::to_string(done_)
                             : "the program ended after " + std::to_string(done_) + " of " + steps +
                                   " steps: let it train on");
    else
      end();
  }

  explicit operator bool() const { return listened_; }

  /// Records a text, a number or a bool with the results. To be called before the first step.
  template <class T>
  void config(const std::string& name, const T& value) {
    if (!listened_) return;
    config_ += (config_.empty() ? "" : ",") + quoted(name) + ":" + json(value);
  }

  /// Tells what the program runs on: "cpu" or "cuda", and the device's name and UUID ("GPU-..") as NVML has
  /// them. To be called before the first step.
  void device(const std::string& backend, const std::string& name = "", const std::string& uuid = "") {
    device_ = ",\"backend\":" + quoted(backend) + ",\"device\":{\"name\":" + quoted(name) +
              (uuid.empty() ? "" : ",\"uuid\":" + quoted(uuid)) + "}";
  }

  /// Sets the peaks to record, before the last step is done. Without this call, on the CPU, the process's
  /// peak is recorded.
  void memory(const Memory& peaks) { memory_ = peaks; }

  /// Starts the clock of a step. Throws std::logic_error where the step before it isn't done.
  Step step() {
    if (in_step_) misused("a step begins within a step: call done(loss) before the next one");
    if (listened_ && complete()) end();  // the last step's evaluation did not come
    if (!listened_ || finished()) return Step(nullptr);
    in_step_ = true;
    if (synchronize_) synchronize_();
    if (!started_) start();
    begin_ = std::chrono::steady_clock::now();
    return Step(this);
  }

  /// Whether the harness has all it asked for, or was told what went wrong.
  bool finished() const { return exit_code_.has_value(); }
  /// The trainer's exit code, for main() to return.
  int exit_code() const { return exit_code_.value_or(0); }

  /// Whether the harness asked for a validation loss now: it does every few steps, and after the last.
  bool evaluation_due() const {
    const bool asked = eval_every_ > 0 || until_loss_;
    const bool due = complete() || (eval_every_ > 0 && done_ % eval_every_ == 0);
    return asked && due && done_ > evaluated_ && !finished();
  }

  /// Tells the validation loss after the steps done so far. Returns whether the loss to stop at is reached;
  /// all ranks must pass the same loss. An evaluation after the last step ends the run.
  bool evaluated(double val_loss) {
    if (listened_ && !finished() && done_ > evaluated_) {
      evaluated_ = done_;
      write("{\"event\":\"eval\",\"step\":" + std::to_string(done_) + ",\"val_loss\":" + json(val_loss) +
            "}");
      reached_ = until_loss_ && finite(val_loss) && val_loss <= *until_loss_;
      if (reached_ || complete()) end();
    }
    return reached_;
  }

  /// Tells the harness that the run failed: "oom", "unsupported", "diverged", "interrupted" or "error".
  void fail(const std::string& status, const std::string& reason) {
    if (!listened_ || finished()) return;
    in_step_ = false;
    write("{\"event\":\"error\",\"status\":" + quoted(status) + ",\"reason\":" + quoted(cut(reason, 2000)) +
          "}");
    exit_code_ = kFailed;
  }
  /// fail() with a caught exception: "oom" for std::bad_alloc, else "error".
  void failed(const std::exception& error) {
    fail(dynamic_cast<const std::bad_alloc*>(&error) ? "oom" : "error", error.what());
  }

 private:
  friend class Step;
  static constexpr int kFailed = 5;

  [[noreturn]] void misused(const std::string& what) {
    fail("error", what);  // first: an exception that nobody catches ends the program without destructors
    throw std::logic_error("stepladder: " + what);
  }

  bool complete() const { return steps_ && done_ >= *steps_; }

  void start() {
    started_ = true;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    const std::optional<double> age = process_age_ms();
    write("{\"event\":\"start\",\"protocol\":1,\"rank\":" + rank_ + ",\"host\":" + quoted(host) + device_ +
          ",\"config\":{" + config_ + "}" + (age ? ",\"startup_ms\":" + json(*age) : "") + "}");
  }

  void step_done(std::optional<double> loss, std::optional<double> grad_norm, std::optional<double> lr,
                 std::optional<double> device_ms) {
    if (synchronize_) synchronize_();
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin_;
    if (!loss && rank_ == "0") misused("step " + std::to_string(done_) + " has no loss: call done(loss)");
    in_step_ = false;
    std::string line =
        "{\"event\":\"step\",\"step\":" + std::to_string(done_) + ",\"step_ms\":" + json(ms.count());
    for (const auto& [name, value] : {std::pair("loss", loss), std::pair("grad_norm", grad_norm),
                                      std::pair("lr", lr), std::pair("device_ms", device_ms)})
      if (value) line += "," + quoted(name) + ":" + json(*value);
    write(line + "}");
    const bool diverged = loss && !finite(*loss);
    if (diverged) fail("diverged", "the loss is not finite at step " + std::to_string(done_));
    ++done_;
    if (complete() && !evaluation_due()) end();
  }

  void end() {
    if (finished()) return;
    if (!memory_.process_peak && !synchronize_) memory_.process_peak = process_peak();
    std::string bytes;
    for (const auto& [name, value] :
         {std::pair("live_peak", memory_.live_peak), std::pair("reserved_peak", memory_.reserved_peak),
          std::pair("process_peak", memory_.process_peak)})
      if (value) bytes += (bytes.empty() ? "" : ",") + quoted(name) + ":" + std::to_string(*value);
    if (memory_.exact) bytes += (bytes.empty() ? "" : ",") + quoted("exact") + ":true";
    write("{\"event\":\"end\",\"memory_bytes\":{" + bytes + "}}");
    if (!finished()) exit_code_ = 0;
  }

  /// Writes an event with one write(), so that a kill tears at most the last line.
  void write(const std::string& event) {
    if (getpid() != pid_) return;  // a forked process is not the trainer
    const std::string line = event + "\n";
    for (size_t at = 0; at < line.size() && !finished();) {
      const ssize_t written = ::write(fd_, line.data() + at, line.size() - at);
      if (written >= 0)
        at += static_cast<size_t>(written);
      else if (errno != EINTR)
        exit_code_ = kFailed;
    }
  }

  int stream() const {
    if (const std::string path = environment({("STEPLADDER_EVENTS_" + rank_).c_str()}); !path.empty()) {
      const int opened = open(path.c_str(), O_WRONLY | O_CLOEXEC);
      if (opened < 0) throw std::runtime_error("stepladder: " + path + ": can't be opened for writing");
      return opened;
    }
    const std::string fd = environment({"STEPLADDER_EVENTS"});
    if (fd.empty()) return -1;
    const int given = std::atoi(fd.c_str());
    if (fcntl(given, F_SETFD, FD_CLOEXEC) == -1)
      throw std::runtime_error("stepladder: STEPLADDER_EVENTS=" + fd + ": no open file descriptor");
    return given;
  }

  /// The value of the first environment variable of `names` that is set; "" if none is.
  static std::string environment(std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const char* value = std::getenv(name)) return value;
    return "";
  }

  /// Parses a number with a decimal point, whatever the program's locale has.
  static double number(const std::string& text) {
    std::istringstream in(text);
    in.imbue(std::locale::classic());
    double value = 0.0;
    if (!(in >> value))
      throw std::invalid_argument("stepladder: STEPLADDER_UNTIL_LOSS=" + text + ": no number");
    return value;
  }

  /// Whether `value` is finite, by its bits: -ffast-math takes std::isfinite() for true.
  static bool finite(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return (bits >> 52 & 0x7ff) != 0x7ff;
  }

  template <class T>
  static std::string json(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!finite(value)) return "null";
      std::ostringstream out;
      out.imbue(std::locale::classic());
      out << std::setprecision(17) << value;
      return out.str();
    } else if constexpr (std::is_integral_v<T>) {
      return std::to_string(value);
    } else {
      return quoted(value);
    }
  }

  /// The first `limit` bytes of UTF-8 text at most, without half a character at the end.
  static std::string cut(const std::string& text, size_t limit) {
    if (text.size() <= limit) return text;
    while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
    return text.substr(0, limit);
  }

  static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      const bool control = static_cast<unsigned char>(c) < 0x20;
      if (c == '"' || c == '\\') out += '\\';
      out += control ? ' ' : c;
    }
    return out + '"';
  }

  /// Milliseconds since this process was started, by the kernel's record; none on systems other than Linux.
  static std::optional<double> process_age_ms() {
#ifdef __linux__
    std::ifstream file("/proc/self/stat");
    const std::string stat{std::istreambuf_iterator<char>(file), {}};
    std::istringstream fields(stat.substr(stat.rfind(')') + 1));  // from field 3; 22 is the start in ticks
    std::string skipped;
    for (int field = 3; field < 22; ++field) fields >> skipped;
    int64_t ticks = 0;
    timespec now{};
    if (fields >> ticks && clock_gettime(CLOCK_BOOTTIME, &now) == 0)
      return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6 -
             static_cast<double>(ticks) * 1e3 / static_cast<double>(sysconf(_SC_CLK_TCK));
#endif
    return {};
  }

  /// The process's peak memory in bytes, as Linux tells it.
  static std::optional<int64_t> process_peak() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
      if (int64_t kib = 0; word == "VmHWM:" && status >> kib) return kib * 1024;
    return {};
  }

  std::function<void()> synchronize_;
  std::string rank_, config_, device_;
  int fd_ = -1;
  const pid_t pid_ = getpid();
  bool listened_ = false, started_ = false, in_step_ = false, reached_ = false;
  std::optional<int64_t> steps_;
  int64_t eval_every_ = 0, done_ = 0, evaluated_ = 0;
  std::optional<double> until_loss_;
  Memory memory_;
  std::optional<int> exit_code_;
  std::chrono::steady_clock::time_point begin_;
};

inline void Step::done(std::optional<double> loss, std::optional<double> grad_norm, std::optional<double> lr,
                       std::optional<double> device_ms) {
  if (!run_) return;
  if (!run_->in_step_) throw std::logic_error("stepladder: a step is done twice");
  run_->step_done(loss, grad_norm, lr, device_ms);
}

}  // namespace stepladder_client
