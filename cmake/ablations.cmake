# Ablations of each ladder: the last rung without rung k, and the first with rung k alone, merged from the variants into
# generated/without/<rung>.cpp and generated/only/<rung>.cpp. Where rung k needs rung j, both are left out for `without`
# j, and k stands on j for `only` k. Where the merge conflicts, variants/without/<rung>.cpp or variants/only/<rung>.cpp is
# built instead.
#
# Sets `ablations` ("without/03_fused_adamw", ...), for each source_of_<ablation> and merge_of_<ablation>, the output of
# its merge, and STEPLADDER_ABLATIONS for cmake/ladder.cpp.in.
set(ablations)
set(STEPLADDER_ABLATIONS)
find_package(Git QUIET)
if(NOT Git_FOUND)
  message(STATUS "Ablations: none, no git was found to merge them with")
  return()
endif()
file(GLOB written CONFIGURE_DEPENDS variants/without/*.cpp variants/only/*.cpp)

# Adds the ablation kind/rung: merges the changes from rung `from` to rung `to` into the source `into`.
function(add_ablation kind rung into from to)
  set(name ${kind}/${rung})
  set(inputs ${into} ${file_of_${from}} ${file_of_${to}})
  set(source ${CMAKE_SOURCE_DIR}/variants/${name}.cpp)
  if(source IN_LIST written)
    set(merge ${CMAKE_BINARY_DIR}/generated/${name}.conflict)
    list(APPEND inputs ${source})
  else()
    set(merge ${CMAKE_BINARY_DIR}/generated/${name}.cpp)
    set(source ${merge})
  endif()
  add_custom_command(OUTPUT ${merge}
    COMMAND cmake/merge_ablation.sh ${GIT_EXECUTABLE} ${name} ${into} ${file_of_${from}} ${file_of_${to}} ${merge}
    DEPENDS ${inputs} cmake/merge_ablation.sh
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} COMMENT "Merging ${name}" VERBATIM)
  set(ablations ${ablations} ${name} PARENT_SCOPE)
  set(source_of_${name} ${source} PARENT_SCOPE)
  set(merge_of_${name} ${merge} PARENT_SCOPE)
endfunction()

foreach(ladder IN LISTS ladders)
  # The rungs, lowest first, without those that change only the batch or the devices, or stand beside the ladder.
  set(chain)
  foreach(rung IN LISTS rungs_of_${ladder})
    if(NOT batch_of_${rung} AND devices_of_${rung} EQUAL 1 AND NOT beside_of_${rung})
      list(APPEND chain ${rung})
      if(needs_of_${rung})
        set(needing_${needs_of_${rung}} ${rung})
      endif()
    endif()
  endforeach()
  list(POP_FRONT chain first)
  if(NOT chain)
    continue()
  endif()
  list(GET chain -1 last)
  # `only` goes from the lowest rung up, since a rung's `only` is merged into that of the rung that it needs. `without`,
  # below, goes from the highest rung down, since a rung that needs another is left out with that other.
  foreach(rung IN LISTS chain)
    set(into ${file_of_${first}})
    if(needs_of_${rung})
      set(into ${source_of_only/${needs_of_${rung}}})
    endif()
    add_ablation(only ${rung} ${into} ${parent_of_${rung}} ${rung})
  endforeach()
  list(REVERSE chain)
  foreach(rung IN LISTS chain)
    if(NOT subsumed_by_of_${rung})
      set(into ${file_of_${last}})
      set(source variants/without/${rung}.cpp)
      if(needing_${rung} AND NOT EXISTS ${CMAKE_SOURCE_DIR}/${source})
        set(into ${source_of_without/${needing_${rung}}})
      endif()
      add_ablation(without ${rung} ${into} ${rung} ${parent_of_${rung}})
    endif()
  endforeach()
endforeach()

foreach(name IN LISTS ablations)
  set(file merge)
  if(source_of_${name} IN_LIST written)
    set(file variants/${name}.cpp)
  endif()
  string(APPEND STEPLADDER_ABLATIONS "    {\"${name}\", \"${file}\"},\n")
endforeach()
list(LENGTH ablations count)
message(STATUS "Ablations: ${count}, merged by git ${GIT_VERSION_STRING}")
