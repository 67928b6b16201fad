// The choice of CUDA libraries among folders of fake files, which are never opened.
#include "model/cuda_libraries.h"

#include <gtest/gtest.h>

#include "tests/files.h"

namespace stepladder {
namespace {

namespace fs = std::filesystem;

class CudaLibrariesTest : public ::testing::Test {
 protected:
  /// Makes a folder with these files.
  LibraryPlace place(const std::string& name, const std::vector<std::string>& files) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path);
    for (const std::string& file : files) std::ofstream(path / file) << name;
    return {name, {path.string()}};
  }
  /// Makes a Python environment with these files of distributions, such as "cudnn/libcudnn.so.9".
  LibraryPlace environment(const std::vector<std::string>& files) const {
    LibraryPlace made{"env", {}};
    for (const std::string& file : files) {
      const fs::path distribution = fs::path(folder_ / "site/nvidia") / fs::path(file).parent_path() / "lib";
      fs::create_directories(distribution);
      std::ofstream(distribution / fs::path(file).filename()) << file;
      if (std::ranges::find(made.folders, distribution.string()) == made.folders.end())
        made.folders.push_back(distribution.string());
    }
    return made;
  }
  void installed(const std::string& dist_info, const std::string& record = "") const {
    const fs::path path = folder_ / ("site/" + dist_info);
    fs::create_directories(path);
    std::ofstream(path / "RECORD") << record;
  }

  static std::vector<std::string> cublas(int major) {
    return {cat("libcublas.so.", major), cat("libcublasLt.so.", major)};
  }
  static std::vector<std::string> all_of(int major) {
    std::vector<std::string> files = cublas(major), more = whole_cudnn();
    for (const CudaPart part : {CudaPart::cudart, CudaPart::nvrtc, CudaPart::nccl, CudaPart::cupti})
      files.push_back(soname_of(part, major));
    files.insert(files.end(), more.begin(), more.end());
    return files;
  }
  static std::vector<std::string> whole_cudnn() {
    std::vector<std::string> files = {"libcudnn.so.9"};
    for (const char* part : {"graph", "ops", "heuristic", "engines_precompiled", "engines_runtime_compiled"})
      files.push_back(cat("libcudnn_", part, ".so.9"));
    return files;
  }
  static std::vector<std::string> inside(const std::string& folder, std::vector<std::string> files) {
    for (std::string& file : files) file = folder + "/" + file;
    return files;
  }
  template <class... Lists>
  static std::vector<std::string> together(const Lists&... lists) {
    std::vector<std::string> all;
    (all.insert(all.end(), lists.begin(), lists.end()), ...);
    return all;
  }

  TempFolder folder_;
};

TEST_F(CudaLibrariesTest, AMajorIsTakenWholeFromTheFirstPlaceThatHasCublas) {
  const LibraryPlace bare = place("bare", {"libcudart.so.12", "libcublas.so.12"});  // cuBLASLt is missing
  const LibraryPlace toolkit = place("toolkit", all_of(12));
  const CudaLibraries chosen = choose_cuda_libraries({bare, toolkit}, 12040);
  EXPECT_EQ(chosen.major, 12);
  EXPECT_EQ(chosen.paths.size(), std::size(kCudaParts));
  for (const auto& [part, path] : chosen.paths)
    EXPECT_EQ(path, cat(toolkit.folders.front(), "/", soname_of(part, 12)));
}

TEST_F(CudaLibrariesTest, WhatThatPlaceLacksComesFromTheNextOnes) {
  const LibraryPlace toolkit = place("toolkit", cublas(13)), more = place("more", all_of(13));
  const CudaLibraries chosen = choose_cuda_libraries({toolkit, more}, 0);
  EXPECT_EQ(chosen.paths.at(CudaPart::cublas), toolkit.folders.front() + "/libcublas.so.13");
  EXPECT_EQ(chosen.paths.at(CudaPart::cupti), more.folders.front() + "/libcupti.so.13");
  EXPECT_EQ(chosen.paths.at(CudaPart::nccl), more.folders.front() + "/libnccl.so.2");
}

TEST_F(CudaLibrariesTest, OfBothMajorsTheDriverThenThePlaceThenThePartsThenTheNewerDecide) {
  const LibraryPlace old = place("old", all_of(12)), now = place("now", all_of(13));
  EXPECT_EQ(choose_cuda_libraries({now, old}, 12080).major, 12);
  EXPECT_EQ(choose_cuda_libraries({old, now}, 13000).major, 12);
  EXPECT_EQ(choose_cuda_libraries({now, old}, 13000).major, 13);
  const LibraryPlace mixed = place("mixed", together(cublas(12), cublas(13)));
  EXPECT_EQ(choose_cuda_libraries({mixed}, 13000).major, 13);
  const LibraryPlace more = place("mixed", {"libcupti.so.12"});
  EXPECT_EQ(choose_cuda_libraries({more}, 13000).major, 12);
  EXPECT_EQ(choose_cuda_libraries({more}, 0).major, 12);
}

TEST_F(CudaLibrariesTest, BothMajorsAreNamedInTheReason) {
  const LibraryPlace old = place("old", cublas(12)), now = place("now", cublas(13));
  for (const int driver : {12080, 13000}) {
    const CudaLibraries chosen = choose_cuda_libraries({old, now}, driver);
    EXPECT_EQ(chosen.major, 12);
    EXPECT_NE(chosen.reason.find("old"), std::string::npos) << chosen.reason;
    EXPECT_NE(chosen.reason.find("CUDA 13's in now"), std::string::npos) << chosen.reason;
  }
}

TEST_F(CudaLibrariesTest, AMajorThatTheDriverCantRunIsNoChoice) {
  const CudaLibraries none = choose_cuda_libraries({place("now", all_of(13))}, 12040);
  EXPECT_FALSE(none.usable());
  EXPECT_TRUE(none.paths.empty());
  for (const char* told : {"now", "12.4", "stepladder[cuda12]"})
    EXPECT_NE(none.reason.find(told), std::string::npos) << none.reason;
  EXPECT_EQ(none.reason.find('\n'), std::string::npos);
  EXPECT_EQ(none.missing(CudaPart::cublas), none.reason);
}

TEST_F(CudaLibrariesTest, NothingAndAnotherMajorSayWhatToInstall) {
  for (const auto& files : {std::vector<std::string>(), {"libcublas.so.11", "libcublasLt.so.11"}}) {
    const CudaLibraries none = choose_cuda_libraries({place("here", files)}, 13000);
    EXPECT_FALSE(none.usable());
    EXPECT_NE(none.reason.find("here"), std::string::npos) << none.reason;
    EXPECT_NE(none.reason.find("pip install 'stepladder[cuda12]'"), std::string::npos) << none.reason;
  }
}

TEST_F(CudaLibrariesTest, ACudnnThatLacksAPartIsNamedAndAnotherTaken) {
  std::vector<std::string> files = all_of(12);
  std::erase(files, "libcudnn_graph.so.9");
  const LibraryPlace torn = place("torn", files);
  const CudaLibraries alone = choose_cuda_libraries({torn}, 0);
  EXPECT_FALSE(alone.paths.contains(CudaPart::cudnn));
  for (const char* told : {"libcudnn_graph.so.9", "torn", "nvidia-cudnn-cu12"})
    EXPECT_NE(alone.missing(CudaPart::cudnn).find(told), std::string::npos) << alone.missing(CudaPart::cudnn);
  const LibraryPlace whole = place("whole", all_of(12));
  EXPECT_EQ(choose_cuda_libraries({torn, whole}, 0).paths.at(CudaPart::cudnn),
            whole.folders.front() + "/libcudnn.so.9");
}

TEST_F(CudaLibrariesTest, AnEnvironmentsCudnnIsOfTheDistributionThatIsThere) {
  const LibraryPlace env = environment(
      together(inside("cublas", cublas(12)), inside("cu13", cublas(13)), inside("cudnn", whole_cudnn())));
  installed("nvidia_cudnn_cu12-9.8.0.87.dist-info");
  EXPECT_EQ(choose_cuda_libraries({env}, 0).major, 12);
  // With both distributions installed, the RECORD with the file's size tells which one the file is from.
  const std::string content = "cudnn/libcudnn.so.9";
  installed("nvidia_cudnn_cu13-9.19.0.dist-info",
            cat("nvidia/cudnn/lib/libcudnn.so.9,sha256=x,", content.size(), "\n"));
  installed("nvidia_cudnn_cu12-9.8.0.87.dist-info", "nvidia/cudnn/lib/libcudnn.so.9,sha256=y,1\n");
  const CudaLibraries both = choose_cuda_libraries({env}, 0);
  EXPECT_EQ(both.major, 13);
  EXPECT_TRUE(both.paths.contains(CudaPart::cudnn));
  const CudaLibraries older = choose_cuda_libraries({env}, 12040);
  EXPECT_EQ(older.major, 12);
  EXPECT_NE(older.missing(CudaPart::cudnn).find("for CUDA 13"), std::string::npos);
}

TEST_F(CudaLibrariesTest, TheNamedFoldersAreTheOnlyPlace) {
  const LibraryPlace named = place("named", cublas(12));
  setenv("STEPLADDER_CUDA_LIBRARIES", cat("/nowhere:", named.folders.front()).c_str(), 1);
  const std::vector<LibraryPlace> places = cuda_library_places();
  unsetenv("STEPLADDER_CUDA_LIBRARIES");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(choose_cuda_libraries(places, 0).paths.at(CudaPart::cublas),
            named.folders.front() + "/libcublas.so.12");
}

TEST_F(CudaLibrariesTest, AnActivatedEnvironmentsDistributionsAreFound) {
  const std::string lib = folder_ / "venv/lib/python3.12/site-packages/nvidia/cublas/lib";
  fs::create_directories(lib);
  for (const std::string& file : cublas(12)) std::ofstream(fs::path(lib) / file) << "x";
  setenv("VIRTUAL_ENV", (folder_ / "venv").c_str(), 1);
  const std::vector<LibraryPlace> places = cuda_library_places();
  unsetenv("VIRTUAL_ENV");
  EXPECT_TRUE(std::ranges::any_of(places, [&](const LibraryPlace& place) {
    return std::ranges::find(place.folders, lib) != place.folders.end();
  }));
}

}  // namespace
}  // namespace stepladder
