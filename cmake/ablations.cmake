# Ablations: the last rung without rung k, and the first with rung k alone, merged from the variants into
# generated/without/<rung>.cpp and generated/only/<rung>.cpp. Where the merge conflicts, variants/without/<rung>.cpp or
# variants/only/<rung>.cpp is built instead.
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

# The rungs, lowest first, but those that differ by their batch or their devices alone or stand beside the ladder; below
# and subsumed_by of each.
set(chain)
string(JSON last_row LENGTH ${STEPLADDER_LADDER_JSON} rungs)
math(EXPR last_row "${last_row} - 1")
foreach(row RANGE ${last_row})
  string(JSON batch ERROR_VARIABLE no_batch GET ${STEPLADDER_LADDER_JSON} rungs ${row} batch)
  string(JSON devices ERROR_VARIABLE one_device GET ${STEPLADDER_LADDER_JSON} rungs ${row} requires devices)
  string(JSON beside ERROR_VARIABLE not_beside GET ${STEPLADDER_LADDER_JSON} rungs ${row} beside)
  if(no_batch AND one_device AND not_beside)
    string(JSON rung GET ${STEPLADDER_LADDER_JSON} rungs ${row} name)
    string(JSON below_${rung} GET ${STEPLADDER_LADDER_JSON} rungs ${row} parent)
    string(JSON subsumed_by ERROR_VARIABLE not_subsumed GET ${STEPLADDER_LADDER_JSON} rungs ${row} subsumed_by)
    set(not_subsumed_${rung} ${not_subsumed})
    list(APPEND chain ${rung})
  endif()
endforeach()
list(POP_FRONT chain first)
list(GET chain -1 last)

# Merges what changes from one rung to another into a third.
function(add_ablation kind rung into from to)
  set(name ${kind}/${rung})
  set(inputs variants/${into}.cpp variants/${from}.cpp variants/${to}.cpp)
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

foreach(rung IN LISTS chain)
  if(not_subsumed_${rung})
    add_ablation(without ${rung} ${last} ${rung} ${below_${rung}})
  endif()
  add_ablation(only ${rung} ${first} ${below_${rung}} ${rung})
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
