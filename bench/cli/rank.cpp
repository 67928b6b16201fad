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
  constexpr const char* kHidden = "";
  return {.name = "rank",
          .about = "",
          .options = {{"to", &agent->to, "HOST:PORT", "", kHidden},
                      {"folder", &agent->folder, "DIR", "", kHidden},
                      {"backend", &agent->backend, "NAME", "", kHidden},
                      {"warmup", &agent->due.warmup, "N", "", kHidden},
                      {"steps", &agent->due.steps, "N", "", kHidden},
                      {"eval-every", &agent->due.eval_every, "N", "", kHidden},
                      {"clocks", &agent->clocks, "", "", kHidden}},
          .run = run,
          .rest = &agent->command};
}

}  // namespace stepladder
