#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>

#include "model/error.h"

namespace stepladder {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr int kMaxDepth = 3;                  // header, tensor, shape

// Bytes per element; 0 for a dtype we don't know, or whose elements share bytes.
size_t element_size(std::string_view dtype) {
  constexpr std::pair<std::string_view, size_t> kSizes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U16", 2}, {"I16", 2}, {"F16", 2},
      {"BF16", 2}, {"U32", 4}, {"I32", 4}, {"F32", 4},     {"U64", 8},     {"I64", 8}, {"F64", 8}};
  const auto it = std::ranges::find(kSizes, dtype, &std::pair<std::string_view, size_t>::first);
  return it == std::end(kSizes) ? 0 : it->second;
}

// Bytes of a tensor; nothing when that overflows.
std::optional<uint64_t> byte_size(size_t element, const std::vector<int64_t>& shape) {
  uint64_t bytes = element;
  for (const int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes))
      return std::nullopt;
  return bytes;
}

// JSON's own quoting keeps a hostile name on one line.
std::string quoted(const std::string& name) {
  return json(name).dump(-1, ' ', true, json::error_handler_t::replace);
}

// The header as an object with distinct keys; a discarded value when it isn't such an object.
json parse_header(std::string_view text) {
  std::set<std::string> names;
  bool distinct = true, shallow = true;
  json header = json::parse(
      text,
      [&](int depth, json::parse_event_t event, json& value) {
        if (event == json::parse_event_t::key && depth == 1)
          distinct &= names.insert(value.get<std::string>()).second;
        shallow &= depth <= kMaxDepth;
        return shallow;  // false drops the value: nothing deep is ever built
      },
      /*allow_exceptions=*/false);
  if (!distinct || !shallow || !header.is_object()) return json(json::value_t::discarded);
  return header;
}

bool is_uint_array(const json& value) {
  return value.is_array() && std::ranges::all_of(value, [](const json& x) { return x.is_number_unsigned(); });
}

}  // namespace

Safetensors::Safetensors(const std::string& path) : path_(path), file_(path) {
  const auto damaged = [&](const auto&... what) {
    return InputError(cat(path, ": not a whole safetensors file: ", what..., "; get the file again"));
  };
  const std::span<const std::byte> file = file_.bytes();
  uint64_t header_size = 0;
  if (file.size() < sizeof header_size) throw damaged("only ", file.size(), " bytes");
  std::memcpy(&header_size, file.data(), sizeof header_size);
  if (header_size > kMaxHeader)
    throw InputError(cat(path, ": is not safetensors: its header would have ", header_size,
                         " bytes; name weights of GPT-2"));
  if (header_size > file.size() - sizeof header_size)
    throw damaged("a header of ", header_size, " bytes in a file of ", file.size());
  const auto data = file.subspan(sizeof header_size + header_size);
  const json header =
      parse_header({reinterpret_cast<const char*>(file.data()) + sizeof header_size, header_size});
  if (header.is_discarded()) throw damaged("the header is no JSON object of distinct names");

  std::map<uint64_t, std::pair<uint64_t, std::string>> extents;  // begin -> end, name; of non-empty tensors
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (value.is_null()) continue;
      if (!value.is_object()) throw damaged("__metadata__ is no object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) throw damaged("metadata ", quoted(key), " is no text");
        metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
        !value.contains("shape") || !is_uint_array(value["shape"]) || !value.contains("data_offsets") ||
        !is_uint_array(value["data_offsets"]) || value["data_offsets"].size() != 2)
      throw damaged("tensor ", quoted(name), " wants dtype, shape and data_offsets");

    Entry entry{value["dtype"], value["shape"], {}};
    const uint64_t begin = value["data_offsets"][0], end = value["data_offsets"][1];
    if (begin > end || end > data.size())
      throw damaged("tensor ", quoted(name), " lies at [", begin, ",", end, ") of ", data.size(), " bytes");
    const size_t element = element_size(entry.dtype);
    if (element != 0 && byte_size(element, entry.shape) != end - begin)
      throw damaged("tensor ", quoted(name), " has ", end - begin, " bytes, not what ", entry.dtype, " ",
                    value["shape"].dump(), " takes");
    entry.bytes = data.subspan(begin, end - begin);
    if (begin < end && !extents.try_emplace(begin, end, name).second)
      throw damaged("tensor ", quoted(name), " overlaps ", quoted(extents[begin].second));
    tensors_[name] = std::move(entry);
  }

  uint64_t at = 0;
  for (const auto& [begin, extent] : extents) {
    if (begin != at)
      throw damaged(begin < at ? "an overlap" : "a hole", " before tensor ", quoted(extent.second));
    at = extent.first;
  }
  if (at != data.size()) throw damaged(data.size() - at, " bytes after the last tensor");
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<Item>& items,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  json header{{"__metadata__", metadata}};
  for (const Item& item : items) {
    const size_t begin = missing_bytes_;
    missing_bytes_ += byte_size(sizeof(float), item.shape).value();
    header[item.name] = {{"dtype", "F32"}, {"shape", item.shape}, {"data_offsets", {begin, missing_bytes_}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that tensors are aligned
  const uint64_t size = text.size();
  file_.write(&size, sizeof size);
  file_.write(text);
}

void SafetensorsWriter::append(std::span<const float> values) {
  if (values.size_bytes() > missing_bytes_) throw std::logic_error("more tensors than the header names");
  missing_bytes_ -= values.size_bytes();
  file_.write(values.data(), values.size_bytes());
}

void SafetensorsWriter::commit() {
  if (missing_bytes_ != 0) throw std::logic_error("fewer tensors than the header names");
  file_.commit();
}

}  // namespace stepladder
