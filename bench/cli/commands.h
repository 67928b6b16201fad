// The subcommands of `stepladder`, a file each. They throw what main() reports.
#pragma once

#include <string>
#include <vector>

#include "bench/base/options.h"

namespace stepladder {

struct Results;

Command list_command();
Command run_command();
Command tune_command();
/// `resume` replaces this process by the command that a results file names, with --resume added.
Command resume_command();
/// The command line by which `resume` goes on with `results`, which lie in `place`, FILE or FILE:PART, with
/// `more` options. What starts programs is given again.
std::string resuming(const Results& results, const std::string& place,
                     const std::vector<std::string>& more = {});
Command ablate_command();
/// `train` and `sample` replace this process by the rung's executable.
Command train_command();
Command sample_command();
Command profile_command();
/// `campaign` starts run, ablate and profile, each as a child process.
Command campaign_command();
Command report_command();
Command diff_command();
Command export_command();
/// `convert` replaces this process by reports/convert.py.
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
/// `completion` prints a script for bash and zsh that completes the command lines of `commands`.
Command completion_command(const std::vector<Command>& commands);
/// A command that help hides: probe_device() starts it as a child process.
Command probe_command();
/// A command that help hides: a launcher starts it once for each rank.
Command rank_command();

}  // namespace stepladder
