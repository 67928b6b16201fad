# Writes OUT, the source of build_commit(): the commit of folder SOURCE, with "-dirty" where tracked files differ from it;
# for a folder without history, the environment's STEPLADDER_COMMIT, else "". Leaves OUT alone when it is the same.
# Usage: cmake -DOUT=... -DSOURCE=<folder> -DGIT=<program> -P commit.cmake
set(commit "$ENV{STEPLADDER_COMMIT}")
if(GIT AND EXISTS "${SOURCE}/.git")
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=40 --exclude=*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(text "namespace stepladder {\nconst char* build_commit();\nconst char* build_commit() {\n  return \"${commit}\";\n}\n}  // namespace stepladder\n")
file(CONFIGURE OUTPUT "${OUT}" CONTENT "${text}" @ONLY)
