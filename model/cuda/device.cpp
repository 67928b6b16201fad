// The device, its memory, copies, timers and phases.
#include "model/device.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <string>
#include <utility>

#include "model/cuda/cuda.h"
#include "model/cuda/matmul_plans.h"
#include "model/cuda/range.h"
#include "model/cuda_libraries.h"

namespace stepladder {
namespace {

// The workspace that cuBLAS recommends for Hopper, and enough for earlier devices.
constexpr int64_t kGemmWorkspace = int64_t{32} << 20;

// Memory that is needed after the arena is allocated: then kernels are loaded and graphs are made, and NCCL
// connects at its first collective. On an H200 everything but the arena takes 0.6 GiB, context included, and
// 1.6 GiB with NCCL.
constexpr int64_t kLater = int64_t{256} << 20, kLaterForNccl = int64_t{1280} << 20;

constexpr int kOldestCapability = 75;    // Turing
constexpr int kBf16Capability = 80;      // the first with bf16
constexpr int kTuringShared = 64 << 10;  // bytes that a block may ask for below compute capability 8.0

/// The UUID as nvidia-smi prints it: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.
std::string uuid_name(const cudaUUID_t& uuid) {
  std::string name = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) name += '-';
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    name += hex;
  }
  return name;
}

/// The CUDA version that the driver supports, 13000 for 13.0; 0 without a driver.
int driver_version() {
  int driver = 0;
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  return driver;
}

/// Makes device `index` current and returns it.
int select_device(int index) {
  const int driver = driver_version();
  int runtime = 0, devices = 0;
  CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  if (driver == 0) throw UnsupportedError("no CUDA device: there is no NVIDIA driver");
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) cudaGetLastError();
  if (error == cudaErrorInsufficientDriver)
    throw UnsupportedError(cat("the NVIDIA driver supports CUDA up to ", version_text(driver),
                               ", this build needs ", version_text(runtime), ": update the driver"));
  if (error != cudaErrorNoDevice) CUDA_CHECK(error);
  if (index < 0 || index >= devices)
    throw UnsupportedError(cat("no CUDA device ", index, ": there are ", devices));
  CUDA_CHECK(cudaSetDevice(index));
  return index;
}

std::string cublas_version() {
  int major = 0, minor = 0, patch = 0;
  CUBLAS_CHECK(cublas().get_property(MAJOR_VERSION, &major));
  CUBLAS_CHECK(cublas().get_property(MINOR_VERSION, &minor));
  CUBLAS_CHECK(cublas().get_property(PATCH_LEVEL, &patch));
  return cat("cuBLAS ", major, '.', minor, '.', patch);
}

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, which, index));
  return value;
}

/// 90 for sm_90. Throws UnsupportedError where the device is too old.
int capability_of(int index) {
  const int capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, index) +
                         attribute(cudaDevAttrComputeCapabilityMinor, index);
  if (capability < kOldestCapability)
    throw UnsupportedError(cat("CUDA device ", index, " is sm_", capability,
                               ", the oldest that can be used is sm_", kOldestCapability,
                               ": choose another with --device, or --backend cpu"));
  return capability;
}

}  // namespace

int cuda_device_count() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) cudaGetLastError();
  return devices;
}

Cuda::Cuda(int device, const OpsOptions& how)
    : options(how),
      index(select_device(device)),
      device_capability(capability_of(device)),
      // Code for sm_75 has no bf16, so that where the build has no newer one a device is used as a T4 is.
      compute_capability(std::min(how.compute_capability > 0 ? how.compute_capability : device_capability,
                                  kernel_image() < kBf16Capability ? kOldestCapability : device_capability)),
      multiprocessors(attribute(cudaDevAttrMultiProcessorCount, device)),
      shared_limit(std::min(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                            compute_capability < kBf16Capability ? kTuringShared : INT_MAX)) {
  if (kernel_image() < kBf16Capability && device_capability >= kBf16Capability)
    std::fprintf(stderr,
                 "this build's CUDA code is for sm_%d alone, so sm_%d is used as that: build for %d-real\n",
                 kOldestCapability, device_capability, device_capability);
  constexpr int kEarlyCapability = 90, kEarlyDriver = 12030;
  const int code = std::min(kernel_image(), compute_capability);
  stream = make_stream();
  queue = {
      .stream = stream.get(),
      .can_be_early = options.early_launch && code >= kEarlyCapability && driver_version() >= kEarlyDriver};
  start_ = make_event();
  stop_ = make_event();
  if (options.count_cycles) sm_clocks_.emplace(*this, multiprocessors);
  copy_stream = make_stream();
  staged = make_event(cudaEventDisableTiming);
  received = make_event(cudaEventDisableTiming);
  if (options.libraries) blas = make_blas(stream.get());
  // A cuBLAS handle is a cuBLASLt handle too.
  matmul_plans = std::make_unique<MatmulPlans>(reinterpret_cast<cublasLtHandle_t>(blas.get()), stream.get());
  choose_attention();
}

Cuda::~Cuda() {
  phase(nullptr, -1);
}

void Cuda::run(const AnyOp& op) {
  const Range range(op.name());
  op.run(*this);
}

DeviceInfo Cuda::info() const {
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  int runtime = 0;
  CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  return {.backend = "cuda",
          .name = properties.name,
          .uuid = uuid_name(properties.uuid),
          .compute_capability = compute_capability,
          .total_memory = static_cast<int64_t>(properties.totalGlobalMem),
          .driver = version_text(driver_version()),
          .runtime = version_text(runtime),
          .blas = blas ? cublas_version() : "none: own kernels",
          .attention = attention_,
          .bf16 = compute_capability >= kBf16Capability};
}

MemoryInfo Cuda::memory() {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  process_peak_ = std::max(process_peak_, static_cast<int64_t>(total - free));
  return {.free = static_cast<int64_t>(free),
          .later = collective_stream ? kLater + kLaterForNccl : kLater,
          .reserved_peak = reserved_.peak(),
          .process_peak = process_peak_};
}

std::shared_ptr<void> Cuda::allocate(size_t bytes) {
  void* block = nullptr;
  const cudaError_t error = cudaMalloc(&block, std::max<size_t>(bytes, 1));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemoryError(cat("out of device memory: ", bytes, " bytes wanted, ", memory().free, " free"));
  }
  CUDA_CHECK(error);
  return reserved_.hold(block, bytes, [](void* p) { CUDA_CHECK_NOEXCEPT(cudaFree(p)); });
}

void Cuda::bind_workspace(Arena& arena, const Config& config) {
  const int64_t n = config.B * config.T, C = config.C;
  const auto chunks = [&](int64_t rows) { return (n + rows - 1) / rows; };
  const int64_t partial_sums = std::max({kSquareBlocks, std::min(chunks(kRowChunk), kMaxRowChunks) * 4 * C,
                                         chunks(kTokenChunk) * 2 * C, std::min(kNormBlocks, n) * 3 * C});
  const int64_t padded_V = (config.V + 127) / 128 * 128;  // the embedding's rows, at most
  const auto sort_words = static_cast<int64_t>(sort_bytes(n, padded_V) / sizeof(int32_t) + 1);
  const auto f32 = [&](const char* name, int64_t count) { return arena.alloc(name, DType::f32, {count}); };
  const auto i32 = [&](const char* name, int64_t count) { return arena.alloc(name, DType::i32, {count}); };
  const Tensor gemms = f32("workspace/gemm", kGemmWorkspace / int64_t{sizeof(float)});
  const Tensor sums = f32("workspace/partials", partial_sums);
  const Tensor token_positions = i32("workspace/positions", n);
  const Tensor in_order_positions = i32("workspace/sorted_positions", n);
  const Tensor in_order_tokens = i32("workspace/sorted_tokens", n);
  const Tensor sort = i32("workspace/sort", sort_words);
  const Tensor attention =
      f32("workspace/attention", attention_scratch_bytes(config) / int64_t{sizeof(float)});
  if (arena.planning()) return;

  if (blas) CUBLAS_CHECK(cublas().set_workspace(blas.get(), gemms.data, gemms.bytes()));
  matmul_plans->set_workspace(gemms);
  gemm_scratch = gemms;
  partials = sums;
  positions = token_positions;
  sorted_positions = in_order_positions;
  sorted_tokens = in_order_tokens;
  sort_scratch = sort;
  attention_scratch = attention;
}

void Cuda::synchronize() {
  CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  CUDA_CHECK(cudaStreamSynchronize(copy_stream.get()));
  if (collective_stream) CUDA_CHECK(cudaStreamSynchronize(collective_stream.get()));
}

void Cuda::phase(const char* name, int64_t layer) {
  const std::string next = name ? name : "";
  if (in_layer_) nvtxRangePop();
  if (next != phase_) {
    if (!phase_.empty()) nvtxRangePop();
    if (name) nvtxRangePushA(name);
    phase_ = next;
  }
  in_layer_ = name && layer >= 0;
  if (in_layer_) nvtxRangePushA(cat("layer ", layer).c_str());
}

void Cuda::start_timer() {
  phase(nullptr, -1);
  if (!in_step_) nvtxRangePushA("step");
  in_step_ = true;
  if (sm_clocks_) sm_clocks_->start(queue);
  CUDA_CHECK(cudaEventRecord(start_.get(), stream.get()));
}

void Cuda::stop_timer() {
  CUDA_CHECK(cudaEventRecord(stop_.get(), stream.get()));
  if (sm_clocks_) sm_clocks_->stop(queue);
  phase(nullptr, -1);
  if (in_step_) nvtxRangePop();
  in_step_ = false;
}

Elapsed Cuda::elapsed() {
  float ms = 0.0F;
  CUDA_CHECK(cudaEventSynchronize(stop_.get()));
  CUDA_CHECK(cudaEventElapsedTime(&ms, start_.get(), stop_.get()));
  if (!sm_clocks_) return {ms, {}};
  CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  return {ms, sm_clocks_->cycles()};
}

std::unique_ptr<Ops> make_cuda_ops(int index, const OpsOptions& options) {
  auto cuda = std::make_unique<Cuda>(index, options);
  auto graph = make_cuda_graphs(*cuda);
  auto collectives = make_nccl_collectives(*cuda);
  return std::make_unique<Ops>(Backend{std::move(cuda), std::move(graph), std::move(collectives)});
}

}  // namespace stepladder
