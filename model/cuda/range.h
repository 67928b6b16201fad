// Range: names a stretch of the calling thread for profilers (NVTX); costs next to nothing without a
// profiler.
#pragma once

#include <nvtx3/nvToolsExt.h>

namespace stepladder {

class Range {
 public:
  explicit Range(const char* name) { nvtxRangePushA(name); }
  ~Range() { nvtxRangePop(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace stepladder
