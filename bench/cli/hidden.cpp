// Subcommands that help hides, since Stepladder itself and its launchers start them.
#include "bench/cli/commands.h"
#include "bench/run/agent.h"
#include "bench/run/machine.h"
#include "model/error.h"

namespace stepladder {
namespace {

struct ProbeOptions {
  std::string backend = "auto";
  int device = 0;

  std::vector<Option> options() { return {{"backend", &backend, "", ""}, {"device", &device, "", ""}}; }
};

int probe(ProbeOptions& options) {
  print_device(options.backend, options.device);
  return kExitOk;
}

}  // namespace

Command probe_command() {
  return command<ProbeOptions>("probe-device", "", probe);
}

Command rank_command() {
  const auto agent = std::make_shared<AgentOptions>();
  const auto run = [agent] {
    if (agent->command.empty() || agent->to.empty())
      throw InputError("stepladder rank --to HOST:PORT COMMAND...: a launcher of `stepladder run` starts it");
    return run_as_rank(*agent);
  };
  return {.name = "rank",
          .about = "",
          .options = {{"to", &agent->to, "HOST:PORT", ""},
                      {"folder", &agent->folder, "DIR", ""},
                      {"backend", &agent->backend, "NAME", ""},
                      {"warmup", &agent->due.warmup, "N", ""},
                      {"steps", &agent->due.steps, "N", ""},
                      {"eval-every", &agent->due.eval_every, "N", ""},
                      {"clocks", &agent->clocks, "", ""}},
          .run = run,
          .rest = &agent->command};
}

}  // namespace stepladder
