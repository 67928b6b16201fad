#include "bench/run/progress.h"

#include <unistd.h>

#include <cmath>
#include <iostream>

#include "bench/base/process.h"
#include "bench/base/text.h"
#include "bench/run/child.h"
#include "model/error.h"

namespace stepladder {
namespace {

/// A duration, as "0:07", "12:34" or "1:02:03".
std::string clock_text(double seconds) {
  const auto s = std::llround(seconds);
  const auto two = [](long long n) { return cat(n < 10 ? "0" : "", n); };
  return s < 3600 ? cat(s / 60, ":", two(s % 60)) : cat(s / 3600, ":", two(s / 60 % 60), ":", two(s % 60));
}

}  // namespace

Option Progress::quiet_option(const std::string& group) {
  return {"quiet", &quiet, "", "no word of runs that end well", group};
}

Progress::Progress(size_t total_runs) : terminal_(!quiet && isatty(STDERR_FILENO) != 0), total_(total_runs) {}

Progress::~Progress() {
  clear();
}

void Progress::start(const std::string& key, int64_t round, int64_t steps) {
  key_ = key;
  round_ = round;
  steps_ = steps;
  steps_done_ = 0;
  start_ = Clock::now();
  show(label() + "  starting");
}

void Progress::step(const Step& step) {
  steps_done_ = step.step + 1;
  show(cat(label(), "  step ", steps_done_, "/", steps_, "  ", sized(step.step_ms), " ms  ETA ",
           clock_text(seconds_left())));
}

void Progress::finish(const Run& run) {
  seconds_[key_] = ms_since(start_) * 1e-3;
  clear();
  std::string line = cat(label(), ": ", name_of(run.status));
  if (run.summary) {
    line += cat(", ", sized(run.summary->median_step_ms), " ms, ", rounded(run.summary->tokens_per_second),
                " tok/s");
    if (run.shared()) line += ", another process used the device";
    if (run.throttled()) line += cat(", throttled in ", *run.summary->throttled_steps, " steps");
  }
  if (run.lingered) line += cat(", did not end within ", kLingering, " s of telling its end");
  if (!run.reason.empty()) line += cat(run.summary ? "; " : ", ", run.reason);
  if ((!terminal_ && !quiet) || run.status != Status::ok || run.disturbed() || run.lingered)
    std::cerr << printable(line, kMaxMessage) << std::endl;
  ++done_;
}

std::string Progress::label() const {
  return printable(cat("[", done_ + 1, "/", total_, "] ", key_, ", round ", round_), kMaxMessage);
}

double Progress::seconds_left() const {
  // Expect each further run to take the mean over the keys so far, this run's key with its projected time.
  const double elapsed = ms_since(start_) * 1e-3;
  const double projected = elapsed * static_cast<double>(steps_) / static_cast<double>(steps_done_);
  double sum = projected;
  for (const auto& [key, seconds] : seconds_)
    if (key != key_) sum += seconds;
  const double mean = sum / static_cast<double>(seconds_.size() + (seconds_.contains(key_) ? 0 : 1));
  return projected - elapsed + mean * (static_cast<double>(total_) - static_cast<double>(done_) - 1);
}

void Progress::show(const std::string& line) const {
  if (terminal_)
    std::cerr << "\r\033[K" << line.substr(0, terminal_width(STDERR_FILENO, 80) - 1) << std::flush;
}

void Progress::clear() const {
  if (terminal_) std::cerr << "\r\033[K" << std::flush;
}

}  // namespace stepladder
