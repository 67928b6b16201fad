# `cmake --install build/cpu --prefix PREFIX`: PREFIX/bin/stepladder, the trainers in libexec/stepladder, and in share/stepladder
# the files that they read, laid out as here. The folder may be moved. What was not built is left out.
install(TARGETS stepladder RUNTIME DESTINATION bin)
install(TARGETS libstepladder stepladder_harness LIBRARY DESTINATION lib)
if(TARGET stepladder_mpi)
  install(TARGETS stepladder_mpi LIBRARY DESTINATION lib)
endif()
install(TARGETS ${rungs} RUNTIME DESTINATION libexec/stepladder)
if(ablation_programs)
  install(TARGETS ${ablation_programs} RUNTIME DESTINATION libexec/stepladder/ablations OPTIONAL)
endif()

set(share share/stepladder)
install(DIRECTORY reports/ DESTINATION ${share}/reports
  FILES_MATCHING PATTERN *.py PATTERN results.schema.json PATTERN page/* PATTERN published/*
  PATTERN h100 EXCLUDE PATTERN h200 EXCLUDE PATTERN latest EXCLUDE PATTERN __pycache__ EXCLUDE)
install(FILES reports/h200/ladder.svg DESTINATION ${share}/reports/h200 OPTIONAL) # a page of a CPU shows it
install(DIRECTORY scripts/peers DESTINATION ${share}/scripts USE_SOURCE_PERMISSIONS PATTERN __pycache__ EXCLUDE)
install(PROGRAMS scripts/prepare_data.py DESTINATION ${share}/scripts)
install(FILES python/trainer/stepladder.py DESTINATION ${share}/python/trainer)
install(FILES bench/run/stepladder.h DESTINATION include)
install(FILES bench/run/stepladder.h DESTINATION ${share}/bench/run) # where examples and docs look for it
install(DIRECTORY examples docs DESTINATION ${share} PATTERN __pycache__ EXCLUDE)
# A page shows what each rung changes, and which results are of other sources.
install(DIRECTORY variants model DESTINATION ${share})
install(FILES cmake/source_hash.py DESTINATION ${share}/cmake)
if(NOT SKBUILD)  # a package fetches them at first use: python/stepladder/command.py
  install(DIRECTORY data/gpt2 DESTINATION ${share}/data OPTIONAL)
  install(FILES data/austen.txt data/dictionary.txt DESTINATION ${share}/data OPTIONAL)
endif()
install(FILES README.md LICENSE DESTINATION ${share})
install(CODE [[
  set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  file(MAKE_DIRECTORY "${prefix}/share/bash-completion/completions")
  execute_process(COMMAND "${prefix}/bin/stepladder" completion COMMAND_ERROR_IS_FATAL ANY
    OUTPUT_FILE "${prefix}/share/bash-completion/completions/stepladder")
]])
