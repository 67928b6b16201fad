// The safetensors container: an 8-byte header size, a JSON header, the tensors' bytes.
// https://huggingface.co/docs/safetensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/atomic_file.h"
#include "model/mapped_file.h"

namespace stepladder {

/// A safetensors file, memory-mapped and checked: every tensor lies in the file, is as large as its dtype (if
/// we know it) and shape say, and together they fill it without overlap.
class Safetensors {
 public:
  struct Entry {
    std::string dtype;  // "F32", "F16", "BF16", ...
    std::vector<int64_t> shape;
    std::span<const std::byte> bytes;  // at no particular alignment
  };

  /// Opens and checks the file. Throws InputError naming the file and what is damaged.
  explicit Safetensors(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::string path_;
  MappedFile file_;
  std::map<std::string, Entry> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Writes F32 tensors one after the other, so that none but the current one need be in memory.
class SafetensorsWriter {
 public:
  struct Item {
    std::string name;
    std::vector<int64_t> shape;
  };

  /// Begins the file; `items` are in the order in which append() will get them. Throws InputError as
  /// AtomicFile does.
  SafetensorsWriter(const std::string& path, const std::vector<Item>& items,
                    const std::map<std::string, std::string>& metadata);
  /// Writes the next item's elements, row-major.
  void append(std::span<const float> values);
  /// Puts the file in place. Throws std::logic_error unless all items were appended.
  void commit();

 private:
  AtomicFile file_;
  size_t missing_bytes_ = 0;
};

}  // namespace stepladder
