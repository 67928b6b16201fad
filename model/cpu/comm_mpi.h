// Collectives of ranks on the CPU, through MPI.
#pragma once

#include <memory>

#include "model/device.h"

namespace stepladder {

/// join() loads MPI, and throws Error where it is missing or its ranks are not those of the rendezvous. Sums
/// are f32 and rounded once, whatever the tensors' type. queue() takes what is in the tensors now, and wait()
/// runs it: so an op that should have waited finds what was there before, and what it writes is lost. The
/// destructor waits for all ranks, unless an error ends this one.
std::unique_ptr<Collectives> make_mpi_collectives();

}  // namespace stepladder
