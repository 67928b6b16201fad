#include "bench/run/events.h"

#include <fcntl.h>

#include <csignal>
#include <string>

#include "bench/base/text.h"
#include "bench/results/json.h"
#include "model/error.h"
#include "model/fd.h"

namespace stepladder {

EventWriter::EventWriter(int fd) : fd_(fd) {
  if (fd_ < 0) return;
  if (fcntl(fd_, F_GETFD) == -1) throw InputError(cat("--events ", fd_, ": no such open file descriptor"));
  std::signal(SIGPIPE, SIG_IGN);
}

void EventWriter::write(const nlohmann::ordered_json& event) {
  const std::lock_guard lock(writing_);
  if (fd_ >= 0 && connected_) connected_ = write_all(fd_, dump(event) + "\n");
}

nlohmann::json parse_event(std::string_view line) {
  constexpr int kMaxDepth = 16;  // a profile is 8 deep, a results file may be 32
  bool deep = false;
  const auto shallow = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    deep |= depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  auto event = nlohmann::json::parse(valid_utf8(std::string(line)), shallow, /*allow_exceptions=*/false);
  if (deep) return {};
  const bool valid = event.is_object() && event.contains("event") && event["event"].is_string();
  return valid ? event : nlohmann::json();
}

}  // namespace stepladder
