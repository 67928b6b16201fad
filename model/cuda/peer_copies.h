// What the ranks of one machine move by their devices' copy engines, which leave the multiprocessors to the
// ops beside them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/arena.h"
#include "model/comm.h"
#include "model/cuda/cuda.h"

namespace stepladder {

/// Each rank writes into the others' memory (CUDA IPC), and tells by a word there that it has: streams wait
/// for such words without a kernel (cuStreamBatchMemOp), so all of it can be recorded in a graph.
class PeerCopies {
 public:
  /// All ranks' strings of one length, in their order.
  using AllGather = std::function<std::vector<std::string>(const std::string&)>;

  /// Opens the memory of the others' arenas. What they send to be summed lies in `room`, at the same place of
  /// each arena. Called by all ranks. Throws UnsupportedError on all of them where one can't: its device does
  /// not reach another's, or they are on several machines.
  PeerCopies(Cuda& cuda, const Arena& arena, const Tensor& room, const World& world,
             const AllGather& all_gather);

  /// Whether run() moves these: reduce_scatter or all_gather of the arena's tensors, of one
  /// type.
  bool moves(Collective what, std::span<const Tensor> bucket) const;
  /// As Collectives::queue(), queued on `stream`. Sums are taken in f32, and rounded once.
  void run(Collective what, std::span<const Tensor> bucket, cudaStream_t stream);

 private:
  struct Close {
    void operator()(void* opened) const noexcept { CUDA_CHECK_NOEXCEPT(cudaIpcCloseMemHandle(opened)); }
  };
  using Opened = std::unique_ptr<void, Close>;
  struct Peer {
    int rank = 0;
    Opened arena, signals;
  };
  /// A run of elements of every rank's part of a tensor.
  struct Piece {
    Tensor whole;
    int64_t begin = 0, n = 0;
    int64_t offset = 0;  // of where it arrives, from what its sender sends first
    /// Where it begins in rank `rank`'s part.
    std::byte* in_part(int rank, int world) const;
  };
  enum class Signal { ready, arrived };

  int others() const { return world_.size - 1; }
  /// Where that is in another's arena.
  std::byte* at(const Peer& peer, const void* in_ours) const {
    return static_cast<std::byte*>(peer.arena.get()) +
           (static_cast<const std::byte*>(in_ours) - static_cast<const std::byte*>(arena_.data()));
  }
  void meet(Signal signal, cudaStream_t stream);
  void copy(void* to, const void* from, int64_t bytes, cudaStream_t stream);
  void reduce(std::span<const Piece> pieces, cudaStream_t stream);

  Cuda& cuda_;
  const World world_;
  const Arena& arena_;
  const Tensor room_;
  const int64_t stride_;  // bytes of it for each of the others
  const std::shared_ptr<void> signals_;
  std::vector<Peer> peers_;  // from the next rank on, so that all send to different ones
};

}  // namespace stepladder
