// A backend: a device, its graphs, its collectives, and the ops it runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "model/arena.h"
#include "model/comm.h"
#include "model/config.h"
#include "model/ops/matmul.h"
#include "model/tensor.h"

namespace stepladder {

class Rendezvous;
class Tracer;

/// Who computes AttentionForward and AttentionBackward: cuDNN where it can, else the kernels of this project.
enum class Attention { automatic, cudnn, native };

/// How a backend runs the ops; nothing here changes what they compute beyond rounding.
struct OpsOptions {
  Attention attention = Attention::automatic;
  bool libraries = true;       // on CUDA: open cuBLAS and cuDNN; without them only Sgemm multiplies
  bool deterministic = false;  // bitwise reproducible results, also where that is slower
  bool wide_access = true;     // 128-bit loads and stores in the fused kernels
  bool early_launch = true;    // allow programmatic dependent launch (Launch::early)
  bool copy_engines = true;    // allow use_copy_engines()
  bool count_cycles = false;   // elapsed() tells cycles too, where the device counts them
  /// Features of devices newer than this compute capability are left unused: 75 runs what a T4 would. 0
  /// stands for the device's own.
  int compute_capability = 0;
  std::string cache_dir = {};  // folder for matmul algorithms found by search(); "" keeps none
  bool search_again = false;   // algorithms in cache_dir are measured again, and replaced
};

/// The cost of search() and record() so far.
struct CompileInfo {
  double search_ms = 0.0, capture_ms = 0.0;
  int searched = 0, from_cache = 0;  // matmul shapes
  int launched_early = 0;            // recorded kernels that use programmatic dependent launch
  std::string algorithms = {};       // fingerprint of the algorithms chosen
};

/// The device and libraries that a backend runs on. Unknown fields are empty or 0.
struct DeviceInfo {
  std::string backend;  // "cpu" or "cuda"
  std::string name;     // "NVIDIA H200"
  std::string uuid;
  int compute_capability = 0;   // 90 for sm_90; 0 on the CPU
  int64_t total_memory = 0;     // bytes
  std::string driver, runtime;  // CUDA versions, "13.0"
  std::string blas;             // library and version
  std::string attention;        // implementation of attention: "cuDNN 9.19.0", "native", "cpu"
  bool bf16 = false;            // bf16 matmul: sm_80 and the CPU

  bool has_tf32() const { return backend == "cpu" || compute_capability >= 80; }
};

/// Device memory outside the arena, in bytes.
struct MemoryInfo {
  int64_t free = 0;   // bytes that an arena could still take
  int64_t later = 0;  // part of `free` that graphs, libraries and their kernels may need after the arena
  int64_t reserved_peak = 0;  // allocated by this backend from the driver or the OS
  int64_t process_peak = 0;   // whole process as the device (or the OS, for the CPU) sees it
  std::string limit{};        // ends error messages where a limit lowers `free`: "; or raise ..."
};

/// Counts the bytes of blocks, which may outlive this and their device.
class HeldBytes {
 public:
  /// Owns `block` and counts its bytes until `free` is called for it.
  std::shared_ptr<void> hold(void* block, size_t bytes, void (*free)(void*)) {
    *now_ += bytes;
    peak_ = std::max(peak_, *now_);
    return {block, [now = now_, bytes, free](void* p) {
              free(p);
              *now -= bytes;
            }};
  }
  int64_t peak() const { return static_cast<int64_t>(peak_); }

 private:
  const std::shared_ptr<size_t> now_ = std::make_shared<size_t>(0);
  size_t peak_ = 0;
};

/// Time, and cycles, on a device between start_timer() and stop_timer().
struct Elapsed {
  double ms = 0.0;
  std::optional<double> cycles;  // SM cycles, the mean over all SMs; with OpsOptions::count_cycles on CUDA
};

/// The ops, memory, clock and state of a device. Ops are queued in order on one stream.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// Queues an op, which has been checked; it may run after the call returns.
  virtual void run(const AnyOp& op) = 0;
  virtual DeviceInfo info() const = 0;
  virtual MemoryInfo memory() = 0;
  /// One block of device memory, 256-byte aligned, freed with its owner. Throws OutOfMemoryError.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;
  /// Page-locked host memory, freed with its owner.
  virtual std::shared_ptr<void> allocate_host(size_t bytes) = 0;
  /// Takes the backend's own scratch (BLAS workspace, sort buffers, reductions) for this configuration from
  /// `arena`. Called once while a trainer is built, before any op.
  virtual void bind_workspace(Arena& arena, const Config& config) = 0;
  /// Sets the precision of every f32 product that follows; it is fp32 where the device has no TF32. The CPU
  /// emulates TF32 by rounding.
  virtual void set_matmul_precision(Precision precision) = 0;
  /// Waits for all queued work; throws the error that it caused.
  virtual void synchronize() = 0;
  /// Names the part of the step that follows, for profilers; closes the part before. nullptr only closes.
  virtual void phase(const char* name, int64_t layer) = 0;
  /// start_timer() and stop_timer() bracket work on the device's own clock; elapsed() synchronises and
  /// returns the time, and the cycles, between them.
  virtual void start_timer() = 0;
  virtual void stop_timer() = 0;
  virtual Elapsed elapsed() = 0;
  /// A clock for single ops. Only one tracer may exist at a time.
  virtual std::unique_ptr<Tracer> make_tracer() = 0;
};

/// When a recorded kernel starts: once the one before it is done, or while that one still runs (programmatic
/// dependent launch; sm_90).
enum class Launch { in_turn, early };

/// Work prepared ahead of time. This base is the graph of a backend without any: it runs the work op by op.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  virtual ~Graph() = default;

  /// Runs `work` and searches the fastest algorithm for each matmul in it, timed on the operands as they are;
  /// does nothing on a backend with one algorithm. Results and accumulators of `work` are left undefined.
  /// Algorithms in cache_dir are not measured again, unless OpsOptions::search_again is set. With
  /// OpsOptions::deterministic, runs `work` without a search.
  virtual void search(const std::function<void()>& /*work*/) {}
  /// Records the ops of `work` without running them (CUDA: as one graph); each call of the result runs them
  /// with one launch. `work` must not wait for the device.
  virtual std::function<void()> record(const std::function<void()>& work, Launch /*launch*/) { return work; }
  virtual CompileInfo info() const { return {}; }
};

/// Communication among ranks. In a world of 1 these functions do nothing.
class Collectives {
 public:
  Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;
  virtual ~Collectives() = default;

  /// Makes this backend a rank of the job that meets in `ranks`: called once, by all ranks, before any op.
  /// `ranks` outlives this backend. Throws Error where the library that ranks talk through is missing, naming
  /// what to install.
  virtual void join(Rendezvous& ranks) = 0;
  /// This rank, and the number of ranks; 0 and 1 without join().
  virtual int rank() const = 0;
  virtual int world() const = 0;
  /// From now on copy engines do reduce_scatter and all_gather of `arena`'s tensors, which leaves all
  /// multiprocessors to the ops; no effect with OpsOptions::copy_engines = false. A reduce_scatter receives
  /// the other ranks' values in `receive_buffer`, a tensor of `arena`, and leaves it undefined. The CPU fills
  /// it with NaN instead, to expose a trainer that still reads it. Called once, by all ranks; the arena
  /// outlives the last collective. Throws UnsupportedError on all ranks if one can't write another's memory.
  virtual void use_copy_engines(const Arena& arena, const Tensor& receive_buffer) = 0;
  /// Queues a collective on the tensors of `bucket`, in place; all ranks must call it with the same
  /// arguments. Sums are rounded to the tensors' type once, but by NCCL after each addition. The collective
  /// runs beside the ops, after those queued so far; the ops that follow must leave the bucket alone until
  /// wait(). Throws std::invalid_argument where a tensor can't be cut into equal parts.
  virtual void queue(Collective what, std::span<const Tensor> bucket) = 0;
  /// The ops that follow wait for the collectives queued so far, except the last `allow_pending` of them.
  virtual void wait(int64_t allow_pending) = 0;
};

struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Graph> graph;
  std::unique_ptr<Collectives> collectives;
};

/// How many devices `backend` has: 1 for the CPU; for "cuda", or "auto" with a CUDA device, as many as this
/// process may use. Creates no context.
int device_count(const std::string& backend);
int cuda_device_count();

}  // namespace stepladder
