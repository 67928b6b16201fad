// Collectives of ranks on the CPU, through MPI.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "model/comm.h"
#include "model/mpi/module.h"
#include "model/rendezvous.h"

namespace stepladder {

/// Sums are f32 and rounded once, whatever the tensors' type.
class MpiComm {
 public:
  /// Loads MPI. Throws Error where it is missing, or its ranks are not those of the rendezvous.
  explicit MpiComm(Rendezvous& ranks);
  /// Waits for all ranks, unless an error ends this one.
  ~MpiComm();
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  int rank() const { return ranks_.world().rank; }
  int world() const { return ranks_.world().size; }
  /// As Collectives::queue: takes what is in the tensors now, and is run when finish() asks for it. So an op
  /// that should have waited finds what was there before, and what it writes is lost.
  void queue(Collective what, std::span<const Tensor> bucket);
  /// Runs those that are queued, but for the last `allow_pending`.
  void finish(int64_t allow_pending);

 private:
  void run(Collective what, const Tensor& x);

  struct Queued {
    Collective what;
    std::vector<std::pair<Tensor, std::vector<std::byte>>> bucket;  // with what was in them
  };
  Rendezvous& ranks_;
  const MpiCalls* mpi_;
  std::deque<Queued> queued_;
  std::vector<float> sums_, part_;
};

}  // namespace stepladder
