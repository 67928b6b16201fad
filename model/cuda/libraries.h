// The CUDA libraries of this process, opened by the paths that cuda_libraries() chose.
#pragma once

#include <string>

#include "model/cuda/dynamic_library.h"
#include "model/cuda_libraries.h"

namespace stepladder {

/// Opens `part`. Throws UnsupportedError where it is missing, saying how to get it; Error where it can't be
/// opened.
DynamicLibrary open_library(CudaPart part);

/// Opens those of `parts` that are installed, so that other libraries which open a part by its name get the
/// same file.
void open_for_others(std::initializer_list<CudaPart> parts);

}  // namespace stepladder
