// Collectives through NCCL; the only file that includes nccl.h. NCCL is loaded when there is more than one
// rank.
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/cuda/cuda.h"
#include "model/cuda/libraries.h"
#include "model/cuda/peer_copies.h"
#include "model/cuda/range.h"
#include "model/rendezvous.h"

#ifdef STEPLADDER_NCCL
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#endif

namespace stepladder {
namespace {

#ifdef STEPLADDER_NCCL

/// The functions of libnccl that are used here. Throws Error where it can't be loaded.
struct Nccl {
  DynamicLibrary library = open();
  decltype(&ncclGetErrorString) get_error_string = library.function("ncclGetErrorString");
  decltype(&ncclGetUniqueId) get_unique_id = library.function("ncclGetUniqueId");
  decltype(&ncclCommInitRank) comm_init_rank = library.function("ncclCommInitRank");
  decltype(&ncclCommDestroy) comm_destroy = library.function("ncclCommDestroy");
  decltype(&ncclGroupStart) group_start = library.function("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = library.function("ncclGroupEnd");
  decltype(&ncclAllReduce) all_reduce = library.function("ncclAllReduce");
  decltype(&ncclReduceScatter) reduce_scatter = library.function("ncclReduceScatter");
  decltype(&ncclAllGather) all_gather = library.function("ncclAllGather");
  decltype(&ncclBroadcast) broadcast = library.function("ncclBroadcast");

  static DynamicLibrary open() {
    // Multicast over NVLink needs set-up of the whole machine that may be missing, and hangs without it.
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    return open_library(CudaPart::nccl);
  }
  /// Throws Error with what `status` means.
  void check(ncclResult_t status, const char* call) const {
    if (status != ncclSuccess) throw Error(cat("NCCL: ", get_error_string(status), " in ", call));
  }
};

ncclDataType_t type_of(const Tensor& x) {
  check(!is_fp8(x.dtype), "ranks do not exchange ", x);
  if (x.dtype == DType::i32) return ncclInt32;
  return x.dtype == DType::bf16 ? ncclBfloat16 : x.dtype == DType::f16 ? ncclFloat16 : ncclFloat32;
}

/// NCCL's communicator of the current device. Throws Error naming what to install where NCCL is missing.
class NcclComm {
 public:
  explicit NcclComm(Rendezvous& ranks) : world_(ranks.world()) {
    ncclUniqueId id{};
    if (world_.rank == 0) nccl_.check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    const std::string shared = ranks.share({id.internal, sizeof id.internal});
    std::memcpy(id.internal, shared.data(), std::min(shared.size(), sizeof id.internal));
    nccl_.check(nccl_.comm_init_rank(&comm_, world_.size, id, world_.rank), "ncclCommInitRank");
  }
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;
  ~NcclComm() {
    // After an error the other ranks may never come.
    if (std::uncaught_exceptions() == 0) nccl_.comm_destroy(comm_);
  }

  const World& world() const { return world_; }
  /// A PeerCopies::AllGather, through device memory `all` for the strings of all ranks.
  std::vector<std::string> all_gather(const std::string& bytes, std::byte* all, cudaStream_t stream) const {
    const size_t size = bytes.size();
    std::byte* const mine = all + size * static_cast<size_t>(world_.rank);
    CUDA_CHECK(cudaMemcpyAsync(mine, bytes.data(), size, cudaMemcpyDefault, stream));
    nccl_.check(nccl_.all_gather(mine, all, size, ncclInt8, comm_, stream), "ncclAllGather");
    std::vector<std::string> each(static_cast<size_t>(world_.size), std::string(size, '\0'));
    for (std::string& of : each) {
      CUDA_CHECK(cudaMemcpyAsync(of.data(), all, size, cudaMemcpyDefault, stream));
      all += size;
    }
    CUDA_CHECK(cudaStreamSynchronize(stream));
    return each;
  }
  /// Runs a collective as Collectives::queue() does, on `stream`.
  void run(Collective what, std::span<const Tensor> bucket, cudaStream_t stream) const {
    nccl_.check(nccl_.group_start(), "ncclGroupStart");
    for (const Tensor& x : bucket) nccl_.check(queue(what, x, stream), name_of(what));
    nccl_.check(nccl_.group_end(), "ncclGroupEnd");
  }

 private:
  ncclResult_t queue(Collective what, const Tensor& x, cudaStream_t stream) const {
    const auto n = static_cast<size_t>(x.numel());
    const ncclDataType_t type = type_of(x);
    if (what == Collective::all_reduce)
      return nccl_.all_reduce(x.data, x.data, n, type, ncclSum, comm_, stream);
    if (what == Collective::all_max) {
      // The bits of floats >= 0, as integers, are in the order of the floats, and those of NaN come last.
      return nccl_.all_reduce(x.data, x.data, n, ncclInt32, ncclMax, comm_, stream);
    }
    if (what == Collective::broadcast) return nccl_.broadcast(x.data, x.data, n, type, 0, comm_, stream);
    const Tensor part = part_of(x, world_.rank, world_.size);
    const auto part_n = static_cast<size_t>(part.numel());
    if (what == Collective::all_gather)
      return nccl_.all_gather(part.data, x.data, part_n, type, comm_, stream);
    return nccl_.reduce_scatter(x.data, part.data, part_n, type, ncclSum, comm_, stream);
  }

  const Nccl nccl_;
  const World world_;
  ncclComm_t comm_ = nullptr;
};

#else
struct NcclComm {
  explicit NcclComm(Rendezvous&) {
    throw Error(cat(
        "several CUDA devices need NCCL, which this build is without: install libnccl-dev or nvidia-nccl-cu",
        CUDART_VERSION / 1000, " and build again"));
  }
  static World world() { return {}; }
  static std::vector<std::string> all_gather(const std::string&, std::byte*, cudaStream_t) { return {}; }
  void run(Collective, std::span<const Tensor>, cudaStream_t) const {}
};
#endif

class NcclCollectives final : public Collectives {
 public:
  explicit NcclCollectives(Cuda& cuda) : cuda_(cuda) {}

  void join(Rendezvous& ranks) override {
    comm_ = std::make_unique<NcclComm>(ranks);
    // High priority, so that NCCL's few blocks start before the ready blocks of GEMMs, which would leave them
    // no room.
    cuda_.collective_stream = make_stream(Priority::high);
    begin_ = make_event(cudaEventDisableTiming);
    for (Event& end : end_) end = make_event(cudaEventDisableTiming);
  }
  void use_copy_engines(const Arena& arena, const Tensor& receive_buffer) override {
    if (!comm_ || !cuda_.options.copy_engines) return;
    const PeerCopies::AllGather all_gather = [&](const std::string& bytes) {
      const auto all = cuda_.allocate(bytes.size() * static_cast<size_t>(world()));
      return comm_->all_gather(bytes, static_cast<std::byte*>(all.get()), cuda_.collective_stream.get());
    };
    copies_ = std::make_unique<PeerCopies>(cuda_, arena, receive_buffer, comm_->world(), all_gather);
  }
  int rank() const override { return comm_ ? comm_->world().rank : 0; }
  int world() const override { return comm_ ? comm_->world().size : 1; }

  void queue(Collective what, std::span<const Tensor> bucket) override {
    const Range range(name_of(what));
    const cudaStream_t stream = cuda_.collective_stream.get();
    CUDA_CHECK(cudaEventRecord(begin_.get(), cuda_.stream.get()));
    CUDA_CHECK(cudaStreamWaitEvent(stream, begin_.get(), cudaEventWaitDefault));
    if (copies_ && copies_->supports(what, bucket)) {
      copies_->run(what, bucket, stream);
    } else {
      comm_->run(what, bucket, stream);
    }
    CUDA_CHECK(cudaEventRecord(end_of(queued_++).get(), stream));
  }
  void wait(int64_t allow_pending) override {
    if (queued_ <= allow_pending) return;
    // In a graph, this waits only for collectives queued in that graph. If a later collective has reused the
    // event, this waits for the later one.
    CUDA_CHECK(cudaStreamWaitEvent(cuda_.stream.get(), end_of(queued_ - 1 - allow_pending).get(),
                                   cudaEventWaitDefault));
  }

 private:
  const Event& end_of(int64_t collective) const {
    return end_[static_cast<size_t>(collective) % end_.size()];
  }

  Cuda& cuda_;
  std::unique_ptr<NcclComm> comm_;      // empty: a world of 1
  std::unique_ptr<PeerCopies> copies_;  // empty: not used
  Event begin_;                         // the ops that the last collective waits for are done
  std::array<Event, 16> end_;           // the last collectives are done: the i-th at i modulo 16
  int64_t queued_ = 0;                  // collectives so far
};

}  // namespace

std::unique_ptr<Collectives> make_nccl_collectives(Cuda& cuda) {
  return std::make_unique<NcclCollectives>(cuda);
}

}  // namespace stepladder
