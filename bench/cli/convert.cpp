#include "bench/base/place.h"
#include "bench/cli/commands.h"
#include "bench/results/file.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"

namespace stepladder {
namespace {

struct ConvertOptions {
  std::string from, to;

  std::vector<Option> options() {
    return {{"OLD", &from, "", "results, a profile or a campaign of schema 2, as 0.2 wrote them"},
            {"NEW", &to, "", "the results file to make of it, compressed where it ends in .gz"}};
  }
};

int convert(ConvertOptions& options) {
  load_json_of("a file of Stepladder 0.2", options.from, is_of_schema_2);
  exec({python(), shared_dir() + "/reports/convert.py", options.from, options.to});
}

}  // namespace

Command convert_command() {
  return command<ConvertOptions>("convert", "make a results file of one of schema 2", convert);
}

}  // namespace stepladder
