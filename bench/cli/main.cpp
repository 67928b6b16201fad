// main() of `stepladder`: climbs the ladder, one process a run, and reports what each rung buys.
#include <csignal>
#include <filesystem>

#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"
#include "model/error.h"
#include "model/limits.h"

int main(int argc, char** argv) {
  using namespace stepladder;
  // Closing the pipe that stdout goes to must not end a measurement. SIGPIPE gets a handler that does
  // nothing, since children would inherit SIG_IGN.
  std::signal(SIGPIPE, [](int) {});
  std::signal(SIGXFSZ, SIG_IGN);  // a file that passes `ulimit -f` is then an error that names it
  skip_exit_handlers_if_limited();
  try {
    std::vector<Command> commands = {
        list_command(),          run_command(),      tune_command(),     resume_command(),
        ablate_command(),        train_command(),    sample_command(),   profile_command(),
        campaign_command(),      report_command(),   diff_command(),     export_command(),
        convert_command(),       plan_run_command(), compare_command(),  certify_command(),
        calibrate_command(),     gate_command(),     overhead_command(), history_command(),
        check_trainer_command(), doctor_command(),   probe_command(),    rank_command()};
    commands.push_back(completion_command(commands));
    const std::string commit = build_commit();
    return run_command_line(
        {"stepladder", "Trains GPT-2 rung by rung and measures what each optimisation buys.", {}, {}},
        commit.empty() ? version() : cat(version(), kOfCommit, commit, ")"), argc, argv, commands);
  } catch (const Interrupted& e) {
    notice("interrupted");
    return 128 + e.signal;
  } catch (const Error& e) {
    notice(cat("error: ", e.what()));
    return e.code();
  } catch (const std::filesystem::filesystem_error& e) {
    notice("error: " + path_error(e));
    return kExitUsage;
  } catch (const std::exception& e) {
    notice(cat("error: ", e.what()));
    return kExitFailed;
  }
}
