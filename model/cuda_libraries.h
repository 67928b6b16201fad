// The choice of the CUDA libraries that a process uses: those of one major version, each by its path. The
// choice needs no CUDA to compile, and opens no library.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace stepladder {

enum class CudaPart { cublas_lt, cublas, cudart, nvrtc, cudnn, nccl, cupti };
inline constexpr CudaPart kCudaParts[] = {CudaPart::cublas_lt, CudaPart::cublas, CudaPart::cudart,
                                          CudaPart::nvrtc,     CudaPart::cudnn,  CudaPart::nccl,
                                          CudaPart::cupti};

/// The name of a part: "cuBLASLt", "cuDNN".
const char* name_of(CudaPart part);
/// The file name of a part for a CUDA major: "libcublas.so.12". cuDNN and NCCL have majors of their own.
std::string soname_of(CudaPart part, int cuda_major);

/// A CUDA version as it is written: "12.4" for 12040.
std::string version_text(int version);

/// Folders that were filled together, such as a toolkit's.
struct LibraryPlace {
  std::string name;  // "the CUDA toolkit in /usr/local/cuda"
  std::vector<std::string> folders;
};

/// The libraries of one CUDA major.
struct CudaLibraries {
  int major = 0;                          // 12 or 13; 0: none can be used
  std::string reason;                     // why this major; or why no major can be used, and what to do
  std::map<CudaPart, std::string> paths;  // the parts that were found
  std::map<CudaPart, std::string> flaws;  // why a part that was found can't be used; it has no path

  bool usable() const { return major != 0; }
  /// Why `part` has no path and what to install, in one line.
  std::string missing(CudaPart part) const;
};

/// Chooses among the libraries in `places`, of which the preferred places come first. A major can be used
/// where the driver runs it and a place has both cuBLAS libraries. Of two such majors the choice is the one
/// whose cuBLAS is in the earlier place, then the one with more parts, then the newer. All parts come from
/// the place of cuBLAS, as far as that place has them.
/// `driver`: the CUDA version that the driver supports, 12040 for 12.4; 0 if unknown: no major is ruled out
/// then.
///
/// The file names of cuDNN and NCCL don't tell their CUDA major. In a Python environment the major is that of
/// the installed distribution; elsewhere it is that of the place's cuBLAS if the place has only one;
/// otherwise cuDNN and NCCL fit any major.
CudaLibraries choose_cuda_libraries(const std::vector<LibraryPlace>& places, int driver);

/// Places where this process looks for CUDA libraries: only STEPLADDER_CUDA_LIBRARIES, folders separated by
/// colons, where that is set. Otherwise: the Python environment that the package is in, LD_LIBRARY_PATH, the
/// toolkit that this program was built by, the activated environment (VIRTUAL_ENV, CONDA_PREFIX) and those of
/// the system and the user, toolkits (CUDA_HOME, /usr/local/cuda*), the loader's other folders.
std::vector<LibraryPlace> cuda_library_places();

/// The CUDA libraries of this process, chosen at the first call; none usable in a build without CUDA.
const CudaLibraries& cuda_libraries();

}  // namespace stepladder
