#include "bench/results/run_json.h"
#include "bench/results/writer.h"

namespace stepladder {

Json to_json(const Run& run) {
  return Writer::write(run);
}

Json to_json(const Results& results) {
  Json json = {{"schema", kSchema},
               {"complete", results.complete},
               {"context", results.context},
               {"plan", results.plan},
               {"stopped", results.stopped}};
  json["runs"] = Writer::write(results.runs);
  return json;
}

}  // namespace stepladder
