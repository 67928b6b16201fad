// The device, its memory, copies, timers and phases.
#include "model/cuda/cuda_ops.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <string>

#include "model/cuda/matmul_plans.h"
#include "model/cuda/range.h"
#include "model/devices.h"

namespace stepladder {
namespace {

// What cuBLAS recommends for Hopper, and enough for what came before.
constexpr int64_t kBlasWorkspace = int64_t{32} << 20;

constexpr int kTuringShared = 64 << 10;  // bytes that a block may ask for below compute capability 8.0

std::string version_name(int version) {
  return cat(version / 1000, '.', version % 1000 / 10);
}

/// As nvidia-smi prints it: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.
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

/// 13000 for CUDA 13.0; 0 where there is none.
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
    throw UnsupportedError(cat("the NVIDIA driver supports CUDA up to ", version_name(driver),
                               ", this build needs ", version_name(runtime), ": update the driver"));
  if (error != cudaErrorNoDevice) CUDA_CHECK(error);
  if (index < 0 || index >= devices)
    throw UnsupportedError(cat("no CUDA device ", index, ": there are ", devices));
  CUDA_CHECK(cudaSetDevice(index));
  return index;
}

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, which, index));
  return value;
}

}  // namespace

int cuda_device_count() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) cudaGetLastError();
  return devices;
}

CudaOps::CudaOps(int index, const OpsOptions& options)
    : options_(options),
      index_(select_device(index)),
      device_capability_(10 * attribute(cudaDevAttrComputeCapabilityMajor, index) +
                         attribute(cudaDevAttrComputeCapabilityMinor, index)),
      compute_capability_(options.compute_capability > 0
                              ? std::min(options.compute_capability, device_capability_)
                              : device_capability_),
      multiprocessors_(attribute(cudaDevAttrMultiProcessorCount, index)),
      shared_limit_(std::min(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index),
                             compute_capability_ < 80 ? kTuringShared : INT_MAX)) {
  constexpr int kEarlyCapability = 90, kEarlyDriver = 12030;
  const int code = std::min(kernel_image(), compute_capability_);
  stream_ = make_stream();
  queue_ = {.stream = stream_.get(),
            .early = options.early_launch && code >= kEarlyCapability && driver_version() >= kEarlyDriver};
  start_ = make_event();
  stop_ = make_event();
  copy_stream_ = make_stream();
  staged_ = make_event(cudaEventDisableTiming);
  received_ = make_event(cudaEventDisableTiming);
  blas_ = make_blas(stream_.get());
  // A cuBLAS handle is a cuBLASLt handle too.
  matmul_plans_ =
      std::make_unique<MatmulPlans>(reinterpret_cast<cublasLtHandle_t>(blas_.get()), stream_.get());
  choose_attention();
}

CudaOps::~CudaOps() {
  phase(nullptr, -1);
}

DeviceInfo CudaOps::device() const {
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, index_));
  int runtime = 0, major = 0, minor = 0, patch = 0;
  CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  CUBLAS_CHECK(cublasGetProperty(MAJOR_VERSION, &major));
  CUBLAS_CHECK(cublasGetProperty(MINOR_VERSION, &minor));
  CUBLAS_CHECK(cublasGetProperty(PATCH_LEVEL, &patch));
  return {.backend = "cuda",
          .name = properties.name,
          .uuid = uuid_name(properties.uuid),
          .compute_capability = compute_capability_,
          .total_memory = static_cast<int64_t>(properties.totalGlobalMem),
          .driver = version_name(driver_version()),
          .runtime = version_name(runtime),
          .blas = cat("cuBLAS ", major, '.', minor, '.', patch),
          .attention = attention_,
          .bf16 = compute_capability_ >= 80};
}

MemoryInfo CudaOps::memory() {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  process_peak_ = std::max(process_peak_, static_cast<int64_t>(total - free));
  return {
      .free = static_cast<int64_t>(free), .reserved_peak = reserved_->peak, .process_peak = process_peak_};
}

std::shared_ptr<void> CudaOps::allocate(size_t bytes) {
  void* block = nullptr;
  const cudaError_t error = cudaMalloc(&block, std::max<size_t>(bytes, 1));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemoryError(cat("out of device memory: ", bytes, " bytes wanted, ", memory().free, " free"));
  }
  CUDA_CHECK(error);
  const auto size = static_cast<int64_t>(bytes);
  reserved_->now += size;
  reserved_->peak = std::max(reserved_->peak, reserved_->now);
  return {block, [reserved = reserved_, size](void* p) {
            CUDA_CHECK_NOEXCEPT(cudaFree(p));
            reserved->now -= size;
          }};
}

void CudaOps::bind_workspace(Arena& arena, const Config& config) {
  const int64_t n = config.B * config.T, C = config.C;
  const auto chunks = [&](int64_t rows) { return (n + rows - 1) / rows; };
  const int64_t partials = std::max({kSquareBlocks, std::min(chunks(kRowChunk), kMaxRowChunks) * 4 * C,
                                     chunks(kTokenChunk) * 2 * C, std::min(kNormBlocks, n) * 3 * C});
  const auto sort_words = static_cast<int64_t>(sort_bytes(n, config.V) / sizeof(int32_t) + 1);
  const auto f32 = [&](const char* name, int64_t count) { return arena.alloc(name, DType::f32, {count}); };
  const auto i32 = [&](const char* name, int64_t count) { return arena.alloc(name, DType::i32, {count}); };
  const Tensor blas = f32("workspace/cublas", kBlasWorkspace / int64_t{sizeof(float)});
  const Tensor sums = f32("workspace/partials", partials);
  const Tensor positions = i32("workspace/positions", n);
  const Tensor sorted_positions = i32("workspace/sorted_positions", n);
  const Tensor sorted_tokens = i32("workspace/sorted_tokens", n);
  const Tensor sort_scratch = i32("workspace/sort", sort_words);
  const Tensor attention =
      f32("workspace/attention", attention_scratch_bytes(config) / int64_t{sizeof(float)});
  if (arena.planning()) return;

  // One for both libraries: products on one stream take turns.
  CUBLAS_CHECK(cublasSetWorkspace(blas_.get(), blas.data, blas.bytes()));
  matmul_plans_->set_workspace(blas);
  partials_ = sums;
  positions_ = positions;
  sorted_positions_ = sorted_positions;
  sorted_tokens_ = sorted_tokens;
  sort_scratch_ = sort_scratch;
  attention_scratch_ = attention;
}

void CudaOps::synchronize() {
  CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
  CUDA_CHECK(cudaStreamSynchronize(copy_stream_.get()));
  if (comm_) CUDA_CHECK(cudaStreamSynchronize(comm_stream_.get()));
}

void CudaOps::phase(const char* name, int64_t layer) {
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

void CudaOps::start_timer() {
  phase(nullptr, -1);
  if (!in_step_) nvtxRangePushA("step");
  in_step_ = true;
  CUDA_CHECK(cudaEventRecord(start_.get(), stream_.get()));
}

void CudaOps::stop_timer() {
  CUDA_CHECK(cudaEventRecord(stop_.get(), stream_.get()));
  phase(nullptr, -1);
  if (in_step_) nvtxRangePop();
  in_step_ = false;
}

double CudaOps::device_ms() {
  float ms = 0.0F;
  CUDA_CHECK(cudaEventSynchronize(stop_.get()));
  CUDA_CHECK(cudaEventElapsedTime(&ms, start_.get(), stop_.get()));
  return ms;
}

void CudaOps::upload(Tensor dst, const void* host) {
  const Range range("upload");
  CUDA_CHECK(cudaMemcpyAsync(dst.data, host, dst.bytes(), cudaMemcpyHostToDevice, stream_.get()));
  CUDA_CHECK(
      cudaStreamSynchronize(stream_.get()));  // some systems read pageable memory after the call returns
}

void CudaOps::download(void* host, Tensor src) {
  const Range range("download");
  CUDA_CHECK(cudaMemcpyAsync(host, src.data, src.bytes(), cudaMemcpyDeviceToHost, stream_.get()));
  CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
}

void CudaOps::zero(Tensor x) {
  const Range range("zero");
  CUDA_CHECK(cudaMemsetAsync(x.data, 0, x.bytes(), stream_.get()));
}

std::unique_ptr<Ops> make_cuda_ops(int index, const OpsOptions& options) {
  return std::make_unique<CudaOps>(index, options);
}

}  // namespace stepladder
