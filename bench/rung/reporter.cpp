#include "bench/rung/reporter.h"

#include <unistd.h>

#include <iomanip>
#include <iostream>
#include <map>
#include <span>

#include "bench/base/peak.h"
#include "bench/base/process.h"
#include "bench/base/statistics.h"
#include "bench/base/text.h"
#include "bench/results/writer.h"
#include "model/atomic_file.h"
#include "model/cpu/parallel.h"
#include "model/flops.h"
#include "model/parameters.h"

namespace stepladder {
namespace {

/// The arena's bytes by the part of a name before the slash: params, grads, activations, ...
std::map<std::string, int64_t> by_group(const Arena& arena) {
  std::map<std::string, int64_t> groups;
  for (const auto& [name, bytes] : arena.by_name()) groups[name.substr(0, name.find('/'))] += bytes;
  return groups;
}

/// Text on the types of weights, activations, gradients and GEMM inputs.
std::string precision(const RunSession& session) {
  const DType half = session.trainer->tensors().weights.dtype();
  if (half == DType::f32) return session.rung.math == MathMode::tf32 ? "f32, GEMM inputs TF32" : "f32";
  const bool fp8 = session.rung.math == MathMode::fp8;
  const bool sums = session.trainer->tensors().grads.dtype() == DType::f32;  // sums over micro-batches
  return cat(name_of(half), " weights, activations",
             fp8 ? " and gradients, GEMM inputs FP8" : ", gradients and GEMM inputs",
             "; f32 master weights, ", sums ? "sums of gradients, " : "",
             "AdamW, statistics, accumulation and loss", half == DType::f16 ? "; dynamic loss scaling" : "");
}

FlopsPerToken flops_of(const RunSession& session) {
  return flops_per_token(session.trainer->tensors().params, session.config);
}

}  // namespace

Reporter::Reporter(const RunSession& session, EventWriter& events)
    : session_(session),
      events_(events),
      tokens_(static_cast<double>(session.config.B * session.config.T * session.settings.hyper.accumulate *
                                  session.team().size)),
      peak_(gemm_peak(session.device, *session.rung.math)) {
  if (peak_) *peak_ *= session.team().size;
}

std::string Reporter::mfu_text(double flops_per_token, double ms) const {
  const auto fraction = mfu(flops_per_token, tokens_per_second(ms), peak_);
  return fraction ? fixed(*fraction * 100, 1) + "%" : "n/a";
}

void Reporter::describe(const Dataset& data) const {
  const DeviceInfo& device = session_.device;
  std::vector<std::pair<std::string, std::string>> rows = {{"rung", session_.build.name},
                                                           {"device", device.name}};
  if (device.compute_capability > 0)
    rows.emplace_back("compute capability", cat("sm_", device.compute_capability));
  rows.emplace_back("device memory", bytes_text(device.total_memory));
  if (!device.driver.empty()) rows.emplace_back("driver", device.driver);
  if (!device.runtime.empty()) rows.emplace_back("runtime", device.runtime);
  rows.emplace_back("BLAS", device.blas);
  rows.emplace_back("attention", device.attention);
  rows.emplace_back(cat("peak, ", name_of(*session_.rung.math)),
                    peak_ ? fixed(*peak_ * 1e-12, 1) + " TFLOP/s" : "n/a");
  rows.emplace_back("precision", precision(session_));
  const auto section = [&](const std::vector<std::string>& groups) {
    rows.emplace_back();
    append(rows, option_rows(session_.options, groups));
  };
  section({RungSettings::kData});
  rows.emplace_back("encoding", data.encoding);
  for (const auto& [name, tokens] :
       {std::pair("training tokens", &data.train), std::pair("validation tokens", &data.val)}) {
    const size_t files = (*tokens)->shards().size();
    const auto size = static_cast<int64_t>((*tokens)->size());
    rows.emplace_back(name, files > 1 ? cat(grouped(size), " in ", files, " files") : grouped(size));
  }
  section({RungSettings::kModel});
  rows.emplace_back("parameters", grouped(session_.trainer->tensors().params.num_params()));
  section({RungSettings::kTraining, RungSettings::kOps});
  rows.emplace_back();
  for (const auto& [group, bytes] : by_group(*session_.arena)) rows.emplace_back(group, bytes_text(bytes));
  rows.emplace_back("memory", bytes_text(session_.arena->bytes()));
  std::cout << box(rows) << std::flush;
}

void Reporter::start() {
  const double now = ms_since_boot();
  auto config = session_.config_json();
  if (session_.device.backend == "cpu") config["threads"] = max_threads();
  events_.write(
      {{"event", "start"},
       {"protocol", kProtocol},
       {"variant", session_.build.name},
       {"source_hash", session_.build.source_hash},
       {"backend", session_.device.backend},
       {"rank", session_.world.rank},
       {"host", host_name()},
       {"config", config},
       {"device", Writer::write(session_.device)},
       {"flops_per_token", {{"nanogpt", flops_of(session_).nanogpt}, {"llmc", flops_of(session_).llmc}}},
       {"startup_ms", now - process_start_ms(0).value_or(now)},
       {"memory_by_name", session_.arena->by_name()}});
}

void Reporter::step(int64_t done, float lr, double step_ms) {
  // NVML is opened after the first step, so that neither start-up nor a step pays for it.
  if (events_.wanted() && !telemetry_) telemetry_.emplace(session_.device.uuid);
  const DeviceState state = telemetry_ ? telemetry_->sample() : DeviceState();
  const Elapsed elapsed = session_.ops->device().elapsed();
  const double norm = session_.trainer->grad_norm();
  loss_ = session_.trainer->train_loss();
  step_ms_.push_back(step_ms);
  Json event = {{"event", "step"},
                {"step", done - 1},
                {"step_ms", step_ms},
                {"device_ms", elapsed.ms},
                {"cycles", Writer::write(elapsed.cycles)},
                {"loss", loss_},
                {"grad_norm", norm},
                {"lr", lr}};
  event.update(Writer::write(state));
  events_.write(event);
  const std::string steps = std::to_string(session_.settings.steps);
  std::cout << "step " << std::setw(static_cast<int>(steps.size())) << done << "/" << steps << " | loss "
            << fixed(loss_, 4) << " | norm " << fixed(norm, 4) << " | lr " << scientific(lr) << " | "
            << fixed(step_ms, 3) << " ms | MFU " << mfu_text(flops_of(session_).nanogpt, step_ms) << " | "
            << rounded(tokens_per_second(step_ms)) << " tok/s" << std::endl;
}

void Reporter::evaluated(int64_t done, double val_loss) {
  val_loss_ = val_loss;
  events_.write({{"event", "eval"}, {"step", done}, {"val_loss", val_loss}});
  std::cout << "validation loss " << fixed(val_loss, 4) << " after " << done << " steps" << std::endl;
}

void Reporter::end() {
  const std::span<const double> all = step_ms_;
  if (session_.tracer) {
    const auto before = all.first(static_cast<size_t>(std::max<int64_t>(*session_.settings.profile - 1, 0)));
    const bool known = before.size() > 1;  // the first one warms up
    const StepTracer& tracer = *session_.tracer;
    Json profile = tracer.json(known ? std::optional(median(before.subspan(1))) : std::nullopt);
    profile["timeline"] = stretches(tracer.last_step(), tracer.calls());
    events_.write({{"event", "profile"}, {"profile", profile}});
    if (!session_.settings.trace.empty())
      write_atomically(session_.settings.trace,
                       timeline(tracer.last_step(), tracer.calls(),
                                cat(session_.rung.name, " on ", session_.device.name)));
  }
  const int64_t skipped = session_.trainer->skipped_steps();
  const MemoryInfo memory = session_.ops->device().memory();
  Json end = {{"event", "end"}};
  // skipped_steps is left out without loss scaling, compile where nothing was searched or recorded.
  if (session_.trainer->tensors().loss_scaler.data) end["skipped_steps"] = skipped;
  const CompileInfo compile = session_.ops->graph().info();
  if (compile.search_ms + compile.capture_ms > 0.0)
    end["compile"] = Writer::write(Compile{compile.search_ms, compile.capture_ms, compile.searched,
                                           compile.from_cache, compile.algorithms});
  end["memory_bytes"] = Writer::write(
      Memory{session_.arena->bytes(), memory.reserved_peak, memory.process_peak, by_group(*session_.arena)});
  events_.write(end);
  if (!session_.settings.times.empty() && session_.is_first())
    write_atomically(session_.settings.times, dump(step_ms_) + "\n");

  const double ms = median(all.subspan(all.size() > 1 ? 1 : 0));  // the first step warms up
  std::cout << "median " << fixed(ms, 2) << " ms | " << rounded(tokens_per_second(ms)) << " tok/s | MFU "
            << mfu_text(flops_of(session_).nanogpt, ms) << " (nanoGPT's formula), "
            << mfu_text(flops_of(session_).llmc, ms) << " (llm.c's) | loss " << fixed(loss_, 4)
            << (val_loss_ ? cat(" | validation loss ", fixed(*val_loss_, 4)) : "")
            << (skipped > 0 ? cat(" | steps skipped ", skipped) : "") << std::endl;
}

}  // namespace stepladder
