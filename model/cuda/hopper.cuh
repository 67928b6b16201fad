// Hopper's own instructions (PTX ISA 9.0, 9.7.13 to 9.7.15): barriers in shared memory, copies of tensors
// into it by the hardware (TMA), products by a warpgroup (wgmma), clusters of blocks. Only code for sm_90a
// has them: there, and on the host, STEPLADDER_HOPPER is defined.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "model/cuda/dynamic_library.h"
#include "model/cuda/kernels.cuh"
#include "model/error.h"
#include "model/tensor.h"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define STEPLADDER_HOPPER
/// Kernel attribute: groups of `blocks` blocks with neighbouring blockIdx.x form a cluster.
#define STEPLADDER_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define STEPLADDER_CLUSTER(blocks)
#endif

namespace stepladder {

/// A view of the bytes of `t` for copies of boxes, innermost dimension first: extents in elements, strides in
/// bytes from the second dimension on. A box has 128 bytes along the first, which lie in shared memory as
/// wgmma reads them, swizzled; what is outside of the tensor becomes 0.
template <size_t kRank>
CUtensorMap tensor_map(const Tensor& t, const std::array<uint64_t, kRank>& extents,
                       const std::array<uint64_t, kRank - 1>& strides,
                       const std::array<uint32_t, kRank>& box) {
  static const decltype(&cuTensorMapEncodeTiled) encode = cuda_driver().function("cuTensorMapEncodeTiled");
  std::array<uint32_t, kRank> each;
  each.fill(1);
  CUtensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, kRank, t.data, extents.data(), strides.data(), box.data(),
             each.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled of ", t, " failed: ", static_cast<int>(result));
  return map;
}

/// A barrier in shared memory. Its phases follow each other; a phase ends when all arrivals have happened and
/// all announced bytes have come.
class SharedBarrier {
 public:
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  /// Arrives once, and announces that `bytes` are on their way.
  __device__ void arrive_expecting(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }
  /// Arrives once at this barrier in block `rank` of the cluster. The arrival is a fence only for memory that
  /// wgmma reads.
  __device__ void arrive_at(uint32_t rank) {
    asm volatile(
        "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(address()),
        "r"(rank)
        : "memory");
  }
  /// Waits for the end of phase `phase`, counted from 0. Only the parity is compared, so call it during that
  /// phase or the next: during an earlier one it may return at once.
  __device__ void await(uint32_t phase) {
    constexpr uint32_t kSleep = 1'000'000;  // nanoseconds at most; polling would slow the other warps
    asm volatile(
        "{\n.reg .pred ended;\n"
        "again:\nmbarrier.try_wait.parity.shared.b64 ended, [%0], %1, %2;\n"
        "@!ended bra again;\n}" ::"r"(address()),
        "r"(phase % 2), "r"(kSleep)
        : "memory");
  }
  __device__ uint32_t address() const { return shared_address(this); }

 private:
  uint64_t bits_;
};

/// Makes initialised barriers visible to the cluster: call it after the first thread has initialised them,
/// and before other threads of the cluster use them.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void await_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/// wgmma's descriptor of swizzled rows of 128 bytes in shared memory, aligned to 1024 bytes. The rows of a
/// transposed operand lie along K, in boxes of 64 rows and 64 columns, one after the other.
template <bool kTransposed = false>
__device__ uint64_t wgmma_operand(const void* rows) {
  constexpr uint64_t kEightRows = 8 * 128 / 16, kNextBox = kTransposed ? 64 * 128 / 16 : 1, kSwizzle128 = 1;
  return uint64_t{shared_address(rows) >> 4} | kNextBox << 16 | kEightRows << 32 | kSwizzle128 << 62;
}
/// Orders accesses to accumulators by other instructions before products: call it before the first product
/// that uses such accumulators. It does not order ordinary stores to shared memory before wgmma's reads:
/// operands have to be copied by TMA.
__device__ inline void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Ends a group of products.
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most kPending groups of products are unfinished.
template <int kPending>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define EIGHT(i)                                                                             \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SUMS_64 EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
#define SUMS_96 SUMS_64, EIGHT(64), EIGHT(72), EIGHT(80), EIGHT(88)
#define NAMES_64                                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_96                                                                       \
  NAMES_64                                                                             \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_N192(x_type)                                                                                  \
  asm volatile(                                                                                             \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %98, 0;\n"                                                      \
      "wgmma.mma_async.sync.aligned.m64n192k32.f32." x_type ".e4m3 {" NAMES_96 "}, %96, %97, add, 1, 1;\n}" \
      : SUMS_96                                                                                             \
      : "l"(x), "l"(w), "r"(add ? 1 : 0))

/// sums = or += x w^T by a warpgroup: x (64,32) of type X, w (192,32) e4m3, each 32 bytes of the rows that
/// wgmma_operand() describes. Of the 16 rows of its warp, a thread has rows r = lane / 4 and r + 8: with
/// c = 8 i + lane % 4 * 2, sums[4 i] to sums[4 i + 3] are elements (r,c), (r,c+1), (r+8,c), (r+8,c+1).
template <class X>
__device__ void wgmma(float (&sums)[96], uint64_t x, uint64_t w, bool add) {
  if constexpr (X::kMantissa == 3) {
    WGMMA_N192("e4m3");
  } else {
    WGMMA_N192("e5m2");
  }
}
#undef WGMMA_N192

/// sums = or += x w^T for x (64,16) and w (128,16) in bf16, both described by wgmma_operand<kTransposed>().
template <bool kTransposed>
__device__ void wgmma(float (&sums)[64], uint64_t x, uint64_t w, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_64
      "}, %64, %65, add, 1, 1, %67, %67;\n}"
      : SUMS_64
      : "l"(x), "l"(w), "r"(add ? 1 : 0), "n"(kTransposed ? 1 : 0));
}

/// Waits until all groups have ended and `sums` may be read.
__device__ inline void wgmma_wait_for(float (&sums)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" : SUMS_64::"memory");
}
__device__ inline void wgmma_wait_for(float (&sums)[96]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" : SUMS_96::"memory");
}
#undef NAMES_96
#undef NAMES_64
#undef SUMS_96
#undef SUMS_64
#undef EIGHT

/// Transposes an 8x8 matrix of 16 bits, of which a lane has two neighbours in row lane / 4.
__device__ inline uint32_t transpose_8x8(uint32_t pair) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

}  // namespace stepladder
