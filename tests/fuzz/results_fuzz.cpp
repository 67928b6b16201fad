// Results as JSON, their rows and their report.
#include "bench/report/report.h"
#include "bench/report/speedups.h"
#include "bench/results/json.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stepladder;
  Results results;
  const std::string text(fuzz::text_of(data, size));
  if (!fuzz::accepts([&] { results = results_from(parse_json(text)); })) return 0;
  constexpr auto kReplace = Json::error_handler_t::replace;
  const std::string written = results_file_json(results).dump(-1, ' ', false, kReplace);
  fuzz::require(fuzz::accepts([&] {
                  const Results again = results_from(parse_json(written));
                  fuzz::require(results_file_json(again).dump(-1, ' ', false, kReplace) == written,
                                "results that do not survive writing");
                }),
                "written results that cannot be read");
  terminal_report(results);
  markdown_report(results);
  return 0;
}
