# Ablations: the last rung without rung k, and the first with rung k alone, merged from the variants into
# generated/without/<rung>.cpp and generated/only/<rung>.cpp. A rung that needs another is left out with it, and stands on
# it where it is alone. Where the merge conflicts, variants/without/<rung>.cpp or variants/only/<rung>.cpp is built instead.
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

# The rungs, lowest first, but those that differ by their batch or their devices alone or stand beside the ladder; below,
# needs and subsumed_by of each.
set(chain)
foreach(row RANGE ${last_row})
  string(JSON batch ERROR_VARIABLE no_batch GET ${STEPLADDER_LADDER_JSON} rungs ${row} batch)
  string(JSON devices ERROR_VARIABLE one_device GET ${STEPLADDER_LADDER_JSON} rungs ${row} requires devices)
  string(JSON beside ERROR_VARIABLE not_beside GET ${STEPLADDER_LADDER_JSON} rungs ${row} beside)
  if(no_batch AND one_device AND not_beside)
    string(JSON rung GET ${STEPLADDER_LADDER_JSON} rungs ${row} name)
    string(JSON below_${rung} GET ${STEPLADDER_LADDER_JSON} rungs ${row} parent)
    string(JSON needed ERROR_VARIABLE alone GET ${STEPLADDER_LADDER_JSON} rungs ${row} needs)
    if(NOT alone)
      set(needed_by_${rung} ${needed})
      set(needing_${needed} ${rung})
    endif()
    string(JSON subsumed_by ERROR_VARIABLE not_subsumed GET ${STEPLADDER_LADDER_JSON} rungs ${row} subsumed_by)
    set(not_subsumed_${rung} ${not_subsumed})
    list(APPEND chain ${rung})
  endif()
endforeach()
list(POP_FRONT chain first)
list(GET chain -1 last)

# Merges what changes from one rung to another into a source.
function(add_ablation kind rung into from to)
  set(name ${kind}/${rung})
  set(inputs ${into} variants/${from}.cpp variants/${to}.cpp)
  set(source ${CMAKE_SOURCE_DIR}/variants/${name}.cpp)
  if(source IN_LIST written)
    set(merge ${CMAKE_BINARY_DIR}/generated/${name}.conflict)
    list(APPEND inputs ${source})
  else()
    set(merge ${CMAKE_BINARY_DIR}/generated/${name}.cpp)
    set(source ${merge})
  endif()
  add_custom_command(OUTPUT ${merge}
    COMMAND cmake/merge_ablation.sh ${GIT_EXECUTABLE} ${name} ${into} ${from} ${to} ${merge}
    DEPENDS ${inputs} cmake/merge_ablation.sh
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} COMMENT "Merging ${name}" VERBATIM)
  set(ablations ${ablations} ${name} PARENT_SCOPE)
  set(source_of_${name} ${source} PARENT_SCOPE)
  set(merge_of_${name} ${merge} PARENT_SCOPE)
endfunction()

# Lowest first, since a rung alone stands on what it needs; highest first, since what needs a rung goes with it.
foreach(rung IN LISTS chain)
  set(into variants/${first}.cpp)
  if(needed_by_${rung})
    set(into ${source_of_only/${needed_by_${rung}}})
  endif()
  add_ablation(only ${rung} ${into} ${below_${rung}} ${rung})
endforeach()
list(REVERSE chain)
foreach(rung IN LISTS chain)
  if(not_subsumed_${rung})
    set(into variants/${last}.cpp)
    set(source variants/without/${rung}.cpp)
    if(needing_${rung} AND NOT EXISTS ${CMAKE_SOURCE_DIR}/${source})
      set(into ${source_of_without/${needing_${rung}}})
    endif()
    add_ablation(without ${rung} ${into} ${rung} ${below_${rung}})
  endif()
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
