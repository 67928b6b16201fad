// Collectives of ranks on the CPU, through MPI.
#pragma once

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
  /// As Ops::collective, of one tensor; done when it returns.
  void run(Collective what, const Tensor& x);

 private:
  Rendezvous& ranks_;
  const MpiCalls* mpi_;
  std::vector<float> sums_, part_;
};

}  // namespace stepladder
