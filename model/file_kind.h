// Kinds of files that are often named by mistake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stepladder {

struct FileKind {
  std::string_view what,
      cure;  // "a Git LFS pointer", "`git lfs pull` ..."; no cure where the caller knows it
  bool known() const { return !what.empty(); }
};

/// The first int32 of llm.c's weights, tokens and evaluations.
inline constexpr int32_t kLlmcWeights = 20240326, kLlmcTokens = 20240520, kLlmcEvaluation = 20240522;

/// The kind of a file that begins with `head`, if it is one that is often named by mistake: a Git LFS
/// pointer, an HTML page, an archive, one of llm.c's, ... Raw tokens are unlikely to begin with such bytes.
FileKind kind_of(std::string_view head);

inline constexpr std::string_view kSafetensors = "safetensors";

/// The number of bytes that kind_of() looks at.
inline constexpr size_t kFileHead = 4096;

}  // namespace stepladder
