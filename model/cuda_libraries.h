// Which of the CUDA libraries on this machine a process uses: those of one major version, each by its path.
// The choice needs no CUDA to compile, and opens no library.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace stepladder {

enum class CudaPart { cublas_lt, cublas, cudart, nvrtc, cudnn, nccl, cupti };
inline constexpr CudaPart kCudaParts[] = {CudaPart::cublas_lt, CudaPart::cublas, CudaPart::cudart,
                                          CudaPart::nvrtc,     CudaPart::cudnn,  CudaPart::nccl,
                                          CudaPart::cupti};

/// "cuBLASLt", "cuDNN".
const char* name_of(CudaPart part);
/// "libcublas.so.12". cuDNN and NCCL have majors of their own.
std::string soname_of(CudaPart part, int cuda_major);

/// Folders that were filled together, such as a toolkit's.
struct LibraryPlace {
  std::string name;  // "the CUDA toolkit in /usr/local/cuda"
  std::vector<std::string> folders;
};

/// The libraries of one CUDA major.
struct CudaLibraries {
  int major = 0;                          // 12 or 13; 0: none can be used
  std::string reason;                     // why this major, or why none and what to do
  std::map<CudaPart, std::string> paths;  // those that were found
  std::map<CudaPart, std::string> flaws;  // why a part that was found can't be used; it has no path

  bool usable() const { return major != 0; }
  /// Why `part` has no path and what to install, in one line.
  std::string missing(CudaPart part) const;
};

/// Chooses among what lies in `places`, the preferred ones first. A major can be used where the driver runs
/// it and a place has both cuBLAS libraries; of two, the one whose cuBLAS is in the earlier place, then the
/// one with more parts, then the newer. All parts come from the place of cuBLAS, as far as it has them.
/// `driver`: the CUDA version that the driver supports, 12040 for 12.4; 0: unknown, and nothing is ruled out.
///
/// Majors of cuDNN and NCCL, whose names don't tell: in a Python environment the installed distribution's;
/// elsewhere that of the place's only cuBLAS; else they fit any.
CudaLibraries choose_cuda_libraries(const std::vector<LibraryPlace>& places, int driver);

/// Where this process looks. STEPLADDER_CUDA_LIBRARIES, folders with colons between them, alone where it is
/// set. Otherwise: the Python environment that the package is in, LD_LIBRARY_PATH, the toolkit it was built
/// by, the activated environment (VIRTUAL_ENV, CONDA_PREFIX) and those of the system and the user, toolkits
/// (CUDA_HOME, /usr/local/cuda*), the loader's other folders.
std::vector<LibraryPlace> cuda_library_places();

/// This process's, chosen at the first call. Without a CUDA backend none can be used.
const CudaLibraries& cuda_libraries();

}  // namespace stepladder
