#include "model/cuda/matmul_plans.h"

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cstdio>
#include <limits>
#include <utility>

#include "model/cuda/range.h"
#include "model/error.h"

namespace stepladder {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(FoundAlgorithm::algorithm));

// Bytes: cuBLASLt's default, and the alignment that cudaMalloc and the arena give.
constexpr uintptr_t kMaxAlignment = 256;

// The leading dimension of an epilogue's auxiliary matrix must be a multiple of this.
constexpr int64_t kAuxMultiple = 8;

// A search measures kCandidates algorithms of a strategy once or twice. Then it measures those that came
// within a factor kPromising of the best, at most kFinalists, in kRounds rounds of about kRoundUs.
constexpr int kCandidates = 16;
constexpr double kPromising = 1.15;
constexpr size_t kFinalists = 4, kRounds = 5;
constexpr double kRoundUs = 300.0;

/// cuBLASLt's descriptors of a product, made on the stack for each call: filling them in is cheap.
struct Descriptors {
  explicit Descriptors(const LtMatmul& product) {
    const MatmulKey& key = product.key;
    CUBLAS_CHECK(cublas().lt_desc_init(&operation, sizeof operation, key.compute, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(key.op_a));
    set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(key.op_b));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(key.epilogue));
    if (is_fp8(key.a_type)) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, product.a_scale);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, product.b_scale);
      // Hopper's FP8 tensor cores add up fewer bits than f32 has. That is enough for activations; for a
      // gradient cuBLASLt adds up partial sums in f32.
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(key.a_type == key.b_type));
    }
    if (product.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
    if (product.aux) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.aux);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.m);
    }
    const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, DType type, cublasOperation_t op, int64_t rows,
                            int64_t cols) {
      if (op == CUBLAS_OP_T) std::swap(rows, cols);
      CUBLAS_CHECK(cublas().lt_layout_init(&to, sizeof to, cuda_type(type), rows, cols, rows));
      const auto batch = static_cast<int32_t>(key.batch);
      const int64_t stride = rows * cols;
      CUBLAS_CHECK(cublas().lt_layout_set(&to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
      CUBLAS_CHECK(
          cublas().lt_layout_set(&to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    };
    layout(a, key.a_type, key.op_a, key.m, key.k);
    layout(b, key.b_type, key.op_b, key.k, key.n);
    layout(d, key.dtype, CUBLAS_OP_N, key.m, key.n);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    CUBLAS_CHECK(cublas().lt_desc_set(&operation, attribute, &value, sizeof value));
  }

  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, d;
};

/// Whether cuBLASLt does not support a request, which is not an error.
bool declined(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

/// The key as text, for the cache and messages: "TN 768x16384x768 bf16 epilogue 4 aligned 256".
std::string text_of(const MatmulKey& key) {
  const auto letter = [](cublasOperation_t op) { return op == CUBLAS_OP_T ? 'T' : 'N'; };
  return cat(letter(key.op_a), letter(key.op_b), ' ', key.m, 'x', key.n, 'x', key.k,
             key.batch > 1 ? cat(" batch ", key.batch) : "", ' ',
             key.a_type != key.dtype ? cat(name_of(key.a_type), '*', name_of(key.b_type), ' ') : "",
             key.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? "tf32" : name_of(key.dtype), " epilogue ",
             static_cast<int>(key.epilogue), key.write == Write::add ? " add" : "",
             key.separate_c ? " C" : "", key.symmetric ? " symmetric" : "", " aligned ", key.alignment);
}

/// Sets a flag, and restores it when destroyed.
class Switch {
 public:
  explicit Switch(bool& on) : on_(on), before_(std::exchange(on, true)) {}
  ~Switch() { on_ = before_; }
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

 private:
  bool& on_;
  const bool before_;
};

double median(std::array<double, kRounds> values) {
  std::sort(values.begin(), values.end());
  return values[kRounds / 2];
}

}  // namespace

LtMatmul::LtMatmul(const MatmulKey& key, const void* a, const void* b, void* d) : key(key), a(a), b(b), d(d) {
  *this = with(key.epilogue, nullptr);
}

LtMatmul LtMatmul::plus(const void* addend) const {
  LtMatmul product = *this;
  product.c = addend;
  product.key.write = Write::add;
  product.key.separate_c = addend != d;
  return product.with(key.epilogue, bias, aux);
}

LtMatmul LtMatmul::with(cublasLtEpilogue_t epilogue, void* bias, void* aux) const {
  LtMatmul product = *this;
  product.key.epilogue = epilogue;
  product.bias = bias;
  product.aux = aux;
  uintptr_t bits = kMaxAlignment;
  for (const void* p : std::initializer_list<const void*>{a, b, c, d, bias, aux})
    bits |= reinterpret_cast<uintptr_t>(p);
  product.key.alignment = static_cast<uint32_t>(bits & -bits);
  return product;
}

MatmulPlans::MatmulPlans(cublasLtHandle_t handle, cudaStream_t stream) : handle_(handle), stream_(stream) {}

void MatmulPlans::set_workspace(const Tensor& workspace) {
  workspace_ = workspace;
  plans_.clear();
  fp8_scratch_ = false;
}

size_t MatmulPlans::scratch_for(const MatmulKey& key) const {
  return is_fp8(key.a_type) && !fp8_scratch_ ? 0 : workspace_bytes();
}

bool MatmulPlans::allow_fp8_scratch(const MatmulKey& key) {
  return is_fp8(key.a_type) && workspace_bytes() > 0 && !std::exchange(fp8_scratch_, true);
}

void MatmulPlans::perform(const LtMatmul& request, std::span<const MatmulStrategy> strategies) {
  auto at = plans_.find(request.key);
  if (at == plans_.end() || (searching_ && !at->second.final)) {
    const Plan plan = searching_ ? found(request, strategies) : first_supported(request, strategies);
    at = plans_.insert_or_assign(request.key, plan).first;
  }
  if (searching_ && !measuring_) {
    const std::string key = text_of(request.key);
    chosen_[key] = cache_.at(key);
  }
  if (run(at->second, strategies)) return;
  at->second = without_cublaslt(request, strategies);
  run(at->second, strategies);
}

MatmulPlans::Plan MatmulPlans::found(const LtMatmul& request, std::span<const MatmulStrategy> strategies) {
  const std::string key = text_of(request.key);
  std::optional<Plan> plan = cached(key, strategies);
  if (plan) {
    ++from_cache_;
  } else {
    const Switch measuring(measuring_);
    plan = fastest(request, strategies);
    cache_[key] = {.strategy = strategies[plan->strategy].name,
                   .algorithm = std::bit_cast<std::array<uint64_t, 8>>(plan->algorithm),
                   .us = plan->us};
    ++searched_;
  }
  plan->final = true;
  return *plan;
}

void MatmulPlans::search(const std::function<void()>& work, const std::string& path,
                         const AlgorithmSource& source) {
  if (!path.empty()) cache_.merge(read_algorithm_cache(path, source));
  const int searched_before = searched_;
  {
    const Switch searching(searching_);
    work();
    CUDA_CHECK(cudaStreamSynchronize(stream_));
  }
  if (!path.empty() && searched_ > searched_before) {
    cache_.merge(read_algorithm_cache(path, source));  // another process may have added to it
    try {
      write_algorithm_cache(path, source, cache_);
    } catch (const InputError& error) {
      // This run has its algorithms; only the next run has to search again.
      std::fprintf(stderr, "matmul algorithms are not kept: %s\n", error.what());
    }
  }
}

std::vector<cublasLtMatmulAlgo_t> MatmulPlans::algorithms(const LtMatmul& product, int count) const {
  if (product.key.batch > INT_MAX) return {};
  if (product.aux && product.key.m % kAuxMultiple != 0) return {};
  cublasLtMatmulPreferenceOpaque_t preference;
  CUBLAS_CHECK(cublas().lt_preference_init(&preference, sizeof preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    CUBLAS_CHECK(cublas().lt_preference_set(&preference, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(scratch_for(product.key)));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(operand, product.key.alignment);

  Descriptors of(product);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int returned = 0;
  const cublasStatus_t status = cublas().lt_algo_heuristic(handle_, &of.operation, &of.a, &of.b, &of.d, &of.d,
                                                           &preference, count, results.data(), &returned);
  last_status_ = status;
  if (declined(status)) return {};
  CUBLAS_CHECK(status);
  std::vector<cublasLtMatmulAlgo_t> found;
  for (int i = 0; i < returned; ++i)
    if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      found.push_back(results[static_cast<size_t>(i)].algo);
  return found;
}

cublasStatus_t MatmulPlans::multiply(const LtMatmul& product, const cublasLtMatmulAlgo_t& algorithm) const {
  const float beta = product.key.write == Write::add ? product.beta : 0.0F;
  Descriptors of(product);
  return cublas().lt_matmul(handle_, &of.operation, &product.alpha, product.a, &of.a, product.b, &of.b, &beta,
                            product.c, &of.d, product.d, &of.d, &algorithm, workspace_.data,
                            scratch_for(product.key), stream_);
}

bool MatmulPlans::run(const Plan& plan, std::span<const MatmulStrategy> strategies) const {
  const MatmulStrategy& strategy = strategies[plan.strategy];
  if (strategy.product) {
    const cublasStatus_t status = multiply(*strategy.product, plan.algorithm);
    last_status_ = status;
    if (declined(status)) return false;
    CUBLAS_CHECK(status);
  }
  if (strategy.epilogue_ops) strategy.epilogue_ops();
  return true;
}

MatmulPlans::Plan MatmulPlans::without_cublaslt(const LtMatmul& request,
                                                std::span<const MatmulStrategy> strategies) const {
  for (size_t i = 0; i < strategies.size(); ++i)
    if (!strategies[i].product) return {.strategy = i};
  throw UnsupportedError(cat("cuBLASLt has no algorithm for ", text_of(request.key),
                             " on this device: ", cublas().get_status_string(last_status_)));
}

MatmulPlans::Plan MatmulPlans::first_supported(const LtMatmul& request,
                                               std::span<const MatmulStrategy> strategies) {
  for (size_t i = 0; i < strategies.size() && strategies[i].product; ++i)
    if (const auto found = algorithms(*strategies[i].product, 1); !found.empty())
      return {.strategy = i, .algorithm = found.front()};
  return allow_fp8_scratch(request.key) ? first_supported(request, strategies)
                                        : without_cublaslt(request, strategies);
}

std::optional<MatmulPlans::Plan> MatmulPlans::cached(const std::string& key,
                                                     std::span<const MatmulStrategy> strategies) const {
  const auto found = cache_.find(key);
  if (found == cache_.end()) return {};
  for (size_t i = 0; i < strategies.size(); ++i) {
    if (found->second.strategy != strategies[i].name) continue;
    const Plan plan{.strategy = i,
                    .algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(found->second.algorithm),
                    .us = found->second.us};
    // Try the plan, since cublasLtMatmulAlgoCheck() rejects most FP8 products of gradients that
    // cublasLtMatmul() can do.
    return run(plan, strategies) ? std::optional(plan) : std::nullopt;
  }
  return {};
}

MatmulPlans::Plan MatmulPlans::fastest(const LtMatmul& request, std::span<const MatmulStrategy> strategies) {
  const Range range("search a matmul");
  std::vector<Plan> plans;
  for (size_t i = 0; i < strategies.size(); ++i) {
    if (!strategies[i].product) {
      plans.push_back({.strategy = i});
    } else {
      for (const auto& algorithm : algorithms(*strategies[i].product, kCandidates))
        plans.push_back({.strategy = i, .algorithm = algorithm});
    }
  }

  if (plans.empty())
    return allow_fp8_scratch(request.key) ? fastest(request, strategies)
                                          : without_cublaslt(request, strategies);
  double best = std::numeric_limits<double>::infinity();
  for (Plan& plan : plans) {
    plan.us = std::numeric_limits<double>::infinity();
    if (!run(plan, strategies)) continue;  // the first run loads the kernel
    plan.us = time(plan, strategies, 1);
    if (plan.us < kPromising * best) plan.us = std::min(plan.us, time(plan, strategies, 1));
    best = std::min(best, plan.us);
  }
  std::erase_if(plans, [&](const Plan& plan) { return !(plan.us <= kPromising * best); });
  std::ranges::stable_sort(plans, {}, &Plan::us);
  if (plans.size() > kFinalists) plans.resize(kFinalists);

  // Time the plans in turns, so that a drifting clock affects all of them alike.
  std::vector<std::array<double, kRounds>> us(plans.size());
  const auto repeats = static_cast<int>(std::clamp(kRoundUs / best, 1.0, 20.0));
  for (size_t round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < plans.size(); ++i) us[i][round] = time(plans[i], strategies, repeats);
  for (size_t i = 0; i < plans.size(); ++i) plans[i].us = median(us[i]);
  return *std::ranges::min_element(plans, {}, &Plan::us);
}

double MatmulPlans::time(const Plan& plan, std::span<const MatmulStrategy> strategies, int repeats) const {
  run(plan, strategies);  // keeps the device busy while the rest is queued: launching is not measured
  CUDA_CHECK(cudaEventRecord(start_.get(), stream_));
  for (int i = 0; i < repeats; ++i) run(plan, strategies);
  CUDA_CHECK(cudaEventRecord(stop_.get(), stream_));
  CUDA_CHECK(cudaEventSynchronize(stop_.get()));
  float ms = 0.0F;
  CUDA_CHECK(cudaEventElapsedTime(&ms, start_.get(), stop_.get()));
  return 1e3 * static_cast<double>(ms) / repeats;
}

}  // namespace stepladder
