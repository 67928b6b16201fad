// The subcommands of `stepladder`. Each function registers one with its options; when it is the one that was
// asked for, parsing runs it and sets `exit_code`. They throw what main() reports.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace stepladder {

void add_list_command(CLI::App& app, int& exit_code);
/// `command_line` goes into the results.
void add_run_command(CLI::App& app, const std::string& command_line, int& exit_code);
/// `command_line` goes into the results.
void add_ablate_command(CLI::App& app, const std::string& command_line, int& exit_code);
/// train and sample become the rung's executable and do not return.
void add_train_command(CLI::App& app);
void add_sample_command(CLI::App& app);
/// `command_line` goes into the profile.
void add_profile_command(CLI::App& app, const std::string& command_line, int& exit_code);
void add_report_command(CLI::App& app, int& exit_code);
void add_diff_command(CLI::App& app);
void add_export_command(CLI::App& app, int& exit_code);
void add_compare_command(CLI::App& app, int& exit_code);
/// `command_line` goes into the noise file and the results.
void add_calibrate_command(CLI::App& app, const std::string& command_line, int& exit_code);
void add_gate_command(CLI::App& app, const std::string& command_line, int& exit_code);
void add_overhead_command(CLI::App& app, int& exit_code);
void add_history_command(CLI::App& app, int& exit_code);
/// As one of several ranks, started by whatever starts ranks, or to start them.
void add_comm_command(CLI::App& app, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);
/// Hidden: what probe_device() starts.
void add_probe_command(CLI::App& app, int& exit_code);

}  // namespace stepladder
