// A stand-in for a rung's executable: a shell script that speaks the event protocol.
#pragma once

#include <filesystem>
#include <string>

#include "model/error.h"
#include "tests/temporary_folder.h"

namespace stepladder {

struct FakeRung {
  std::string name = "00_fp32_baseline";
  std::string source_hash = "abc123";
  std::string step_ms = "10.5";  // shell text, may use $i, the step
  std::string loss = "4.$((90 - i))";
  std::string before_start, before_step, before_end;  // shell commands
  std::string end = R"({"event":"end","memory_bytes":{"live_peak":1048576,"reserved_peak":2097152,)"
                    R"("process_peak":3145728}})";

  /// Writes the executable into `folder`.
  void write(const TemporaryFolder& folder) const {
    const std::string path = folder.write(
        name,
        cat("#!/bin/sh\n", "[ \"$1\" = --version ] && { echo '", name, " 0.1.0 source ", source_hash,
            "'; exit 0; }\n", "arguments=\"$*\"\n",
            "while [ $# -gt 0 ]; do case $1 in --steps) steps=$2 ;; --batch) batch=$2 ;; esac; shift; done\n",
            "say() { printf '%s\\n' \"$1\" >&3; }\n",  //
            before_start, "\n", R"(say '{"event":"start","variant":")", name, R"(","source_hash":")",
            source_hash, R"(","backend":"cpu","config":{"dtype":"f32","B":7},"device":{"name":"fake"},)",
            R"("startup_ms":12.5,"memory_by_name":{"params/wte":1024}}')", "\n",
            "i=0\nwhile [ $i -lt $steps ]; do\n", before_step, "\n",
            R"(say "{\"event\":\"step\",\"step\":$i,\"step_ms\":)", step_ms,
            R"(,\"device_ms\":9.5,\"loss\":)", loss, R"(,\"grad_norm\":1.5,\"lr\":0.001}")", "\n",
            "i=$((i + 1))\ndone\n", before_end, "\n", "say '", end, "'\n"));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
};

}  // namespace stepladder
