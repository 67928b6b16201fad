#include <cblas.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>

#include "model/cpu/comm_mpi.h"
#include "model/cpu/cpu.h"
#include "model/limits.h"

namespace stepladder {
namespace {

constexpr size_t kAlignment = 256;

int64_t bytes_after(const std::string& file, const std::string& word) {
  return number_after(file, word) * 1024;
}

/// The number in a file; nothing when it is missing or says "max".
std::optional<int64_t> number_in(const std::string& file) {
  std::ifstream in(file);
  int64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

/// The memory that the process's control groups (version 1 or 2) and their parents leave it, in bytes: the
/// least limit, and the least that is free below a limit. The page cache counts as free, being dropped first.
struct GroupLimit {
  int64_t total = std::numeric_limits<int64_t>::max(), free = total;
};

GroupLimit group_limit() {
  GroupLimit limit;
  std::ifstream groups("/proc/self/cgroup");  // id:controllers:path
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers != "memory") continue;
    const std::string mount = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      const std::string group = mount + path;
      const auto total = number_in(group + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      const auto used = number_in(group + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
      if (total && used) {
        const std::string stat = group + "/memory.stat", prefix = v2 ? "" : "total_";
        const int64_t cache =
            number_after(stat, prefix + "inactive_file") + number_after(stat, prefix + "active_file");
        limit.total = std::min(limit.total, *total);
        limit.free = std::min(limit.free, std::max<int64_t>(0, *total - *used + cache));
      }
      if (path.find('/') == std::string::npos) break;
    }
  }
  return limit;
}

/// The CPU's name in /proc/cpuinfo; "" on architectures that have none there.
std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "";
}

/// Bytes that each thread maps besides the arena: OpenBLAS's buffer (128 MiB), a stack (8) and an arena of
/// malloc's (64). OpenBLAS waits for ever for a buffer that it can't get.
constexpr int64_t kMappedByThread = 200 << 20;

}  // namespace

Cpu::Cpu(int threads_to_use) : threads(threads_to_use > 0 ? threads_to_use : max_threads()) {
  openblas_set_num_threads(1);  // matmul distributes its tiles over threads itself
}

void Cpu::bind_workspace(Arena& arena, const Config& config) {
  const Tensor each_thread = arena.alloc("workspace/scratch", DType::f32, {threads, kScratch});
  const Tensor sorted = arena.alloc("workspace/embedding", DType::i32, {config.B * config.T});
  if (arena.planning()) return;
  scratch_ = each_thread;
  order = sorted;
}

float* Cpu::scratch(const char* op, int64_t n) const {
  check(n <= kScratch, op, ": rows of ", n, " elements, at most ", kScratch);
  expect_workspace(op, scratch_, threads * kScratch);
  return scratch_.ptr<float>();
}

DeviceInfo Cpu::info() const {
  DeviceInfo info;
  info.backend = "cpu";
  info.name = cpu_name();
  info.total_memory = std::min(bytes_after("/proc/meminfo", "MemTotal:"), group_limit().total);
  info.attention = "cpu";
  info.bf16 = true;
  info.blas = openblas_get_config();
  info.blas.resize(info.blas.find_last_not_of(' ') + 1);
  return info;
}

MemoryInfo Cpu::memory() {
  MemoryInfo memory{.free = std::min(bytes_after("/proc/meminfo", "MemAvailable:"), group_limit().free),
                    .reserved_peak = allocated_.peak(),
                    .process_peak = bytes_after("/proc/self/status", "VmHWM:")};
  if (threads > usable_cores()) memory.limit = cat("; or lower OMP_NUM_THREADS from ", threads);
  if (const auto left = mappable_bytes(); left && left->bytes - threads * kMappedByThread < memory.free) {
    memory.free = std::max<int64_t>(0, left->bytes - threads * kMappedByThread);
    memory.limit = cat("; or raise `", left->command, "`, or lower OMP_NUM_THREADS from ", threads);
  }
  return memory;
}

std::shared_ptr<void> Cpu::allocate(size_t bytes) {
  // Linux promises more memory than it has and kills the process later, so ask first.
  const MemoryInfo available = memory();
  void* block = nullptr;
  if (bytes <= static_cast<size_t>(available.free))
    block = std::aligned_alloc(kAlignment,
                               std::max<size_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment);
  if (block == nullptr)
    throw OutOfMemoryError(cat("out of memory: ", bytes, " bytes wanted, ", available.free,
                               " available: ask for less, such as a smaller batch or model",
                               available.limit));
  return allocated_.hold(block, bytes, std::free);
}

std::unique_ptr<Ops> make_cpu_ops(int threads) {
  return std::make_unique<Ops>(
      Backend{std::make_unique<Cpu>(threads), std::make_unique<Graph>(), make_mpi_collectives()});
}

}  // namespace stepladder
