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

constexpr size_t signal_bytes(int world) {
  return size_t{2} * static_cast<size_t>(world) * sizeof(uint32_t);
}

/// What a rank tells the others.
struct Card {
  char host[256];
  cudaIpcMemHandle_t arena, signals;
};

template <class T>
constexpr int kWide = kWideBytes / static_cast<int>(sizeof(T));
template <class T>
constexpr int kTile = kThreads* kItems* kWide<T>;

template <class T>
struct Arrived {
  T* x;
  const T* others;  // of the first of them
  int64_t n;
  bool wide;
};

// x += what `others` ranks have sent, which lies `stride` elements apart: kWidth elements at a time
template <int kWidth, class T>
__device__ void add_tile(const Arrived<T>& to, int64_t begin, int64_t stride, int others) {
  constexpr int kSteps = kTile<T> / (kThreads * kWidth), kAtOnce = kSteps < kItems ? kSteps : kItems;
  for (int step = 0; step < kSteps; step += kAtOnce) {
    float sum[kAtOnce][kWidth];
    const auto at = [&](int j) {
      return begin + static_cast<int64_t>((step + j) * kThreads + static_cast<int>(threadIdx.x)) * kWidth;
    };
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (at(j) < to.n) Pack<T, kWidth>::load(to.x + at(j)).get(sum[j]);
    for (int other = 0; other < others; ++other) {
      Pack<T, kWidth> packs[kAtOnce];
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
    add_arrived_kernel(const __grid_constant__ TensorBatch<Arrived<T>> batch, int64_t stride, int others) {
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

PeerCopies::PeerCopies(Cuda& cuda, const Arena& arena, const Tensor& room, const World& world,
                       const AllGather& all_gather)
    : cuda_(cuda),
      world_(world),
      arena_(arena),
      room_(room),
      stride_(static_cast<int64_t>(room.bytes()) / others() / kAlignment * kAlignment),
      signals_(cuda.allocate(signal_bytes(world.size))) {
  check(stride_ > 0, room, " has no room for what ", others(), " others send");
  CUDA_CHECK(cudaMemset(signals_.get(), 0, signal_bytes(world.size)));
  CUDA_CHECK(cudaDeviceSynchronize());
  Card card{};
  const std::string host = host_name();
  host.copy(card.host, sizeof card.host - 1);
  CUDA_CHECK(cudaIpcGetMemHandle(&card.arena, arena.data()));
  CUDA_CHECK(cudaIpcGetMemHandle(&card.signals, signals_.get()));
  const std::vector<std::string> cards = all_gather({reinterpret_cast<const char*>(&card), sizeof card});

  std::string reason;
  for (int k = 1; k < world.size && reason.empty(); ++k) {
    Peer peer;
    peer.rank = (world.rank + k) % world.size;
    Card theirs;
    std::memcpy(&theirs, cards[static_cast<size_t>(peer.rank)].data(), sizeof theirs);
    const auto open = [&](const cudaIpcMemHandle_t& handle) {
      void* opened = nullptr;
      const cudaError_t error = cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess);
      if (error == cudaSuccess) return Opened(opened);
      cudaGetLastError();
      reason = cat("rank ", world.rank, " can't write to rank ", peer.rank,
                   "'s memory: ", cudaGetErrorString(error));
      return Opened();
    };
    if (std::strcmp(theirs.host, card.host) != 0) {
      reason = cat("rank ", world.rank, " is on ", card.host, ", rank ", peer.rank, " on ", theirs.host);
    } else {
      peer.arena = open(theirs.arena);
      peer.signals = open(theirs.signals);
    }
    peers_.push_back(std::move(peer));
  }
  reason.resize(kReasonLength);
  for (const std::string& theirs : all_gather(reason))
    if (theirs[0] != '\0') throw UnsupportedError(cat("copy engines reach one machine: ", theirs.c_str()));
}

bool PeerCopies::moves(Collective what, std::span<const Tensor> bucket) const {
  const auto* const begin = static_cast<const std::byte*>(arena_.data());
  return (what == Collective::reduce_scatter || what == Collective::all_gather) &&
         std::ranges::all_of(bucket, [&](const Tensor& x) {
           const auto* const at = static_cast<const std::byte*>(x.data);
           return at >= begin && at < begin + arena_.bytes() && x.dtype == bucket[0].dtype;
         });
}

std::byte* PeerCopies::Piece::in_part(int rank, int world) const {
  return static_cast<std::byte*>(part_of(whole, rank, world).data) +
         begin * static_cast<int64_t>(size_of(whole.dtype));
}

void PeerCopies::copy(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream));
}

/// Tells all others, and waits until they have told; then takes back what they have told, for the next time.
/// None tells it again before that: in between they wait for the other signal of this rank.
void PeerCopies::meet(Signal signal, cudaStream_t stream) {
  static const DynamicLibrary driver("libcuda.so.1", "the CUDA driver could not be loaded");
  static const decltype(&cuStreamBatchMemOp) queue = driver.function("cuStreamBatchMemOp_v2");
  const auto word = [&](const void* signals, int rank) {
    const int i = static_cast<int>(signal) * world_.size + rank;
    return reinterpret_cast<CUdeviceptr>(signals) + static_cast<CUdeviceptr>(i) * sizeof(uint32_t);
  };
  std::vector<CUstreamBatchMemOpParams> operations;
  const auto write = [&](CUdeviceptr address, uint32_t value) {
    CUstreamBatchMemOpParams& operation = operations.emplace_back();
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = address;
    operation.writeValue.value = value;
    operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  };
  for (const Peer& peer : peers_) write(word(peer.signals.get(), world_.rank), 1);
  for (const Peer& peer : peers_) {
    CUstreamBatchMemOpParams& operation = operations.emplace_back();
    operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    operation.waitValue.address = word(signals_.get(), peer.rank);
    operation.waitValue.value = 1;
    operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  }
  for (const Peer& peer : peers_) write(word(signals_.get(), peer.rank), 0);
  const CUresult result = queue(stream, static_cast<unsigned>(operations.size()), operations.data(), 0);
  if (result != CUDA_SUCCESS) throw Error(cat("cuStreamBatchMemOp failed: ", static_cast<int>(result)));
}

void PeerCopies::reduce(std::span<const Piece> pieces, cudaStream_t stream) {
  const auto* const room = static_cast<const std::byte*>(room_.data);
  meet(Signal::ready, stream);
  for (const Peer& peer : peers_) {
    const int slot = world_.rank < peer.rank ? world_.rank : world_.rank - 1;
    for (const Piece& piece : pieces)
      copy(at(peer, room + slot * stride_ + piece.offset), piece.in_part(peer.rank, world_.size),
           piece.n * static_cast<int64_t>(size_of(piece.whole.dtype)), stream);
  }
  meet(Signal::arrived, stream);
  Queue queue{.stream = stream};
  with_float_type(pieces[0].whole.dtype, [&]<class T>(T) {
    const auto arrived = [&](size_t i) {
      T* const x = reinterpret_cast<T*>(pieces[i].in_part(world_.rank, world_.size));
      return Arrived<T>{x, reinterpret_cast<const T*>(room + pieces[i].offset), pieces[i].n,
                        cuda_.options.wide_access && aligned(x) && pieces[i].n % kWide<T> == 0};
    };
    for_each_batch(pieces.size(), kTile<T>, arrived, [&](const TensorBatch<Arrived<T>>& batch, int tiles) {
      launch(queue, add_arrived_kernel<T>, static_cast<unsigned>(tiles), kThreads, 0, batch,
             stride_ / static_cast<int64_t>(sizeof(T)), others());
    });
  });
}

void PeerCopies::run(Collective what, std::span<const Tensor> bucket, cudaStream_t stream) {
  if (what == Collective::all_gather) {
    meet(Signal::ready, stream);
    for (const Peer& peer : peers_)
      for (const Tensor& x : bucket) {
        const Tensor part = part_of(x, world_.rank, world_.size);
        copy(at(peer, part.data), part.data, static_cast<int64_t>(part.bytes()), stream);
      }
    return meet(Signal::arrived, stream);
  }
  // As much at a time as there is room for.
  std::vector<Piece> pieces;
  int64_t used = 0;
  for (const Tensor& x : bucket) {
    const int64_t size = static_cast<int64_t>(size_of(x.dtype)), n = x.numel() / world_.size;
    for (int64_t begin = 0; begin < n;) {
      if (used >= stride_) {
        reduce(pieces, stream);
        pieces.clear();
        used = 0;
      }
      const Piece& piece = pieces.emplace_back(Piece{
          .whole = x, .begin = begin, .n = std::min(n - begin, (stride_ - used) / size), .offset = used});
      begin += piece.n;
      used = ceil_div(used + piece.n * size, kAlignment) * kAlignment;
    }
  }
  if (!pieces.empty()) reduce(pieces, stream);
}

}  // namespace stepladder
