# ---- one executable per rung and ablation --------------------------------------------------------------------------
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
file(GLOB_RECURSE hashed_sources CONFIGURE_DEPENDS model/*.h model/*.cpp model/*.cu model/*.cuh)
list(SORT hashed_sources)
# The list of files is a dependency of its own: without it, a removed file would leave the hashes as they were.
list(JOIN hashed_sources "\n" hashed_list)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/hashed_sources.txt CONTENT "${hashed_list}" @ONLY)
add_library(stepladder_rung_main OBJECT bench/rung/main.cpp)
target_compile_options(stepladder_rung_main PRIVATE ${optimise_least})
target_compile_definitions(stepladder_rung_main PRIVATE STEPLADDER_VERSION="${PROJECT_VERSION}")
target_link_libraries(stepladder_rung_main PRIVATE libstepladder)

# What trainers include, precompiled: a third of a trainer's time. It has to be the first header on the command line, and CMake would
# put it behind the trainer's own. (ccache needs the option of gcc.)
set(trainer_flags ${optimise_little})
if(STEPLADDER_QUICK_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/trainer_header.cpp CONTENT "")
  add_library(trainer_header OBJECT ${CMAKE_BINARY_DIR}/generated/trainer_header.cpp)
  target_compile_options(trainer_header PRIVATE ${trainer_flags})
  target_link_libraries(trainer_header PRIVATE stepladder_flags)
  target_precompile_headers(trainer_header PRIVATE <algorithm> <cmath> <utility> ${CMAKE_SOURCE_DIR}/model/data.h
    ${CMAKE_SOURCE_DIR}/model/feed.h ${CMAKE_SOURCE_DIR}/model/gpt2.h)
  set(precompiled ${CMAKE_BINARY_DIR}/CMakeFiles/trainer_header.dir/cmake_pch.hxx)
  list(PREPEND trainer_flags -Winvalid-pch -fpch-preprocess -include ${precompiled})
endif()

# Executable `target` of the trainer `name` ("02_tf32", "only/02_tf32"), and rung_<target> with its object.
function(add_trainer target name source)
  set(header ${CMAKE_BINARY_DIR}/generated/${name}.h)
  set_property(GLOBAL APPEND PROPERTY hashed ${name}=${source})
  set_property(GLOBAL APPEND PROPERTY generated ${header} ${ARGN})
  add_library(rung_${target} OBJECT ${source} ${header} ${ARGN})
  # A trainer calls ops in order, nothing else: there is nothing in it to optimise.
  target_compile_options(rung_${target} PRIVATE ${trainer_flags} "SHELL:-include ${header}")
  if(precompiled)
    set_property(SOURCE ${source} APPEND PROPERTY OBJECT_DEPENDS ${precompiled}.gch)
  endif()
  target_link_libraries(rung_${target} PRIVATE stepladder_flags)
  add_executable(${target} $<TARGET_OBJECTS:rung_${target}> $<TARGET_OBJECTS:stepladder_rung_main>)
  target_link_libraries(${target} PRIVATE libstepladder)
endfunction()

# The headers of the trainers that were added since the last call, by one command.
function(add_source_hashes)
  get_property(hashed GLOBAL PROPERTY hashed)
  set_property(GLOBAL PROPERTY hashed)
  list(TRANSFORM hashed REPLACE "=.*" ".h" OUTPUT_VARIABLE headers)
  list(TRANSFORM headers PREPEND ${CMAKE_BINARY_DIR}/generated/)
  list(TRANSFORM hashed REPLACE "^[^=]*=" "" OUTPUT_VARIABLE sources)
  add_custom_command(OUTPUT ${headers}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/source_hash.py ${CMAKE_BINARY_DIR}/generated ${hashed}
    DEPENDS ${sources} ${hashed_sources} ${CMAKE_BINARY_DIR}/generated/hashed_sources.txt cmake/source_hash.py)
endfunction()

# A header with the hash of the sources that the choice of a GEMM algorithm depends on, besides device and library.
if(cuda)
  set(header ${CMAKE_BINARY_DIR}/generated/gemms.h)
  add_custom_command(OUTPUT ${header}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/source_hash.py --gemms ${header}
    DEPENDS ${hashed_sources} ${CMAKE_BINARY_DIR}/generated/hashed_sources.txt cmake/source_hash.py)
  set_property(GLOBAL APPEND PROPERTY generated ${header})
  target_sources(libstepladder PRIVATE ${header})
  set_property(SOURCE model/cuda/compile.cpp APPEND PROPERTY OBJECT_DEPENDS ${header})
  set_property(SOURCE model/cuda/compile.cpp APPEND PROPERTY COMPILE_OPTIONS -include ${header})
  set_property(SOURCE model/cuda/compile.cpp APPEND PROPERTY COMPILE_DEFINITIONS "STEPLADDER_BUILD=\"${build}\"")
endif()

set(rungs)
set(first_rungs)
set(rung_objects)
foreach(variant IN LISTS variants)
  get_filename_component(rung ${variant} NAME_WE)
  add_trainer(${rung} ${rung} ${CMAKE_SOURCE_DIR}/${variant})
  list(APPEND rungs ${rung})
  if(rung IN_LIST rungs_of_variants)
    list(APPEND first_rungs ${rung})
  endif()
  list(APPEND rung_objects $<TARGET_OBJECTS:rung_${rung}>)
endforeach()
add_source_hashes()
set(ablation_programs)
set(ablation_objects)
if(NOT STEPLADDER_ABLATION_PROGRAMS)
  set(ablations)
endif()
foreach(ablation IN LISTS ablations)
  string(REPLACE / _ target ${ablation})
  add_trainer(${target} ${ablation} ${source_of_${ablation}} ${merge_of_${ablation}})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/ablations)
  list(APPEND ablation_programs ${target})
  list(APPEND ablation_objects $<TARGET_OBJECTS:rung_${target}>)
endforeach()
if(ablations)
  add_source_hashes()
endif()

# `cmake --build build/cpu --target ladder` builds what `stepladder run` starts, `first_rungs` what it starts without --ladder,
# `ablations` what `stepladder ablate` starts too.
add_custom_target(first_rungs DEPENDS stepladder ${first_rungs})
add_custom_target(ladder DEPENDS stepladder ${rungs})
add_custom_target(ablations DEPENDS ladder ${ablation_programs})

# Headers that the build makes and sources include.
get_property(generated GLOBAL PROPERTY generated)
add_custom_target(generated DEPENDS ${generated})
