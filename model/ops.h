// Ops: what a trainer calls. `ops(LayerNormForward{out, mean, rstd, x, w, b})` checks an op and queues it on
// a backend; model/ops/ has the ops. No backend header is needed to call any of this.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "model/device.h"
#include "model/ops/adamw.h"
#include "model/ops/attention.h"
#include "model/ops/classifier.h"
#include "model/ops/copy.h"
#include "model/ops/elementwise.h"
#include "model/ops/embedding.h"
#include "model/ops/fp8.h"
#include "model/ops/gelu.h"
#include "model/ops/layernorm.h"
#include "model/ops/matmul.h"
#include "model/ops/muon.h"
#include "model/ops/relu.h"
#include "model/ops/rotary.h"
#include "model/ops/rows.h"
#include "model/trace.h"

namespace stepladder {

/// Observes every op and collective of an Ops, to trace, record or count them.
class OpObserver {
 public:
  OpObserver() = default;
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;
  virtual ~OpObserver() = default;

  /// Called before and after each op and collective. `operands`: the tensors that the op writes, then those
  /// that it only reads.
  virtual void enter(const OpCall& call, std::span<const Tensor> operands) = 0;
  virtual void leave() {}
  virtual void phase(const char* /*name*/) {}
  virtual void begin_search() {}
  /// Ops between begin_recording() and end_recording() are recorded, not run. end_recording() returns the
  /// number by which replay() will name them.
  virtual void begin_recording() {}
  virtual int64_t end_recording() { return 0; }
  virtual void replay(int64_t /*recording*/) {}
};

class Ops final {
 public:
  explicit Ops(Backend backend) : backend_(std::move(backend)) {}
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  /// Queues an op; it may run after the call returns. Throws std::invalid_argument where its operands don't
  /// fit.
  void operator()(const AnyOp& op);

  Device& device() { return *backend_.device; }
  const Graph& graph() const { return *backend_.graph; }
  /// These call the functions of Device, Graph and Collectives of the same name, which are described there.
  void synchronize() { device().synchronize(); }
  void set_matmul_precision(Precision precision);
  void phase(const char* name, int64_t layer = -1);
  void search(const std::function<void()>& work);
  std::function<void()> record(const std::function<void()>& work, Launch launch = Launch::in_turn);
  void join(Rendezvous& ranks) { backend_.collectives->join(ranks); }
  int rank() const { return backend_.collectives->rank(); }
  int world() const { return backend_.collectives->world(); }
  void use_copy_engines(const Arena& arena, const Tensor& receive_buffer) {
    backend_.collectives->use_copy_engines(arena, receive_buffer);
  }
  void collective(Collective what, std::span<const Tensor> bucket);
  void wait_for_collectives(int64_t allow_pending = 0) { backend_.collectives->wait(allow_pending); }

  /// From now on `observer` (nullptr: none) sees all ops and collectives. It must outlive this Ops, or live
  /// until the next call of observe().
  void observe(OpObserver* observer) { observer_ = observer; }

 private:
  const Backend backend_;
  OpObserver* observer_ = nullptr;
  Precision precision_ = Precision::fp32;  // precision of f32 products
};

/// Ops on the reference backend, which runs on every machine: statistics in double, products through CBLAS.
/// `threads` 0 stands for OMP_NUM_THREADS where it is set, else for one thread for each usable core.
std::unique_ptr<Ops> make_cpu_ops(int threads = 0);
/// Ops on CUDA device `index`. Throws UnsupportedError without a usable device or in a build without CUDA.
std::unique_ptr<Ops> make_cuda_ops(int index = 0, const OpsOptions& options = {});
/// Ops on the backend of this name: "cpu", "cuda" on device `device`, or "auto": cuda where there is a
/// device. Throws InputError for another name.
std::unique_ptr<Ops> make_ops(const std::string& backend, int device = 0, const OpsOptions& options = {});

}  // namespace stepladder
