#include "bench/cli/commands.h"
#include "bench/run/machine.h"

namespace stepladder {
namespace {

struct ProbeOptions {
  std::string backend = "auto";
  int device = 0;

  std::vector<Option> options() { return {{"backend", &backend, "", ""}, {"device", &device, "", ""}}; }
};

int probe(ProbeOptions& options) {
  print_device(options.backend, options.device);
  return 0;
}

}  // namespace

Command probe_command() {
  return command<ProbeOptions>("probe-device", "", probe);
}

}  // namespace stepladder
