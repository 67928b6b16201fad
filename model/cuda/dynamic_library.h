// A shared library opened at run time, so that a machine without it runs everything else.
#pragma once

#include <dlfcn.h>

#include <string>

#include "model/error.h"

namespace stepladder {

/// A library that stays open until the process ends, since its own threads may still run its code.
class DynamicLibrary {
 public:
  /// Opens `file`. Throws Error with `failure` and the loader's reason.
  DynamicLibrary(const std::string& file, const std::string& failure)
      : file_(file), handle_(dlopen(file.c_str(), RTLD_NOW)) {
    if (!handle_) throw Error(cat(failure, " (", dlerror(), ")"));
  }

  /// An address that converts to a pointer to any function.
  struct Symbol {
    void* address;
    template <class Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address);
    }
  };
  /// The address of the function `name`. Throws Error where the library doesn't have it.
  Symbol function(const char* name) const {
    void* const address = dlsym(handle_, name);
    if (!address) throw Error(cat(file_, " has no ", name));
    return {address};
  }

 private:
  std::string file_;
  void* handle_;
};

/// The CUDA driver. Throws Error where it can't be loaded.
inline const DynamicLibrary& cuda_driver() {
  static const DynamicLibrary driver("libcuda.so.1", "the CUDA driver could not be loaded");
  return driver;
}

}  // namespace stepladder
