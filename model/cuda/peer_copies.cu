#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "model/cuda/dynamic_library.h"
#include "model/cuda/kernels.cuh"
#include "model/cuda/multi_tensor.cuh"
#include "model/cuda/peer_copies.h"
#include "model/cuda/wide.cuh"
#include "model/rendezvous.h"

namespace stepladder {
namespace {

constexpr int64_t kAlignment = 256;
constexpr size_t kReasonLength = 256;

/// The memory that a rank opens to the others.
struct Exports {
  char host[256];
  cudaIpcMemHandle_t arena, flags;
  int64_t arena_bytes, buffer_offset;
};

/// Flags of both barriers, and one that is always set.
size_t flag_count(int world) {
  return 2 * static_cast<size_t>(world) + 1;
}

void copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

template <class T>
constexpr int kTile = kThreads* kItems* kWide<T>;

template <class T>
struct Received {
  T* x;
  const T* others;  // the values that the first of the other ranks sent
  int64_t n;
  bool wide;
};

// x += the values that `others` ranks have sent, `stride` elements apart; kWidth elements at a time
template <int kWidth, class T>
__device__ void add_tile(const Received<T>& to, int64_t begin, int64_t stride, int others) {
  constexpr int kSteps = kTile<T> / (kThreads * kWidth), kAtOnce = kSteps < kItems ? kSteps : kItems;
  for (int step = 0; step < kSteps; step += kAtOnce) {
    float sum[kAtOnce][kWidth] = {};
    const auto at = [&](int j) {
      return begin + static_cast<int64_t>((step + j) * kThreads + static_cast<int>(threadIdx.x)) * kWidth;
    };
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (at(j) < to.n) Pack<T, kWidth>::load(to.x + at(j)).get(sum[j]);
    for (int other = 0; other < others; ++other) {
      Pack<T, kWidth> packs[kAtOnce] = {};
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        if (at(j) < to.n) packs[j] = Pack<T, kWidth>::load_once(to.others + other * stride + at(j));
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        float x[kWidth];
        packs[j].get(x);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum[j][k] += x[k];
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (at(j) < to.n) Pack<T, kWidth>::of(sum[j]).store(to.x + at(j));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_received_kernel(const __grid_constant__ TensorBatch<Received<T>> batch, int64_t stride, int others) {
  await_predecessor();
  const int tile = static_cast<int>(blockIdx.x), i = tensor_of(batch, tile);
  const int64_t begin = static_cast<int64_t>(tile - batch.first_tile[i]) * kTile<T>;
  if (batch.at[i].wide) {
    add_tile<kWide<T>>(batch.at[i], begin, stride, others);
  } else {
    add_tile<1>(batch.at[i], begin, stride, others);
  }
}

}  // namespace

PeerCopies::PeerCopies(Cuda& cuda, const Arena& arena, const Tensor& receive_buffer, const World& world,
                       const AllGather& all_gather)
    : cuda_(cuda),
      world_(world),
      arena_(static_cast<std::byte*>(arena.data())),
      arena_bytes_(arena.bytes()),
      receive_buffer_(static_cast<std::byte*>(receive_buffer.data)),
      slot_(static_cast<int64_t>(receive_buffer.bytes()) / others() / kAlignment * kAlignment),
      flags_(cuda.allocate(flag_count(world.size) * sizeof(uint32_t))),
      set_(static_cast<uint32_t*>(flags_.get()) + flag_count(world.size) - 1) {
  check(slot_ > 0, receive_buffer, " has no room for what ", others(), " others send");
  constexpr uint32_t kSet = 1;
  CUDA_CHECK(cudaMemset(flags_.get(), 0, flag_count(world.size) * sizeof(uint32_t)));
  CUDA_CHECK(cudaMemcpy(set_, &kSet, sizeof kSet, cudaMemcpyDefault));
  CUDA_CHECK(cudaDeviceSynchronize());

  // A rank that fails goes on to the end, where all ranks hear of its failure.
  std::string reason;
  const auto succeeds = [&](cudaError_t error, const std::string& what) {
    if (error == cudaSuccess) return true;
    cudaGetLastError();
    if (reason.empty()) reason = cat("rank ", world.rank, " can't ", what, ": ", cudaGetErrorString(error));
    return false;
  };
  Exports mine{};
  mine.arena_bytes = arena_bytes_;
  mine.buffer_offset = receive_buffer_ - arena_;
  host_name().copy(mine.host, sizeof mine.host - 1);
  succeeds(cudaIpcGetMemHandle(&mine.arena, arena_), "share its memory");
  succeeds(cudaIpcGetMemHandle(&mine.flags, flags_.get()), "share its memory");
  const std::vector<std::string> all = all_gather({reinterpret_cast<const char*>(&mine), sizeof mine});

  const auto open = [&](const cudaIpcMemHandle_t& handle, int rank) {
    void* opened = nullptr;
    const bool is_open = succeeds(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess),
                                  cat("write to rank ", rank, "'s memory"));
    return Opened(is_open ? opened : nullptr);
  };
  for (int k = 1; k < world.size && reason.empty(); ++k) {
    Peer& peer = peers_.emplace_back();
    peer.rank = (world.rank + k) % world.size;
    Exports theirs;
    std::memcpy(&theirs, all[static_cast<size_t>(peer.rank)].data(), sizeof theirs);
    if (std::strcmp(theirs.host, mine.host) != 0) {
      reason = cat("rank ", world.rank, " is on ", mine.host, ", rank ", peer.rank, " on ", theirs.host);
    } else if (theirs.arena_bytes != mine.arena_bytes || theirs.buffer_offset != mine.buffer_offset) {
      reason = cat("rank ", world.rank, " and rank ", peer.rank, " lay out their memory differently");
    } else {
      peer.arena = open(theirs.arena, peer.rank);
      peer.flags = open(theirs.flags, peer.rank);
    }
  }
  if (reason.empty()) {
    // Try a wait for flags that are already set: a driver that can't wait for values fails here, not later.
    try {
      for (const Peer& peer : peers_)
        copy(flag(flags_.get(), Barrier::ready, peer.rank), set_, sizeof kSet, cuda_.stream.get());
      wait(Barrier::ready, cuda_.stream.get());
      cuda_.synchronize();
    } catch (const Error& e) {
      reason = cat("rank ", world.rank, ": ", e.what());
    }
  }
  reason.resize(kReasonLength);
  for (const std::string& theirs : all_gather(reason))
    if (theirs[0] != '\0')
      throw UnsupportedError(
          cat("the copy engines can't exchange gradients: ", theirs.c_str(), ": --nccl leaves it to NCCL"));
}

bool PeerCopies::supports(Collective what, std::span<const Tensor> bucket) const {
  return (what == Collective::reduce_scatter || what == Collective::all_gather) &&
         std::ranges::all_of(bucket, [&](const Tensor& x) {
           const auto* const data = static_cast<const std::byte*>(x.data);
           return data >= arena_ && data < arena_ + arena_bytes_ && x.dtype == bucket[0].dtype;
         });
}

std::byte* PeerCopies::Piece::in_part(int rank, int world) const {
  return static_cast<std::byte*>(part_of(whole, rank, world).data) +
         begin * static_cast<int64_t>(size_of(whole.dtype));
}

/// Waits until all other ranks have set their flags here, then clears the flags.
void PeerCopies::wait(Barrier barrier, cudaStream_t stream) {
  static const decltype(&cuStreamBatchMemOp) queue = cuda_driver().function("cuStreamBatchMemOp_v2");
  std::vector<CUstreamBatchMemOpParams> operations;
  for (const Peer& peer : peers_) {
    const auto address = reinterpret_cast<CUdeviceptr>(flag(flags_.get(), barrier, peer.rank));
    CUstreamBatchMemOpParams& wait = operations.emplace_back();
    wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.waitValue.address = address;
    wait.waitValue.value = 1;
    wait.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    CUstreamBatchMemOpParams& reset = operations.emplace_back();
    reset.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    reset.writeValue.address = address;
    reset.writeValue.value = 0;
    reset.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  }
  const CUresult result = queue(stream, static_cast<unsigned>(operations.size()), operations.data(), 0);
  if (result != CUDA_SUCCESS) throw Error(cat("cuStreamBatchMemOp failed: ", static_cast<int>(result)));
}

/// Sets this rank's flag at all other ranks, and waits for their flags here. A rank sets a flag again only
/// after its receiver has cleared it: in between it waits at the other barrier for a flag that the receiver
/// sets later. Flags are copied, since drivers from CUDA 13.1 on write values to a device's own memory alone.
void PeerCopies::pass(Barrier barrier, cudaStream_t stream) {
  for (const Peer& peer : peers_)
    copy(flag(peer.flags.get(), barrier, world_.rank), set_, sizeof(uint32_t), stream);
  wait(barrier, stream);
}

void PeerCopies::reduce(std::span<const Piece> pieces, cudaStream_t stream) {
  pass(Barrier::ready, stream);
  for (const Peer& peer : peers_) {
    const int sender = world_.rank < peer.rank ? world_.rank : world_.rank - 1;
    for (const Piece& piece : pieces)
      copy(at(peer, receive_buffer_ + sender * slot_ + piece.offset), piece.in_part(peer.rank, world_.size),
           static_cast<size_t>(piece.n) * size_of(piece.whole.dtype), stream);
  }
  pass(Barrier::arrived, stream);
  Queue queue{.stream = stream};
  with_float_type(pieces[0].whole.dtype, [&]<class T>(T) {
    const auto received = [&](size_t i) {
      T* const x = reinterpret_cast<T*>(pieces[i].in_part(world_.rank, world_.size));
      return Received<T>{x, reinterpret_cast<const T*>(receive_buffer_ + pieces[i].offset), pieces[i].n,
                         cuda_.options.wide_access && aligned(x) && pieces[i].n % kWide<T> == 0};
    };
    for_each_batch(pieces.size(), kTile<T>, received, [&](const TensorBatch<Received<T>>& batch, int tiles) {
      launch(queue, add_received_kernel<T>, static_cast<unsigned>(tiles), kThreads, 0, batch,
             slot_ / static_cast<int64_t>(sizeof(T)), others());
    });
  });
}

void PeerCopies::run(Collective what, std::span<const Tensor> bucket, cudaStream_t stream) {
  for (const Tensor& x : bucket) part_of(x, world_.rank, world_.size);  // throws now if x has no equal parts
  if (what == Collective::all_gather) {
    pass(Barrier::ready, stream);
    for (const Peer& peer : peers_)
      for (const Tensor& x : bucket) {
        const Tensor part = part_of(x, world_.rank, world_.size);
        copy(at(peer, part.data), part.data, part.bytes(), stream);
      }
    return pass(Barrier::arrived, stream);
  }
  // Sum as much at a time as the receive buffer has room for.
  std::vector<Piece> pieces;
  int64_t used = 0;
  for (const Tensor& x : bucket) {
    const int64_t size = static_cast<int64_t>(size_of(x.dtype)), n = x.numel() / world_.size;
    for (int64_t begin = 0; begin < n;) {
      if (used >= slot_) {
        reduce(pieces, stream);
        pieces.clear();
        used = 0;
      }
      const Piece& piece = pieces.emplace_back(
          Piece{.whole = x, .begin = begin, .n = std::min(n - begin, (slot_ - used) / size), .offset = used});
      begin += piece.n;
      used = ceil_div(used + piece.n * size, kAlignment) * kAlignment;
    }
  }
  if (!pieces.empty()) reduce(pieces, stream);
}

}  // namespace stepladder
