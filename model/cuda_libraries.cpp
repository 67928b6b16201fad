#include "model/cuda_libraries.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "model/environment.h"
#include "model/error.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

constexpr int kMajors[] = {13, 12};  // CUDA majors that the code was tried with, the preferred one first

/// Libraries that libcudnn.so.9 opens for attention; without one of them cuDNN fails at first use.
constexpr const char* kCudnnParts[] = {"graph", "ops", "heuristic", "engines_precompiled",
                                       "engines_runtime_compiled"};

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

/// The entries of a folder, sorted; empty where it can't be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    found.push_back(at->path());
  std::ranges::sort(found);
  return found;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

// ---- a place ----

/// Whether `path` has the size that the distribution's RECORD notes for `file`.
bool records(const fs::path& dist_info, const std::string& file, const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  std::ifstream record(dist_info / "RECORD");
  for (std::string line; std::getline(record, line);)
    if (line.starts_with(file + ",")) return !error && line.ends_with(cat(",", size));
  return false;
}

/// The CUDA major that `library`, in an environment's nvidia/NAME/lib, was installed for; empty where that is
/// unknown. Packages of both majors put their files into the same folder: those of the package installed last
/// are there.
std::optional<int> installed_major(const fs::path& library) {
  const fs::path nvidia = library.parent_path().parent_path().parent_path(), site = nvidia.parent_path();
  if (nvidia.filename() != "nvidia") return {};
  const std::string name = library.parent_path().parent_path().filename();
  const std::string file = fs::relative(library, site).string();
  std::vector<int> installed, whole;
  for (const fs::path& entry : entries(site))
    for (const int major : kMajors)
      if (entry.filename().string().starts_with(cat("nvidia_", name, "_cu", major, "-")) &&
          entry.extension() == ".dist-info") {
        installed.push_back(major);
        if (records(entry, file, library)) whole.push_back(major);
      }
  const std::vector<int>& told = installed.size() > 1 ? whole : installed;
  return told.size() == 1 ? std::optional(told.front()) : std::nullopt;
}

std::string find_in(const LibraryPlace& place, const std::string& name) {
  for (const std::string& folder : place.folders)
    if (const fs::path path = fs::path(folder) / name; is_there(path)) return path;
  return "";
}

/// The major of the place's cuBLAS, if the place has cuBLAS of one major only.
std::optional<int> only_major(const LibraryPlace& place) {
  std::vector<int> found;
  for (const int major : kMajors)
    if (!find_in(place, soname_of(CudaPart::cublas, major)).empty()) found.push_back(major);
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

/// Why the cuDNN at `path` is incomplete; "" where it is whole.
std::string flaw_of_cudnn(const std::string& path) {
  for (const char* part : kCudnnParts) {
    const std::string name = cat("libcudnn_", part, ".so.9");
    if (!is_there(fs::path(path).replace_filename(name)))
      return cat("cuDNN in ", fs::path(path).parent_path().string(), " lacks ", name);
  }
  return "";
}

/// Adds the parts in `place` that `libraries` lacks, of the same major.
void add_parts(const LibraryPlace& place, CudaLibraries& libraries) {
  for (const CudaPart part : kCudaParts) {
    if (libraries.paths.contains(part)) continue;
    const std::string path = find_in(place, soname_of(part, libraries.major));
    if (path.empty()) continue;
    if (part == CudaPart::cudnn || part == CudaPart::nccl) {
      auto major = installed_major(path);
      if (!major) major = only_major(place);
      if (major.value_or(libraries.major) != libraries.major) {
        libraries.flaws.try_emplace(
            part, cat(name_of(part), " in ", fs::path(path).parent_path().string(), " is for CUDA ", *major));
        continue;
      }
    }
    if (const std::string flaw = part == CudaPart::cudnn ? flaw_of_cudnn(path) : ""; !flaw.empty()) {
      libraries.flaws.try_emplace(part, flaw);
      continue;
    }
    libraries.paths[part] = path;
    libraries.flaws.erase(part);
  }
}

// ---- the choice ----

/// The libraries of a major, and where its cuBLAS is.
struct Candidate {
  CudaLibraries libraries;
  size_t place = 0;
};

std::optional<Candidate> candidate(const std::vector<LibraryPlace>& places, int major) {
  const auto has_pair = [&](const LibraryPlace& place) {
    return !find_in(place, soname_of(CudaPart::cublas_lt, major)).empty() &&
           !find_in(place, soname_of(CudaPart::cublas, major)).empty();
  };
  const auto first = std::ranges::find_if(places, has_pair);
  if (first == places.end()) return {};
  Candidate found{{}, static_cast<size_t>(first - places.begin())};
  found.libraries.major = major;
  add_parts(*first, found.libraries);
  for (const LibraryPlace& place : places) add_parts(place, found.libraries);
  return found;
}

std::string why_none(const std::vector<LibraryPlace>& places, const std::vector<Candidate>& beyond,
                     int driver) {
  if (!beyond.empty()) {
    const Candidate& newest = beyond.front();
    return cat("CUDA ", newest.libraries.major, "'s libraries are in ", places[newest.place].name,
               ", but the driver runs CUDA up to ", version_text(driver),
               driver >= 12000 ? ": install CUDA 12's, pip install 'stepladder[cuda12]', or a newer driver"
                               : ": install a newer driver, 525 at least");
  }
  for (const LibraryPlace& place : places)
    for (const std::string& folder : place.folders)
      for (const fs::path& entry : entries(folder))
        if (const std::string name = entry.filename(); name.starts_with("libcublas.so."))
          return cat(
              name, " in ", place.name,
              " is not of CUDA 12 or 13, or lacks libcublasLt beside it: install the CUDA libraries, pip "
              "install 'stepladder[cuda12]' or 'stepladder[cuda13]'");
  std::string looked;
  for (const LibraryPlace& place : places) looked += cat(looked.empty() ? "" : ", ", place.name);
  return cat(
      "cuBLAS of CUDA 12 or 13 was not found (looked in ", looked,
      "): pip install 'stepladder[cuda12]' or 'stepladder[cuda13]', install a CUDA toolkit, or name its "
      "library folder in STEPLADDER_CUDA_LIBRARIES");
}

// ---- this machine ----

/// Folders of a Python environment, "lib/python3.12/site-packages", with libraries of NVIDIA's distributions.
LibraryPlace python_place(const std::string& name, const fs::path& site) {
  LibraryPlace place{cat(name, site.string()), {}};
  for (const fs::path& distribution : entries(site / "nvidia"))
    if (is_there(distribution / "lib")) place.folders.push_back(distribution / "lib");
  return place;
}

void add_python_places(const std::string& name, const fs::path& lib, std::vector<LibraryPlace>& places) {
  for (const fs::path& python : entries(lib))
    if (python.filename().string().starts_with("python3"))
      for (const char* packages : {"site-packages", "dist-packages"})
        places.push_back(python_place(name, python / packages));
}

void add_toolkit(const fs::path& root, std::vector<LibraryPlace>& places) {
  places.push_back(
      {cat("the CUDA toolkit in ", root.string()),
       {root / "lib64", root / "lib", root / "targets/x86_64-linux/lib", root / "extras/CUPTI/lib64"}});
}

/// The folders that /etc/ld.so.conf, or a file that it includes, names.
void add_configured(const fs::path& file, std::vector<std::string>& folders) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, pattern;
    words >> first;
    if (first.starts_with('/')) folders.push_back(first);
    if (first == "include" && words >> pattern)
      for (const fs::path& entry : entries(fs::path(pattern).parent_path()))
        if (entry.extension() == ".conf") add_configured(entry, folders);
  }
}

/// Folder of the library that holds this code.
fs::path own_folder() {
  Dl_info self{};
  static const int here = 0;
  std::error_code none;
  return dladdr(&here, &self) ? fs::canonical(self.dli_fname, none).parent_path() : fs::path();
}

}  // namespace

const char* name_of(CudaPart part) {
  constexpr std::array names = {"cuBLASLt", "cuBLAS", "CUDA runtime", "NVRTC", "cuDNN", "NCCL", "CUPTI"};
  return names[static_cast<size_t>(part)];
}

std::string version_text(int version) {
  return cat(version / 1000, '.', version % 1000 / 10);
}

std::string soname_of(CudaPart part, int cuda_major) {
  constexpr std::array names = {"cublasLt", "cublas", "cudart", "nvrtc", "cudnn", "nccl", "cupti"};
  const int major = part == CudaPart::cudnn ? 9 : part == CudaPart::nccl ? 2 : cuda_major;
  return cat("lib", names[static_cast<size_t>(part)], ".so.", major);
}

std::string CudaLibraries::missing(CudaPart part) const {
  if (!usable()) return reason;
  constexpr std::array packages = {"cublas", "cublas", "cuda-runtime", "cuda-nvrtc",
                                   "cudnn",  "nccl",   "cuda-cupti"};
  const bool suffixed = major == 12 || part == CudaPart::cudnn || part == CudaPart::nccl;
  const auto flaw = flaws.find(part);
  return cat(
      flaw != flaws.end() ? flaw->second : cat("no ", soname_of(part, major), " was found for CUDA ", major),
      ": pip install ", flaw != flaws.end() ? "--force-reinstall " : "", "nvidia-",
      packages[static_cast<size_t>(part)], suffixed ? cat("-cu", major) : "");
}

CudaLibraries choose_cuda_libraries(const std::vector<LibraryPlace>& places, int driver) {
  std::vector<Candidate> found, beyond;
  for (const int major : kMajors)
    if (auto one = candidate(places, major))
      (driver != 0 && driver / 1000 < major ? beyond : found).push_back(std::move(*one));
  if (found.empty()) {
    CudaLibraries none;
    none.reason = why_none(places, beyond, driver);
    return none;
  }
  const auto rank = [](const Candidate& one) {
    return std::tuple(-static_cast<int64_t>(one.place), one.libraries.paths.size(), one.libraries.major);
  };
  Candidate& best = *std::ranges::max_element(found, {}, rank);
  const std::string at = cat("cuBLAS is in ", places[best.place].name);
  if (!beyond.empty()) {
    best.libraries.reason =
        cat(at, "; CUDA ", beyond.front().libraries.major, "'s in ", places[beyond.front().place].name,
            " is beyond the driver, which runs up to ", version_text(driver));
  } else if (found.size() > 1) {
    const Candidate& other = &best == &found[0] ? found[1] : found[0];
    const char* why = other.place != best.place ? "which comes first"
                      : other.libraries.paths.size() != best.libraries.paths.size()
                          ? "which has more of the libraries"
                          : "the newer of two";
    best.libraries.reason = cat(at, ", ", why, "; CUDA ", other.libraries.major, "'s in ",
                                places[other.place].name, " stays unused");
  } else {
    best.libraries.reason = cat(at, ", and there is no other major");
  }
  return std::move(best.libraries);
}

std::vector<LibraryPlace> cuda_library_places() {
  std::vector<LibraryPlace> places;
  if (const std::string named = environment_variable("STEPLADDER_CUDA_LIBRARIES"); !named.empty()) {
    places.push_back({cat("STEPLADDER_CUDA_LIBRARIES=", named), split(named, ':')});
    return places;
  }
  // site-packages/stepladder/lib
  const fs::path own = own_folder();
  if (const fs::path site = own.parent_path().parent_path(); is_there(site / "nvidia"))
    places.push_back(python_place("the package's environment, ", site));
  if (const std::string path = environment_variable("LD_LIBRARY_PATH"); !path.empty())
    places.push_back({"LD_LIBRARY_PATH", split(path, ':')});
  if (const std::vector<std::string> built = split(STEPLADDER_CUDA_FOLDERS, ':'); !built.empty())
    places.push_back({cat("the toolkit of the build, ", built.front()), built});
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const fs::path prefix = environment_variable(name);
    if (prefix.empty()) continue;
    add_python_places("the Python environment ", prefix / "lib", places);
    places.push_back({cat("the environment ", prefix.string()), {prefix / "lib"}});
  }
  if (const fs::path home = environment_variable("HOME"); !home.empty())
    add_python_places("the user's Python packages, ", home / ".local/lib", places);
  for (const char* lib : {"/usr/local/lib", "/usr/lib"})
    add_python_places("the system's Python packages, ", lib, places);
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string root = environment_variable(name); !root.empty()) add_toolkit(root, places);
  add_toolkit("/usr/local/cuda", places);
  std::vector<fs::path> versions = entries("/usr/local");
  std::ranges::reverse(versions);
  for (const fs::path& version : versions)
    if (version.filename().string().starts_with("cuda-")) add_toolkit(version, places);
  LibraryPlace loader{"the loader's folders", {}};
  add_configured("/etc/ld.so.conf", loader.folders);
  for (const char* folder :
       {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"})
    loader.folders.emplace_back(folder);
  places.push_back(std::move(loader));
  // Leave out places none of whose folders exists.
  std::erase_if(places, [](const LibraryPlace& place) {
    return std::ranges::none_of(place.folders, [](const std::string& folder) { return is_there(folder); });
  });
  return places;
}

}  // namespace stepladder
