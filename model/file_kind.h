// Kinds of files that are often named by mistake.
#pragma once

#include <cstddef>
#include <string_view>

namespace stepladder {

struct FileKind {
  std::string_view what,
      cure;  // "a Git LFS pointer", "`git lfs pull` ..."; no cure where the caller knows it
  bool known() const { return !what.empty(); }
};

/// The kind of a file that begins with `head`, if it is one that is often named by mistake: a Git LFS
/// pointer, an HTML page, an archive, one of llm.c's, ... Raw tokens are unlikely to begin with such bytes.
FileKind kind_of(std::string_view head);

inline constexpr std::string_view kSafetensors = "safetensors";

/// The number of bytes that kind_of() looks at.
inline constexpr size_t kFileHead = 4096;

}  // namespace stepladder
