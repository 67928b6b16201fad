# Writes OUT, the header that the build includes into variant FILE: its NAME, and a hash over it and the SOURCES of the model.
# Usage: cmake -DOUT=... -DNAME=... -DFILE=... -DSOURCES=<file listing them> -P rung_header.cmake
file(STRINGS "${SOURCES}" sources)
file(SHA256 "${FILE}" all)
foreach(source IN LISTS sources)
  file(SHA256 "${source}" hash)
  string(APPEND all "${hash}")
endforeach()
string(SHA256 hash "${all}")
file(WRITE "${OUT}" "#define STEPLADDER_RUNG_NAME \"${NAME}\"\n#define STEPLADDER_SOURCE_HASH \"${hash}\"\n")
