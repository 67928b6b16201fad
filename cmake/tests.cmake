# Tests: tests/<name>_test.cpp, label unit, or op for those of ops; cpu for those that train or start a program of ours; gpu for
# *_gpu_test.cpp; multirank and multigpu for those of several ranks. tests/<name>_test.py, label cpu, are a test each.
# Fuzz targets: tests/fuzz/<name>_fuzz.cpp; without libFuzzer, a test that replays tests/fuzz/corpus/<name>/.
# `cmake --build build/cpu --target tests` builds the tests and what they start; `unit_tests` those of units and ops,
# `gpu_tests` those that need a device, and `program_tests` all others and ops.
enable_testing()
add_custom_target(unit_tests)
add_custom_target(program_tests)
add_custom_target(gpu_tests)
add_custom_target(tests DEPENDS unit_tests program_tests gpu_tests)
set(train_or_start ablation decoder fp8 gradient harness_cli hf_parity ladder launcher ops_benchmark own_trainer_cli profile
  recompute rung_cli sample telemetry verdict_cli)

# Headers that nearly all tests include are precompiled.
set(test_header OFF)
if(STEPLADDER_QUICK_BUILD AND NOT STEPLADDER_FUZZ)
  set(test_header ON)
endif()

# gcc 13 sees uninitialised reads of std::vector's elements that are not there: gcc.gnu.org/PR109561.
set(test_options $<$<CONFIG:Release>:-O0> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
function(add_test_program target)
  add_executable(${target} ${ARGN})
  target_compile_definitions(${target} PRIVATE
    STEPLADDER_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data" STEPLADDER_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE ${test_options})
  target_link_libraries(${target} PRIVATE stepladder_harness)
endfunction()

find_package(GTest QUIET)
if(NOT STEPLADDER_TESTS)
elseif(NOT GTest_FOUND)
  message(STATUS "Tests: not built, GoogleTest (libgtest-dev) was not found")
else()
  include(GoogleTest)
  add_library(fake_nvml SHARED tests/fake_nvml.cpp)
  target_link_libraries(fake_nvml PRIVATE stepladder_flags)
  if(cuda)
    add_library(nvtx_recorder SHARED tests/nvtx_recorder.cpp)
    target_include_directories(nvtx_recorder SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    target_link_libraries(nvtx_recorder PRIVATE stepladder_flags ${CMAKE_DL_LIBS})
  endif()
  # Trainer tests/NAME.cpp, built under the row of a rung.
  function(add_test_trainer name rung)
    add_executable(${name} tests/${name}.cpp $<TARGET_OBJECTS:stepladder_rung_main>)
    target_compile_options(${name} PRIVATE -include ${CMAKE_BINARY_DIR}/generated/${rung}.h)
    target_link_libraries(${name} PRIVATE libstepladder)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests BUILD_RPATH "$ORIGIN/..")
    add_dependencies(${name} rung_${rung})  # makes the header
  endfunction()
  add_test_trainer(slow_rung 00_fp32_baseline)  # really slower, for the test of the commands that must find such a rung
  add_test_trainer(untied_trainer 16_zero1)  # with other parameters than GPT-2's, on several ranks too
  set(filter)
  if(STEPLADDER_SANITIZE)
    set(filter TEST_FILTER -ComparisonPower.*:LearningPower.*)  # simulations: thousands of what other tests do once
  endif()
  if(test_header)  # a target of its own, so that a test waits for no other test
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/test_header.cpp CONTENT "")
    add_library(test_header OBJECT ${CMAKE_BINARY_DIR}/generated/test_header.cpp)
    target_compile_options(test_header PRIVATE ${test_options})
    target_link_libraries(test_header PRIVATE stepladder_harness GTest::gtest_main)
    target_precompile_headers(test_header PRIVATE <gtest/gtest.h> <nlohmann/json.hpp> <filesystem> <fstream> <random> <sstream>)
  endif()
  file(GLOB tests CONFIGURE_DEPENDS tests/*_test.cpp)
  foreach(source IN LISTS tests)
    get_filename_component(test ${source} NAME_WE)
    if((test STREQUAL ops_benchmark_test AND NOT benchmark_FOUND) OR (test STREQUAL ablation_test AND NOT ablations)
       OR (test MATCHES "_gpu_test$" AND NOT cuda))
      continue()
    endif()
    string(REPLACE _test "" of ${test})
    set(label unit)
    if(test MATCHES "_gpu_test$")
      set(label gpu)
    elseif(test STREQUAL op_cpu_test)
      set(label op)
    elseif(of IN_LIST train_or_start)
      set(label cpu)
    endif()
    if(test MATCHES "^multirank_")  # several processes each
      string(REPLACE gpu multigpu label ${label})
      string(REGEX REPLACE "unit|cpu" multirank label ${label})
    endif()
    add_test_program(${test} ${source})
    target_compile_definitions(${test} PRIVATE STEPLADDER_FAKE_NVML="$<TARGET_FILE:fake_nvml>")
    target_link_libraries(${test} PRIVATE GTest::gtest_main)
    add_dependencies(${test} fake_nvml)
    if(label MATCHES "unit|op")
      add_dependencies(unit_tests ${test})
    else()
      target_sources(${test} PRIVATE ${rung_objects})
      target_compile_definitions(${test} PRIVATE STEPLADDER_BIN="${CMAKE_BINARY_DIR}/bin")
      add_dependencies(${test} ladder)
    endif()
    if(label MATCHES gpu)
      add_dependencies(gpu_tests ${test})
    elseif(NOT label STREQUAL unit)
      add_dependencies(program_tests ${test})
    endif()
    if(test STREQUAL gradient_test)  # its reference computes in the test itself
      target_compile_options(${test} PRIVATE ${optimise_little} ${optimise_instrumented})
    elseif(test_header)
      target_compile_options(${test} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # for ccache
      target_precompile_headers(${test} REUSE_FROM test_header)
    endif()
    if(test STREQUAL ablation_test)
      target_sources(${test} PRIVATE ${ablation_objects})
      add_dependencies(${test} ablations)
    elseif(test STREQUAL verdict_cli_test)
      target_compile_definitions(${test} PRIVATE STEPLADDER_SLOW_RUNG="$<TARGET_FILE:slow_rung>")
      add_dependencies(${test} slow_rung)
    elseif(test STREQUAL multirank_test)
      add_dependencies(${test} untied_trainer)
    elseif(test STREQUAL nvtx_gpu_test)
      target_compile_definitions(${test} PRIVATE STEPLADDER_NVTX_RECORDER="$<TARGET_FILE:nvtx_recorder>")
      add_dependencies(${test} nvtx_recorder)
    elseif(test STREQUAL ops_benchmark_test)
      add_dependencies(${test} ops_benchmark)
    endif()
    # Tests that take two processors come first, or they would wait until two are free at once; then the long tests, so
    # that none is left alone at the end. ctest orders the others by the seconds that they took before: a cost that is
    # set has to be more than those seconds.
    set(processors 1)
    set(cost 0)
    if(test MATCHES "^multirank_(gpu_)?test$")  # their ranks compute; those of the other multirank tests mostly wait
      set(processors 2)
      set(cost 2000)
    elseif(test MATCHES "^(ladder|verdict_cli|own_trainer_cli|gradient|launcher)_test$|fp8|^multirank_")
      set(cost 1000)
    endif()
    gtest_discover_tests(${test} ${filter} DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
      PROPERTIES LABELS ${label} TIMEOUT 300 PROCESSORS ${processors} COST ${cost})
  endforeach()
endif()

if(STEPLADDER_TESTS AND NOT STEPLADDER_SANITIZE)
  add_test(NAME Install.APrefixWorksWithoutTheSourceTree
    COMMAND sh ${CMAKE_SOURCE_DIR}/tests/install_test.sh ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
  set_tests_properties(Install.APrefixWorksWithoutTheSourceTree PROPERTIES LABELS cpu TIMEOUT 120 SKIP_RETURN_CODE 77)
  if(ablations AND benchmark_FOUND AND MPI_CXX_FOUND)
    add_test(NAME Docs.EveryCommandRuns
      COMMAND python3 ${CMAKE_SOURCE_DIR}/tests/docs_commands.py ${CMAKE_BINARY_DIR}/bin)
    set_tests_properties(Docs.EveryCommandRuns PROPERTIES LABELS cpu TIMEOUT 900 COST 1000)
  endif()
  # A module whose packages are missing is skipped as a whole; ctest lists it among the tests that did not run.
  function(add_python_test name module)  # and options of unittest behind it
    add_test(NAME Python.${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} COMMAND bash -c
      "source scripts/setup.sh; python=$(find_python) || die 'no Python of 3.10 or newer'; \
exec $python -m unittest discover --verbose --start-directory tests --pattern ${module}")
    set_tests_properties(Python.${name} PROPERTIES LABELS cpu TIMEOUT 300 COST 1000
      SKIP_REGULAR_EXPRESSION "packages are not installed" ENVIRONMENT STEPLADDER_BIN=${CMAKE_BINARY_DIR}/bin)
  endfunction()
  file(GLOB tests CONFIGURE_DEPENDS tests/*_test.py)
  file(GLOB cases CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/tests/golden tests/golden/*)
  foreach(source IN LISTS tests)
    get_filename_component(test ${source} NAME)
    if(test STREQUAL golden_test.py)  # each case is a test, so that cases run at the same time
      foreach(case IN LISTS cases)
        add_python_test(${test}.${case} "${test} -k Golden.test_${case}")
      endforeach()
    elseif(test MATCHES "^(charts|page)_test.py$")  # so is each class of these two, the longest
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
      get_filename_component(module ${source} NAME_WE)
      file(STRINGS ${source} classes REGEX "^class .*TestCase")
      foreach(class IN LISTS classes)
        string(REGEX REPLACE "^class ([A-Za-z]+).*" "\\1" class ${class})
        add_python_test(${test}.${class} "${test} -k ${module}.${class}.test")
      endforeach()
    else()
      add_python_test(${test} ${test})
    endif()
  endforeach()
endif()

file(GLOB fuzz_targets CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cpp)
list(GET rung_objects 0 first_rung)
foreach(source IN LISTS fuzz_targets)
  get_filename_component(target ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name ${target})
  add_test_program(${target} ${source} ${first_rung})
  add_dependencies(unit_tests ${target})
  if(STEPLADDER_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${target} PRIVATE tests/fuzz/replay_main.cpp)
    add_test(NAME Fuzz.Replay_${name} COMMAND ${target} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
    set_tests_properties(Fuzz.Replay_${name} PROPERTIES LABELS unit TIMEOUT 60)
  endif()
endforeach()
