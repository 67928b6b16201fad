// Collectives of CUDA devices, through NCCL.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>

#include "model/comm.h"
#include "model/rendezvous.h"

namespace stepladder {

class NcclComm {
 public:
  virtual ~NcclComm() = default;
  /// As Collectives::queue(), queued on `stream`.
  virtual void run(Collective what, std::span<const Tensor> bucket, cudaStream_t stream) = 0;
  virtual const World& world() const = 0;
};

/// Of the current device. Loads NCCL; throws Error naming what to install where it is missing.
std::unique_ptr<NcclComm> make_nccl_comm(Rendezvous& ranks);

}  // namespace stepladder
