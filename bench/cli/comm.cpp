// How fast the ranks of this machine reduce: time, and bandwidth as nccl-tests define it, by size.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "bench/base/table.h"
#include "bench/base/text.h"
#include "bench/cli/commands.h"
#include "bench/run/child.h"
#include "bench/run/events.h"
#include "bench/run/machine.h"
#include "bench/run/ranks.h"
#include "model/arena.h"
#include "model/device.h"
#include "model/ops.h"
#include "model/rendezvous.h"

namespace stepladder {
namespace {

constexpr int64_t kSmallest = 64 << 10, kStep = 4;  // bytes
constexpr int kWarmup = 3;
constexpr Collective kCollectives[] = {Collective::all_reduce, Collective::reduce_scatter,
                                       Collective::all_gather};

struct CommOptions {
  std::string backend = "auto", collective = "all_reduce";
  int64_t devices = 0, iterations = 20, timeout = 300;
  std::optional<int64_t> max_mib, events;
  bool json = false;

  std::vector<Option> options() {
    return {{"devices", &devices, "N",
             "ranks to start, one on each; default: as a launcher says, else all that are here, on the CPU 2",
             "Ranks", Allowed{2, 1024}},
            {"backend", &backend, "NAME", "auto, cpu or cuda", "Ranks", {"auto", "cpu", "cuda"}},
            {"collective", &collective, "NAME", "what the ranks do together", "Ranks",
             Allowed{"all_reduce", "reduce_scatter", "all_gather"}},
            {"max-mib", &max_mib, "N", "largest size; default: 512, on the CPU 16", "Ranks", {1, 65536}},
            {"iterations", &iterations, "N", "of each size, after 3 that are left out", "Ranks", {1, 100000}},
            {"timeout", &timeout, "SECONDS", "after which the ranks are ended", "Ranks", {1, 1e6}},
            {"json", &json, "", "for machines", "Ranks"},
            {"events", &events, "FD", "", "", {0, 1 << 20}}};
  }
};

struct CommRow {
  int64_t bytes;
  double us;  // of one
};

/// Bytes through each device's link in the best algorithm, of each byte (nccl-tests, doc/PERFORMANCE.md).
double bus_factor(const std::string& collective, int64_t world) {
  const double others = static_cast<double>(world - 1) / static_cast<double>(world);
  return collective == name_of(Collective::all_reduce) ? 2.0 * others : others;
}

/// Throws Error where the ranks' numbers do not add up to what they must.
void check_sum(Ops& ops, Tensor x) {
  std::vector<float> host(static_cast<size_t>(x.numel()), static_cast<float>(ops.rank() + 1));
  ops(Upload{x, host.data()});
  ops.collective(Collective::all_reduce, std::span(&x, 1));
  ops.wait_for_collectives();
  ops(Download{host.data(), x});
  const int sum = ops.world() * (ops.world() + 1) / 2;
  for (const float got : host)
    if (got != static_cast<float>(sum))
      throw Error(cat("all_reduce of 1 to ", ops.world(), " came to ", got, ", not to ", sum));
}

/// As one rank: every size, all ranks together.
std::vector<CommRow> measure(const CommOptions& options, Ops& ops, Rendezvous& ranks) {
  using Clock = std::chrono::steady_clock;
  const int64_t largest = options.max_mib.value_or(ops.device().info().backend == "cpu" ? 16 : 512) << 20;
  Collective what = Collective::all_reduce;
  for (const Collective one : kCollectives)
    if (options.collective == name_of(one)) what = one;
  Arena arena(ops, largest + 256);
  const Tensor all = arena.alloc("comm/buffer", DType::f32, {largest / 4});
  check_sum(ops, all.slices(0, kSmallest / 4));
  std::vector<CommRow> rows;
  std::vector<int64_t> sizes;
  for (int64_t bytes = kSmallest; bytes < largest; bytes *= kStep) sizes.push_back(bytes);
  sizes.push_back(largest);
  for (const int64_t bytes : sizes) {
    // Parts must be equal: a little less where there are three ranks, say.
    const Tensor x = all.slices(0, bytes / 4 / ops.world() * ops.world());
    ops(Zero{x});  // sums stay finite
    const auto repeat = [&](int64_t times) {
      for (int64_t i = 0; i < times; ++i) ops.collective(what, std::span(&x, 1));
      ops.wait_for_collectives();
      ops.synchronize();
    };
    repeat(kWarmup);
    ranks.any(false);  // all begin together
    const auto start = Clock::now();
    repeat(options.iterations);
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    rows.push_back({static_cast<int64_t>(x.bytes()), us / static_cast<double>(options.iterations)});
  }
  return rows;
}

void print(const CommOptions& options, int64_t world, const std::vector<CommRow>& rows) {
  const double factor = bus_factor(options.collective, world);
  Table table({{"bytes"}, {"us"}, {"algorithm GB/s"}, {"bus GB/s"}});
  Json json = {{"collective", options.collective}, {"world_size", world}, {"rows", Json::array()}};
  for (const CommRow& row : rows) {
    const double rate = static_cast<double>(row.bytes) / row.us * 1e-3;
    table.add({grouped(row.bytes), fixed(row.us, 1), fixed(rate, 2), fixed(rate * factor, 2)});
    json["rows"].push_back({{"bytes", row.bytes},
                            {"us", row.us},
                            {"algorithm_gb_per_s", rate},
                            {"bus_gb_per_s", rate * factor}});
  }
  if (options.json)
    std::cout << json.dump(2) << std::endl;
  else
    std::cout << options.collective << " over " << world << " ranks, mean of " << options.iterations << "\n\n"
              << table.terminal() << std::flush;
}

/// Where a launcher started this process.
int as_rank(const CommOptions& options, const World& world, EventWriter& events) {
  const int devices = options.backend == "cpu" ? 0 : cuda_device_count();
  const bool cuda = devices > 0;
  const auto ops = make_ops(cuda ? "cuda" : options.backend, cuda ? world.device_among(devices) : 0);
  const Identity identity{version(), cat(options.collective, ' ', options.iterations), "",
                          cuda ? ops->device().info().uuid : ""};
  const auto fail = [&](const std::string& reason, bool speaks) {
    if (speaks) std::cerr << cat("stepladder: error: ", reason, '\n') << std::flush;
    std::_Exit(kExitFailed);
  };
  Rendezvous ranks(world, identity, fail);
  ops->join(ranks);
  const std::vector<CommRow> rows = measure(options, *ops, ranks);
  if (world.rank > 0) return kExitOk;
  for (const CommRow& row : rows) events.write({{"event", "row"}, {"bytes", row.bytes}, {"us", row.us}});
  if (!events.wanted()) print(options, world.size, rows);
  return kExitOk;
}

int comm(CommOptions& options) {
  // Who says how many to start is no rank, whatever the environment holds.
  const World world = options.devices > 0 ? World() : World::from_environment();
  if (world.size > 1) {
    EventWriter events(static_cast<int>(options.events.value_or(-1)));
    try {
      return as_rank(options, world, events);
    } catch (const std::exception& e) {
      events.write({{"event", "error"}, {"reason", e.what()}});
      throw;
    }
  }
  const DeviceProbe probe = require_device(options.backend, 0);
  const bool cpu = probe.device.backend == "cpu";
  if (options.devices == 0) options.devices = cpu ? 2 : probe.devices;
  if (!cpu && options.devices > probe.devices)
    throw InputError(cat("--devices ", options.devices, ": this machine has ", probe.devices));
  if (options.devices < 2) throw InputError("one device has nobody to reduce with: --devices 2 or more");
  if (cpu) check_mpirun(options.devices);

  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe").string(), "comm"};
  options.backend = probe.device.backend;  // "auto" might look for a device again, and find none in a rank
  for (const Option& option : options.options())
    if (option.name != "json" && option.name != "events" && option.name != "devices" &&
        !option.text().empty())
      command.insert(command.end(), {"--" + option.name, option.text()});
  command.insert(command.end(), {"--events", std::to_string(static_cast<int>(Channel::events))});
  std::vector<CommRow> rows;
  std::string error;  // the first rank's to fail
  const JobEnd job_end =
      run_job(job_of_ranks({command}, options.devices, cpu ? Starter::mpirun : Starter::harness),
              Channel::events, static_cast<double>(options.timeout), [&](size_t rank, std::string_view line) {
                const auto event = parse_event(line);
                if (event.is_null()) return true;
                if (event["event"] == "row") rows.push_back({event.at("bytes"), event.at("us")});
                if (event["event"] == "error" && error.empty())
                  error = cat("rank ", rank, ": ", event.at("reason").get<std::string>());
                return true;
              });
  const ChildEnd& end = job_end.end;
  if (end.how != ChildEnd::How::exited || end.code != 0)
    throw Error(error.empty() ? cat("the ranks ended without a result", end.last_words()) : error);
  print(options, options.devices, rows);
  return kExitOk;
}

}  // namespace

Command comm_command() {
  return command<CommOptions>("comm", "how fast the ranks reduce, by size", comm);
}

}  // namespace stepladder
