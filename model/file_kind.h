// What a file is that was named in place of another.
#pragma once

#include <cstddef>
#include <string_view>

namespace stepladder {

struct FileKind {
  std::string_view what,
      cure;  // "a Git LFS pointer", "`git lfs pull` ..."; no cure where the caller knows it
  bool known() const { return !what.empty(); }
};

/// Tells by its first bytes whether a file is one that is often named by mistake: a Git LFS pointer, an HTML
/// page, an archive, one of llm.c's, ... None of these bytes are likely ones of raw tokens.
FileKind kind_of(std::string_view head);

inline constexpr std::string_view kSafetensors = "safetensors";

/// As many bytes as kind_of() looks at.
inline constexpr size_t kFileHead = 4096;

}  // namespace stepladder
