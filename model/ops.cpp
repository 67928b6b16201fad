#include "model/ops.h"

#include <algorithm>

namespace stepladder {
namespace {

MathMode math_of(DType type, Precision precision) {
  if (is_fp8(type)) return MathMode::fp8;
  if (size_of(type) == 2) return MathMode::half;
  return precision == Precision::tf32 ? MathMode::tf32 : MathMode::fp32;
}

}  // namespace

void Ops::operator()(const AnyOp& op) {
  op.check();
  if (!observer_) return backend_.device->run(op);
  const Work work = op.work();
  std::vector<Tensor> operands;
  for (const std::vector<Operand>& list : {work.written, work.read})
    for (const Operand& operand : list) {
      const auto same = [&](const Tensor& t) { return t.data == operand.tensor.data; };
      if (std::ranges::none_of(operands, same)) operands.push_back(operand.tensor);
    }
  const std::string name = work.extents.empty() ? op.name() : cat(op.name(), ' ', work.extents);
  observer_->enter({name, work.kind, work.bytes(), work.flops, math_of(work.multiplied, precision_)},
                   operands);
  backend_.device->run(op);
  observer_->leave();
}

void Ops::set_matmul_precision(Precision precision) {
  precision_ = device().info().has_tf32() ? precision : Precision::fp32;
  device().set_matmul_precision(precision_);
}

void Ops::phase(const char* name, int64_t layer) {
  if (observer_) observer_->phase(name);
  device().phase(name, layer);
}

void Ops::search(const std::function<void()>& work) {
  if (observer_) observer_->begin_search();
  backend_.graph->search(work);
}

std::function<void()> Ops::record(const std::function<void()>& work, Launch launch) {
  if (!observer_) return backend_.graph->record(work, launch);
  observer_->begin_recording();
  const auto run = backend_.graph->record(work, launch);
  const int64_t recording = observer_->end_recording();
  return [this, run, recording] {
    if (observer_) observer_->replay(recording);
    run();
  };
}

void Ops::collective(Collective what, std::span<const Tensor> bucket) {
  const int ranks = world();
  if (ranks == 1) return;
  for (const Tensor& x : bucket)
    check(what != Collective::all_max || x.dtype == DType::f32, "the largest is taken of f32, not of ", x);
  if (!observer_) return backend_.collectives->queue(what, bucket);
  double bytes = 0.0;  // bytes that this rank sends, in ring algorithms; it receives as many
  for (const Tensor& x : bucket) bytes += static_cast<double>(x.bytes());
  const double others = (ranks - 1.0) / ranks;
  const bool twice = what == Collective::all_reduce || what == Collective::all_max;
  if (what != Collective::broadcast) bytes *= twice ? 2.0 * others : others;
  observer_->enter({name_of(what), OpKind::communication, bytes}, bucket);
  backend_.collectives->queue(what, bucket);
  observer_->leave();
}

}  // namespace stepladder
