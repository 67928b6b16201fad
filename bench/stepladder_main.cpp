// main() of `stepladder`: climbs the ladder, one process a run, and reports what each rung buys.
#include <iostream>

#include "bench/child.h"
#include "bench/commands.h"
#include "bench/machine.h"
#include "bench/options.h"
#include "bench/this_process.h"
#include "model/error.h"

int main(int argc, char** argv) {
  using namespace stepladder;
  try {
    std::string command_line = "stepladder";
    for (int i = 1; i < argc; ++i) command_line += std::string(" ") + argv[i];

    int exit_code = kExitOk;
    CLI::App app("Trains GPT-2 rung by rung and measures what each optimisation buys.", "stepladder");
    add_help(app, "stepladder " + version());
    app.require_subcommand(1);
    add_list_command(app, exit_code);
    add_run_command(app, command_line, exit_code);
    add_ablate_command(app, command_line, exit_code);
    add_train_command(app);
    add_sample_command(app);
    add_profile_command(app, command_line, exit_code);
    add_report_command(app, exit_code);
    add_diff_command(app);
    add_export_command(app, exit_code);
    add_compare_command(app, exit_code);
    add_calibrate_command(app, command_line, exit_code);
    add_gate_command(app, command_line, exit_code);
    add_overhead_command(app, exit_code);
    add_history_command(app, exit_code);
    add_comm_command(app, exit_code);
    add_doctor_command(app, exit_code);
    add_probe_command(app, exit_code);
    parse_command_line(app, argc, argv);
    flush_output();
    return exit_code;
  } catch (const Interrupted& e) {
    std::cerr << "stepladder: interrupted" << std::endl;
    return 128 + e.signal;
  } catch (const Error& e) {
    std::cerr << "stepladder: error: " << e.what() << std::endl;
    return e.code();
  } catch (const std::exception& e) {
    std::cerr << "stepladder: error: " << e.what() << std::endl;
    return kExitFailed;
  }
}
