#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "bench/base/place.h"
#include "bench/base/table.h"
#include "bench/cli/commands.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/programs.h"
#include "bench/run/machine.h"

namespace stepladder {
namespace {

struct ListOptions {
  std::string ladder, backend = "auto";
  int device = 0;
  bool wide = false;

  std::vector<Option> options() {
    return {
        wide_option(wide, "List"),
        {"ladder", &ladder, "FILE", "learning, or a file of your own; default: the ladder of time", "List"},
        {"backend", &backend, "NAME", "auto, cpu or cuda", "List", {"auto", "cpu", "cuda"}},
        {"device", &device, "N", "index of the CUDA device", "List", {0, 1023}}};
  }
};

/// The number of lines of the rung's file that `stepladder diff` shows; kNone where that file is missing.
std::string lines_of(const Ladder& ladder, const Rung& rung) {
  const std::string file = cat(ladder.built_in() ? shared_dir() : ladder.folder, '/', rung.shown);
  std::ifstream text(file);
  if (!text || std::filesystem::is_directory(file)) return kNone;
  return cat(std::count(std::istreambuf_iterator<char>(text), {}, '\n'));
}

int list(ListOptions& options) {
  const Ladder ladder = ladder_at(options.ladder);
  const DeviceProbe probe = probe_device(options.backend, options.device);
  const auto reason = [&](const Rung& rung) -> std::string {
    if (!probe.error.empty()) return probe.error;
    if (ladder.built_in() && !is_built(rung)) return "it is not built";
    return why_not_here(rung, probe);
  };
  Table table({{.title = "rung", .align = Align::left},
               {.title = "changes", .align = Align::left, .priority = 3},
               {.title = "math", .align = Align::left, .priority = 1},
               {.title = "requires", .align = Align::left, .priority = 2},
               {.title = "lines", .priority = 1},
               {.title = "runs here", .align = Align::left}});
  for (const Rung& rung : ladder.rungs) {
    const std::string why_not = reason(rung);
    table.add({rung.name, rung.changes, rung.math ? name_of(*rung.math) : kNone,
               rung.requirement().empty() ? kNone : rung.requirement(), lines_of(ladder, rung),
               why_not.empty()       ? "yes"
               : probe.error.empty() ? "no: " + why_not
                                     : "no"});  // the probe's error stands above the table
  }
  std::cout << (probe.error.empty() ? probe.device.name : probe.error) << "\n\n"
            << table.terminal(options.wide);
  return kExitOk;
}

}  // namespace

Command list_command() {
  return command<ListOptions>("list", "the rungs, what each needs, and whether it runs here", list);
}

}  // namespace stepladder
