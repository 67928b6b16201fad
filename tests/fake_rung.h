// A shell script in place of a rung's executable; it speaks the event protocol.
#pragma once

#include <string>

#include "bench/run/workload.h"
#include "model/error.h"
#include "tests/files.h"

namespace stepladder {

/// Shell code of a stand-in that tells why it fails, and ends.
inline std::string fails(const std::string& status, const std::string& reason, int code = kExitFailed) {
  return cat(R"(say '{"event":"error","status":")", status, R"(","reason":")", reason, "\"}'; exit ", code);
}

struct FakeRung {
  static constexpr double kStepMs = 1.05;

  std::string name = "00_fp32_baseline";
  std::string source_hash = "abc123";
  std::string step_ms = cat(kStepMs), loss = "4.$((90 - i))";  // shell words; $i is the step
  std::string config = "";     // more fields of the start's config: ,"world_size":2
  std::string device = "";     // more fields of the start event: ,"device":{"name":"fake"}
  std::string telemetry = "";  // more fields of a step event: ,"sm_mhz":1980
  std::string before_start = "", before_step = "", before_end = "";  // shell commands
  std::string file = "";  // the script's path in the folder; by default `name`

  /// A workload of six steps, two of them warm-up, whose rung is the script in `folder` (see write()).
  Workload workload(const TempFolder& folder) const {
    Workload six;
    six.program.variant = six.program.calls_itself = name;
    six.program.command = {folder / name};
    six.program.native = true;
    six.source_hash = source_hash;
    six.device.name = "fake";
    six.config = {{"model", "gpt2-tiny"}, {"B", 4}, {"T", 64}, {"seed", 1337}};
    six.command = {folder / name, "--batch", "4", "--steps", "6"};
    six.steps = 6;
    six.warmup = 2;
    six.timeout_s = 60;
    return six;
  }

  /// Writes the script into `folder`.
  void write(const TempFolder& folder) const {
    write_script(folder / (file.empty() ? name : file),
                 cat("name=", name, " source_hash=", source_hash, R"(
[ "$1" = --version ] && { echo "$name 0.1.0 source $source_hash"; exit 0; }
arguments="$*" batch=4 seq=64
while [ $# -gt 0 ]; do
  case $1 in --steps) steps=$2 ;; --batch) batch=$2 ;; --seq) seq=$2 ;; esac
  shift
done
say() { printf '%s\n' "$1" >&3; }
)",
                     before_start, R"(
say '{"event":"start","variant":"'$name'","source_hash":"'$source_hash'","backend":"cpu",'\
'"config":{"dtype":"f32","B":'$batch',"T":'$seq')",
                     config, R"(},"startup_ms":12.5,"memory_by_name":{"params/wte":1024})", device, R"(}'
i=0
while [ $i -lt $steps ]; do
)",
                     before_step, R"(
  step_ms=)",
                     step_ms, R"(
  sleep ${step_ms}e-3 2>/dev/null  # as long as it says: the harness adds it up
  say '{"event":"step","step":'$i',"step_ms":'$step_ms',"device_ms":9.5,"loss":')",
                     loss, R"(',"grad_norm":1.5,"lr":0.001)", telemetry, R"(}'
  i=$((i + 1))
done
)",
                     before_end, R"(
say '{"event":"end","memory_bytes":{"live_peak":1048576,"reserved_peak":2097152,"process_peak":3145728}}'
)"));
  }
};

}  // namespace stepladder
