// An NVTX injection (NVTX_INJECTION64_PATH) that writes each range to the file NVTX_RECORD as it opens,
// indented by the number of open ranges of its thread.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>

namespace {

thread_local int depth = 0;

int push(const char* name) {
  static std::FILE* file = std::fopen(std::getenv("NVTX_RECORD"), "w");
  if (file) std::fprintf(file, "%*s%s\n", depth, "", name), std::fflush(file);
  return depth++;
}
int pop() {
  return --depth;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size)) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
