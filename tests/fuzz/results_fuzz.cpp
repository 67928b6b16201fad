// Results files, plain or gzipped, as a kill, `cat` or anyone may have left them.
#include "bench/base/gzip.h"
#include "bench/report/report.h"
#include "bench/report/speedups.h"
#include "bench/results/json.h"
#include "bench/results/lines.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stepladder;
  std::vector<Part> parts;
  const std::string text(fuzz::text_of(data, size));
  try {
    if (!fuzz::accepts([&] { parts = parts_from(gunzipped(text)); })) return 0;
  } catch (const Error& e) {
    fuzz::require(e.code() == kExitNotComparable, e.what());
    return 0;
  }
  for (const Part& part : parts) {
    const std::string written = lines_of(part);
    fuzz::require(fuzz::accepts([&] {
                    const std::vector<Part> again = parts_from(written);
                    fuzz::require(again.size() == 1 && lines_of(again.front()) == written,
                                  "a part that does not survive writing");
                  }),
                  "a written part that cannot be read");
    dump(results_file_json(part.results));
    const Section section = section_of(part.results);
    section.terminal(false);
    section.markdown();
  }
  return 0;
}
