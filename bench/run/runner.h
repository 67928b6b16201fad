// One run: a program in a process of its own, from its start to a status.
#pragma once

#include <functional>

#include "bench/results/results.h"
#include "bench/run/workload.h"

namespace stepladder {

/// Runs a program and survives anything that it does. A status per run:
///
///   ok           it reported every step and its end
///   oom, unsupported, diverged   it said so; diverged also for a loss that is not finite
///   crash        a signal, an exit status, or a report that makes no sense; the reason says which
///   timeout      killed after timeout_s
///
/// A ladder file's trainer may leave out most of what ours tell, but what it tells must match what it was
/// asked for; a wrong number is a crash, with the event named.
///
/// On several devices the status is that of the rank that failed first, which ends the others; the reason
/// begins with "rank 2: ", or with "rank 2 (node01): " where a launcher starts the ranks. Without a launcher
/// the harness starts them itself.
///
/// `on_step` is called for each step of rank 0. Throws InputError with the child's words when a rung refuses
/// its input (exit status 2), since every other rung would too; Interrupted; Error when the executable cannot
/// be started, and with kExitNotComparable when it is no longer the one of the plan.
Run run_program(const Workload& workload, const std::function<void(const Step&)>& on_step);

}  // namespace stepladder
