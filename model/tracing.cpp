#include "model/tracing.h"

#include <set>

namespace stepladder {
namespace {

std::string types_of(std::span<const Tensor> operands) {
  std::set<std::string> names;
  for (const Tensor& x : operands)
    if (present(x) && x.dtype != DType::i32) names.insert(name_of(x.dtype));
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

Tracing::Tracing(Ops& ops) : ops_(ops), tracer_(ops.device().make_tracer()) {
  ops_.observe(this);
}

void Tracing::begin_step() {
  queued_.clear();
  tracer_->begin();
}

Tracing::Step Tracing::end_step() {
  return {tracer_->end(), std::exchange(queued_, {})};
}

void Tracing::enter(const OpCall& call, std::span<const Tensor> operands) {
  // Copies of batches are phase "data", whether no phase or another one is open.
  const bool batch = call.op == Upload::kName || call.op == Stage::kName || call.op == Receive::kName;
  const bool reduction =
      call.op == name_of(Collective::all_reduce) || call.op == name_of(Collective::reduce_scatter);
  const int64_t id = std::ssize(calls_);
  calls_.push_back(call);
  calls_.back().phase = batch ? "data" : reduction ? "gradient reduction" : phase_.empty() ? "other" : phase_;
  calls_.back().types = types_of(operands);
  if (!recording_) queued_.push_back(id);
  tracer_->enter(id);
}

void Tracing::begin_recording() {
  phase_.clear();  // a recording opens phases of its own
  recording_ = true;
  recordings_.emplace_back(std::ssize(calls_), 0);
}

int64_t Tracing::end_recording() {
  recording_ = false;
  recordings_.back().second = std::ssize(calls_);
  return std::ssize(recordings_) - 1;
}

void Tracing::replay(int64_t recording) {
  const auto [first, last] = recordings_[static_cast<size_t>(recording)];
  for (int64_t id = first; id < last; ++id) queued_.push_back(id);
  tracer_->replay(first, last);
}

}  // namespace stepladder
