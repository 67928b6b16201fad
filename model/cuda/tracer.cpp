// A tracer for where CUPTI can't be used: it records a device event before and after each op.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "model/cuda/cuda.h"
#include "model/cuda/cupti_tracer.h"
#include "model/trace.h"

namespace stepladder {
namespace {

class EventTracer final : public Tracer {
 public:
  EventTracer(cudaStream_t stream, std::string why) : stream_(stream), why_(std::move(why)) {}

  std::string source() const override { return "device events around each op; no kernels: " + why_; }

  void enter(int64_t call) override {
    open_ = nullptr;
    const bool in_graph = is_capturing(stream_);
    if (!in_graph && !tracing_) return;
    // An event that a graph records is recorded anew at each launch; any other is needed once.
    open_ = &(in_graph ? recorded_ : queued_)[call];
    const unsigned flags = in_graph ? cudaEventRecordExternal : cudaEventRecordDefault;
    *open_ = {make_event(), make_event(), flags};
    CUDA_CHECK(cudaEventRecordWithFlags(open_->start.get(), stream_, open_->flags));
  }
  void leave() override {
    if (open_) CUDA_CHECK(cudaEventRecordWithFlags(open_->stop.get(), stream_, open_->flags));
  }
  void replay(int64_t first, int64_t last) override {
    if (!tracing_) return;
    if (std::ranges::any_of(replayed_, [&](const auto& range) { return range.first == first; }))
      collect();  // before the next launch overwrites it
    replayed_.emplace_back(first, last);
  }

  void begin() override {
    tracing_ = true;
    CUDA_CHECK(cudaEventRecord(begin_.get(), stream_));
  }
  Step end() override {
    CUDA_CHECK(cudaEventRecord(end_.get(), stream_));
    collect();
    tracing_ = false;
    Step step{since_begin(end_), std::exchange(spans_, {})};
    std::ranges::sort(step.spans, {}, &Span::start_ns);
    return step;
  }

 private:
  struct Pair {
    Event start, stop;
    unsigned flags = cudaEventRecordDefault;
  };

  int64_t since_begin(const Event& event) const {
    float ms = 0.0F;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin_.get(), event.get()));
    return std::llround(static_cast<double>(ms) * 1e6);
  }
  /// Waits for the stream, and takes the times of all ops that were queued.
  void collect() {
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    const auto take = [&](int64_t call, const Pair& pair) {
      spans_.push_back({since_begin(pair.start), since_begin(pair.stop), call, ""});
    };
    for (const auto& [call, pair] : queued_) take(call, pair);
    for (const auto& [first, last] : replayed_)
      for (auto at = recorded_.lower_bound(first); at != recorded_.end() && at->first < last; ++at)
        take(at->first, at->second);
    queued_.clear();
    replayed_.clear();
  }

  const cudaStream_t stream_;
  const std::string why_;
  const Event begin_ = make_event(), end_ = make_event();
  bool tracing_ = false;
  Pair* open_ = nullptr;
  std::map<int64_t, Pair> queued_, recorded_;          // by call
  std::vector<std::pair<int64_t, int64_t>> replayed_;  // ranges of recorded calls
  std::vector<Span> spans_;
};

}  // namespace

std::unique_ptr<Tracer> Cuda::make_tracer() {
  std::string why;
  if (auto tracer = make_cupti_tracer(why)) return tracer;
  return std::make_unique<EventTracer>(stream.get(), why);
}

}  // namespace stepladder
