// The gzip format (RFC 1952), in which results files may be kept.
#pragma once

#include <string>
#include <string_view>

namespace stepladder {

/// Whether a file's name says that it is gzip-compressed.
inline bool is_gzip_name(std::string_view path) {
  return path.ends_with(".gz");
}

/// Whether the text is that of a gzip file.
inline bool is_gzip(std::string_view text) {
  return text.starts_with("\x1f\x8b");
}

/// `text` compressed; equal texts give equal bytes, since no time is stored.
std::string gzipped(std::string_view text);

/// Decompresses a gzip file of one or several members; returns other text unchanged. Throws InputError where
/// gzip's data are damaged, end early, or hold more than 1 GiB.
std::string gunzipped(std::string text);

}  // namespace stepladder
