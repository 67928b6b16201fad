// Ops that split and merge heads, and the stored causal mask.
#include "model/cuda/cuda.h"
#include "model/cuda/kernels.cuh"

namespace stepladder {
namespace {

template <class Type, int kParts>
struct Heads {  // each (B,NH,T,HS)
  Type* part[kParts];
};

// Copies from whole (B,T,kParts*C) to the parts' heads if kSplit, else back: whole[b][t][p*C + h*HS + s] =
// part p [b][h][t][s]. A block copies a row of `whole`, each of its kWarps warps every kWarps-th head.
constexpr int kWarps = 8;

// Parts are indexed at run time: without __grid_constant__ `heads` would be copied to local memory.
template <bool kSplit, class Type, int kParts>
__global__ void __launch_bounds__(32 * kWarps)
    heads_kernel(const __grid_constant__ Heads<Type, kParts> heads, Type* whole, int NH, int T, int HS) {
  await_predecessor();
  const int64_t b = blockIdx.x / T, t = blockIdx.x % T;
  Type* row = whole + static_cast<int64_t>(blockIdx.x) * kParts * NH * HS;
  const auto element = [&](int ph, int s) {  // ph = p * NH + h
    const int p = ph / NH, h = ph - p * NH;
    return heads.part[p] + ((b * NH + h) * T + t) * HS + s;
  };
  for (int s = static_cast<int>(threadIdx.x); s < HS; s += 32) {
    for (int first = static_cast<int>(threadIdx.y); first < kParts * NH; first += kItems * kWarps) {
      Type x[kItems];
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const int ph = first + j * kWarps;
        if (ph < kParts * NH) x[j] = kSplit ? row[ph * HS + s] : *element(ph, s);
      }
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const int ph = first + j * kWarps;
        if (ph < kParts * NH) (kSplit ? *element(ph, s) : row[ph * HS + s]) = x[j];
      }
    }
  }
}

template <bool kSplit, int kParts>
void move_heads(Queue& queue, const Tensor (&parts)[kParts], Tensor whole) {
  const Shape& shape = parts[0].shape;
  const int64_t B = shape[0], NH = shape[1], T = shape[2], HS = shape[3];
  with_float_type(whole.dtype, [&]<class Type>(Type) {
    Heads<Type, kParts> heads;
    for (int p = 0; p < kParts; ++p) {
      heads.part[p] = parts[p].template ptr<Type>();
    }
    if (whole.numel() == 0) return;
    column_count(whole.cols());
    launch(queue, heads_kernel<kSplit, Type, kParts>, grid_size(B * T), dim3(32, kWarps), 0, heads,
           whole.ptr<Type>(), static_cast<int>(NH), static_cast<int>(T), static_cast<int>(HS));
  });
}

struct CausalMaskFunctor {  // 0 where s <= t, else -inf
  __device__ auto row(int64_t t) const {
    return [t](int64_t, int s) { return s <= t ? 0.0F : -INFINITY; };
  }
};

template <class Type>
struct AddMaskFunctor {  // att + mask[t]
  const Type *att, *mask;
  int64_t T;
  __device__ auto row(int64_t row) const {
    return
        [att = att, mask = mask + row % T * T](int64_t i, int s) { return load(att + i) + load(mask + s); };
  }
};

}  // namespace

void SplitQkv::run(Cuda& cuda) const {
  move_heads<true>(cuda.queue, {q, k, v}, qkv);
}

void MergeQkv::run(Cuda& cuda) const {
  move_heads<false>(cuda.queue, {q, k, v}, qkv);
}

void SplitHeads::run(Cuda& cuda) const {
  move_heads<true>(cuda.queue, {out}, x);
}

void MergeHeads::run(Cuda& cuda) const {
  move_heads<false>(cuda.queue, {x}, out);
}

void CausalMask::run(Cuda& cuda) const {
  map_rows_of_type(cuda.queue, mask, [](auto) { return CausalMaskFunctor{}; });
}

void AddMask::run(Cuda& cuda) const {
  const int64_t T = mask.cols();
  map_rows_of_type(cuda.queue, att, [&]<class Type>(Type) {
    return AddMaskFunctor<Type>{att.ptr<Type>(), mask.ptr<Type>(), T};
  });
}

}  // namespace stepladder
