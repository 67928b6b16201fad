// The subcommands of `stepladder`, a file each. They throw what main() reports.
#pragma once

#include "bench/base/options.h"

namespace stepladder {

Command list_command();
Command run_command();
/// Becomes the command that a results file names, with --resume, and does not return.
Command resume_command();
Command ablate_command();
/// train and sample become the rung's executable and do not return.
Command train_command();
Command sample_command();
Command profile_command();
/// Starts run, ablate and profile, a child process each.
Command campaign_command();
Command report_command();
Command diff_command();
Command export_command();
/// Becomes reports/convert.py, and does not return.
Command convert_command();
Command plan_run_command();
Command compare_command();
Command certify_command();
Command calibrate_command();
Command gate_command();
Command overhead_command();
Command history_command();
Command check_trainer_command();
Command doctor_command();
/// Prints a script for bash and zsh that completes the command lines of `commands`.
Command completion_command(const std::vector<Command>& commands);
/// Hidden: the child process that probe_device() starts.
Command probe_command();
/// Hidden: the process that a launcher starts for each rank.
Command rank_command();

}  // namespace stepladder
