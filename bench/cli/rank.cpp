#include "bench/cli/commands.h"
#include "bench/run/agent.h"
#include "model/error.h"

namespace stepladder {

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
