#include <memory>

#include "bench/cli/commands.h"
#include "bench/run/machine.h"

namespace stepladder {

void add_probe_command(CLI::App& app, int& exit_code) {
  struct ProbeOptions {
    std::string backend = "auto";
    int device = 0;
  };
  auto options = std::make_shared<ProbeOptions>();
  CLI::App* command = app.add_subcommand("probe-device", "")->group("");
  command->add_option("--backend", options->backend);
  command->add_option("--device", options->device);
  command->callback([options, &exit_code] {
    print_device(options->backend, options->device);
    exit_code = 0;
  });
}

}  // namespace stepladder
