// Collectives of ranks on the CPU, through MPI.
#pragma once

#include <memory>

#include "model/device.h"

namespace stepladder {

/// Collectives whose join() loads MPI, and throws Error where MPI is missing or its ranks are not those of
/// the rendezvous. Sums are f32 and rounded once, whatever the tensors' type. queue() copies the tensors'
/// contents, and wait() runs the collective on the copy: an op that should have waited reads old values, and
/// what it writes is lost. The destructor waits for all ranks, unless an error ends this one.
std::unique_ptr<Collectives> make_mpi_collectives();

}  // namespace stepladder
