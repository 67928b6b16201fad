# Writes OUT, the header with a hash over the SOURCES of the model, which tells apart builds whose kernels are not as fast.
# Usage: cmake -DOUT=... -DSOURCES=<file listing them> -P kernels_header.cmake
file(STRINGS "${SOURCES}" sources)
set(all)
foreach(source IN LISTS sources)
  file(SHA256 "${source}" hash)
  string(APPEND all "${hash}")
endforeach()
string(SHA256 hash "${all}")
file(WRITE "${OUT}" "#define STEPLADDER_KERNELS \"${hash}\"\n")
