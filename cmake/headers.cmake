# Header-only libraries, found by CMake's own search for their package, or else by their headers: in CMAKE_PREFIX_PATH and
# <package>_ROOT before the system's folders.

# Makes the target package::target, of the version `oldest` or newer; `debian` is the package to install where there is none.
function(find_headers package target oldest header debian)
  find_package(${package} ${oldest} QUIET CONFIG)
  if(TARGET ${package}::${target})
    return()
  endif()
  string(TOUPPER ${package} upper)
  find_path(${package}_INCLUDE_DIR ${header} PATH_SUFFIXES include
    HINTS ${${package}_ROOT} ${${upper}_ROOT} ENV ${package}_ROOT ENV ${upper}_ROOT)
  if(NOT ${package}_INCLUDE_DIR)
    message(FATAL_ERROR "${package} was not found: install ${oldest} or newer (${debian}), or set CMAKE_PREFIX_PATH or ${package}_ROOT")
  endif()
  set(version)
  foreach(file ${header} nlohmann/detail/abi_macros.hpp CLI/Version.hpp boost/version.hpp)
    if(NOT version AND EXISTS ${${package}_INCLUDE_DIR}/${file})
      file(STRINGS ${${package}_INCLUDE_DIR}/${file} lines REGEX "define ${upper}.*_VERSION_(MAJOR|MINOR|PATCH) |define ${upper}_LIB_VERSION ")
      string(REGEX MATCHALL "[ _\"][0-9]+" version "${lines}")
    endif()
  endforeach()
  string(REGEX REPLACE "[ _\"]" "" version "${version}")
  string(REPLACE ";" "." version "${version}")
  if(version VERSION_LESS oldest)
    message(FATAL_ERROR "${package} ${version} in ${${package}_INCLUDE_DIR} is too old: install ${oldest} or newer, and set "
                        "CMAKE_PREFIX_PATH or ${package}_ROOT to where it is")
  endif()
  add_library(${package}::${target} INTERFACE IMPORTED GLOBAL)
  set_target_properties(${package}::${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${${package}_INCLUDE_DIR})
endfunction()
