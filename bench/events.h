// What a rung's executable tells the harness: one JSON object a line on the file descriptor of --events.
//
//   {"event":"start","variant":..,"source_hash":..,"backend":..,"config":{..},"device":{..},"startup_ms":..,
//    "memory_by_name":{name: bytes}}
//   {"event":"step","step":0,"step_ms":..,"device_ms":..,"loss":..,"grad_norm":..,"lr":..}
//   {"event":"eval","step":..,"val_loss":..}
//   {"event":"end","memory_bytes":{"live_peak":..,"reserved_peak":..,"process_peak":..}}
//   {"event":"error","status":"oom"|"unsupported"|"diverged"|"error","reason":".."}
//
// startup_ms runs from process start (as the OS records it) to the first step's clock. The harness owns warm-up: it
// marks the first steps itself.
#pragma once
