// Reduce-scatter and all-gather among the GPUs of one machine by their copy engines, which leaves all
// multiprocessors to GEMMs.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/arena.h"
#include "model/comm.h"
#include "model/cuda/cuda.h"

namespace stepladder {

/// Collectives in which each rank copies into the other ranks' arenas (CUDA IPC), and then sets a flag there.
/// Streams wait for flags without a kernel (cuStreamBatchMemOp), so a graph can record the whole collective.
class PeerCopies {
 public:
  /// Returns the strings of all ranks, of one length, in the order of ranks.
  using AllGather = std::function<std::vector<std::string>(const std::string&)>;

  /// Opens the other ranks' arenas, which have the layout of `arena`. Values that other ranks send to be
  /// summed arrive in `receive_buffer`, a tensor of `arena`. Called by all ranks; `arena` outlives the last
  /// collective. Throws UnsupportedError on all ranks if one of them can't open the others' arenas: its
  /// device does not reach another rank's, or the ranks are on several machines.
  PeerCopies(Cuda& cuda, const Arena& arena, const Tensor& receive_buffer, const World& world,
             const AllGather& all_gather);

  /// Whether run() can do `what`: reduce_scatter or all_gather of the arena's tensors, all of one type.
  bool supports(Collective what, std::span<const Tensor> bucket) const;
  /// Runs a collective as Collectives::queue() does, on `stream`. Sums are taken in f32, and rounded once.
  void run(Collective what, std::span<const Tensor> bucket, cudaStream_t stream);

 private:
  struct Close {
    void operator()(void* opened) const noexcept { CUDA_CHECK_NOEXCEPT(cudaIpcCloseMemHandle(opened)); }
  };
  using Opened = std::unique_ptr<void, Close>;
  struct Peer {
    int rank = 0;
    Opened arena, flags;
  };
  /// A run of elements, at the same place in every rank's part of a tensor.
  struct Piece {
    Tensor whole;
    int64_t begin = 0, n = 0;
    int64_t offset = 0;  // in bytes, within a sender's slot of the receive buffer
    /// Where the piece begins in rank `rank`'s part.
    std::byte* in_part(int rank, int world) const;
  };
  /// ready: this rank's memory may be written to. arrived: it has been written to.
  enum class Barrier { ready, arrived };

  int others() const { return world_.size - 1; }
  /// The place in the peer's arena of `in_ours`, an address in this rank's arena.
  std::byte* at(const Peer& peer, const void* in_ours) const {
    return static_cast<std::byte*>(peer.arena.get()) + (static_cast<const std::byte*>(in_ours) - arena_);
  }
  uint32_t* flag(void* of, Barrier barrier, int rank) const {
    return static_cast<uint32_t*>(of) + static_cast<int>(barrier) * world_.size + rank;
  }
  void wait(Barrier barrier, cudaStream_t stream);
  void pass(Barrier barrier, cudaStream_t stream);
  void reduce(std::span<const Piece> pieces, cudaStream_t stream);

  Cuda& cuda_;
  const World world_;
  std::byte* const arena_;
  const int64_t arena_bytes_;
  std::byte* const receive_buffer_;
  const int64_t slot_;  // bytes of the receive buffer for each other rank
  const std::shared_ptr<void> flags_;
  uint32_t* const set_;      // a flag that is set, to copy
  std::vector<Peer> peers_;  // from the next rank on, so that all ranks begin with different peers
};

}  // namespace stepladder
