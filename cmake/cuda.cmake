# CUDA, and NVIDIA's libraries beside it: cuDNN, CUPTI, NCCL. Each is used where it is found, and else reported as missing.
# Sets `cuda`, `cudnn`, `cuda_headers`, the folders of their headers, and `cuda_folders`, those of their libraries.

# The libraries are opened at run time (model/cuda_libraries.h), and looked for there too.
set(cuda_folders)

# ---- CUDA: found, asked for, or plainly absent -------------------------------------------------------------------
set(cuda OFF)
if(NOT STEPLADDER_CUDA STREQUAL "OFF")
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90a-real 90-virtual)  # T4, A100, H100/H200, PTX for what follows
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    # The C++ compiler links, with the libstdc++ of its own: that of nvcc's C++ compiler may be older.
    list(FILTER CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES EXCLUDE REGEX "/gcc/")
    if(NOT TARGET CUDA::nvToolsExt)
      add_library(CUDA::nvToolsExt INTERFACE IMPORTED)  # CMake 3.25.1's module expects it, CUDA 13 has none
    endif()
    find_package(CUDAToolkit 12 REQUIRED)
    list(APPEND cuda_folders ${CUDAToolkit_LIBRARY_DIR})
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know that nvcc 12 has C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(cuda ON)
  elseif(STEPLADDER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "STEPLADDER_CUDA=ON, but no nvcc was found: put it on PATH or set CUDACXX")
  endif()
endif()
if(cuda)
  message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
else()
  message(STATUS "CUDA backend: none, CPU only")
endif()

# Sets NAME_INCLUDE_DIR and NAME_LIBRARY: in NAME_ROOT, then in the folders behind `last`, in the toolkit and where NVIDIA's PyPI
# wheels put it. The library may be in `last` too.
function(find_beside name header libraries last)
  set(hints ${${name}_ROOT} $ENV{${name}_ROOT} ${ARGN})
  find_path(${name}_INCLUDE_DIR ${header} HINTS ${hints} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(${name}_LIBRARY NAMES ${libraries} HINTS ${hints} ${last} PATH_SUFFIXES lib lib64)
endfunction()

# ---- cuDNN attention: cuDNN 9's header and library, and the header-only nvidia-cudnn-frontend, or plainly absent -------
set(CUDNN_ROOT "" CACHE PATH "Folder with cuDNN's include/ and lib/, where it is not beside the CUDA toolkit")
set(CUDNN_FRONTEND_DIR "" CACHE PATH "Folder with cudnn_frontend.h, or with include/ that has it")
set(cudnn OFF)
if(cuda)
  find_beside(CUDNN cudnn.h "libcudnn.so.9;cudnn" "" ${CUDAToolkit_BIN_DIR}/.. ${CUDAToolkit_BIN_DIR}/../../cudnn)
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CUDNN_FRONTEND_DIR} $ENV{CUDNN_FRONTEND_DIR} PATH_SUFFIXES include)
  if(NOT CUDNN_INCLUDE_DIR)
    message(WARNING "No cuDNN attention: cuDNN 9 (nvidia-cudnn-cu${CUDAToolkit_VERSION_MAJOR}) was not found, "
                    "set CUDNN_ROOT")
  elseif(NOT CUDNN_FRONTEND_INCLUDE_DIR)
    message(WARNING "No cuDNN attention: nvidia-cudnn-frontend was not found, set CUDNN_FRONTEND_DIR")
  else()
    message(STATUS "cuDNN attention: headers in ${CUDNN_INCLUDE_DIR} and ${CUDNN_FRONTEND_INCLUDE_DIR}")
    list(APPEND cuda_folders ${CUDNN_LIBRARY})
    list(APPEND cuda_headers ${CUDNN_FRONTEND_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR})
    set(cudnn ON)
  endif()
endif()

# ---- kernel times in `stepladder profile`: CUPTI's headers, its library at run time, or plainly absent ----------------
set(CUPTI_ROOT "" CACHE PATH "Folder with CUPTI's include/ and lib/, where it is not in the CUDA toolkit")
if(cuda)
  find_beside(CUPTI cupti.h libcupti.so.${CUDAToolkit_VERSION_MAJOR} "${CUDAToolkit_LIBRARY_DIR}"
    ${CUDAToolkit_BIN_DIR}/../extras/CUPTI ${CUDAToolkit_BIN_DIR}/.. ${CUDAToolkit_BIN_DIR}/../../cuda_cupti)
  if(CUPTI_INCLUDE_DIR)
    message(STATUS "Kernel times: CUPTI's headers in ${CUPTI_INCLUDE_DIR}")
    list(APPEND cuda_folders ${CUPTI_LIBRARY})
    set_source_files_properties(model/cuda/cupti_tracer.cpp PROPERTIES COMPILE_DEFINITIONS STEPLADDER_CUPTI)
    list(APPEND cuda_headers ${CUPTI_INCLUDE_DIR})
  else()
    message(STATUS "Kernel times: none, CUPTI (nvidia-cuda-cupti) was not found, set CUPTI_ROOT")
  endif()
endif()

# ---- ranks on several devices: NCCL's header, its library at run time; MPI for those on the CPU --------------------------
set(NCCL_ROOT "" CACHE PATH "Folder with NCCL's include/ and lib/, where it is not beside the CUDA toolkit")
if(cuda)
  find_beside(NCCL nccl.h libnccl.so.2 "${CUDAToolkit_LIBRARY_DIR}" ${CUDAToolkit_BIN_DIR}/.. ${CUDAToolkit_BIN_DIR}/../../nccl)
  if(NCCL_INCLUDE_DIR)
    message(STATUS "Several CUDA devices: NCCL's header in ${NCCL_INCLUDE_DIR}")
    list(APPEND cuda_folders ${NCCL_LIBRARY})
    set_source_files_properties(model/cuda/comm_nccl.cpp PROPERTIES COMPILE_DEFINITIONS STEPLADDER_NCCL)
    list(APPEND cuda_headers ${NCCL_INCLUDE_DIR})
  else()
    message(STATUS "Several CUDA devices: no, NCCL (nvidia-nccl-cu${CUDAToolkit_VERSION_MAJOR}) was not found, set NCCL_ROOT")
  endif()
endif()

# ---- the folders -----------------------------------------------------------------------------------------------------------
list(FILTER cuda_folders EXCLUDE REGEX NOTFOUND$)
list(TRANSFORM cuda_folders REPLACE "/[^/]*[.]so[^/]*$" "")
list(REMOVE_DUPLICATES cuda_folders)
if(STEPLADDER_STATIC)
  set(cuda_folders)  # these are this machine's, and the wheel runs on others
endif()
