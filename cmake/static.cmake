# STEPLADDER_STATIC links libraries that a system may lack, or have in another version, into libstepladder. Sets `others_libraries`.
set(others_libraries PkgConfig::openblas PkgConfig::pcre2 ZLIB::ZLIB)
if(STEPLADDER_STATIC)
  add_library(others INTERFACE)
  target_include_directories(others SYSTEM INTERFACE ${openblas_INCLUDE_DIRS} ${pcre2_INCLUDE_DIRS} ${ZLIB_INCLUDE_DIRS})
  foreach(archive libopenblas.a libpcre2-8.a libz.a)
    find_library(${archive} ${archive} HINTS ${openblas_LIBRARY_DIRS} ${openblas_LIBDIR} ${pcre2_LIBRARY_DIRS} ${pcre2_LIBDIR})
    if(NOT ${archive})
      message(FATAL_ERROR "STEPLADDER_STATIC: ${archive} was not found: install the package that has it, or set CMAKE_LIBRARY_PATH")
    endif()
    target_link_libraries(others INTERFACE ${${archive}})
  endforeach()
  set(others_libraries others)
  # libstdc++ is linked into libstepladder, from which the harness and the programs take it. With a single copy, an exception
  # of one library is caught in another. Its symbols have a version of ours, so that NVIDIA's libraries don't bind to them.
  add_link_options(-static-libstdc++ -static-libgcc)
  set(hidden -Wl,--exclude-libs,libopenblas.a:libpcre2-8.a:libz.a -Wl,--default-symver)
endif()
