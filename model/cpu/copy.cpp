#include <algorithm>
#include <cstring>

#include "model/cpu/cpu.h"

namespace stepladder {

void Upload::run(Cpu&) const {
  if (dst.bytes() > 0) std::memcpy(dst.data, host, dst.bytes());
}

void Download::run(Cpu&) const {
  if (src.bytes() > 0) std::memcpy(host, src.data, src.bytes());
}

void Zero::run(Cpu&) const {
  if (x.bytes() > 0) std::memset(x.data, 0, x.bytes());
}

void Copy::run(Cpu& cpu) const {
  with_float_type(dst.dtype, [&]<class To>(To) {
    with_float_type(src.dtype, [&]<class From>(From) {
      const auto from = floats<From>(src);
      cpu.each_element(floats<To>(dst), dst.numel(), [=](int64_t i) { return from[i]; });
    });
  });
}

void WriteValues::run(Cpu&) const {
  std::copy(values.begin(), values.end(), dst.ptr<float>());
}

void Stage::run(Cpu& cpu) const {
  Upload{staged, pinned}.run(cpu);
}

void Receive::run(Cpu& cpu) const {
  Upload{dst, staged.data}.run(cpu);
}

}  // namespace stepladder
