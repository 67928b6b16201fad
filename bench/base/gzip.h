// gzip's format (RFC 1952), as kept results files are stored.
#pragma once

#include <string>
#include <string_view>

namespace stepladder {

/// Whether a file is to be gzip's by its name.
inline bool is_gzip_name(std::string_view path) {
  return path.ends_with(".gz");
}

/// `text` compressed; equal texts give equal bytes, since no time is stored.
std::string gzipped(std::string_view text);

/// The text of a gzip file of one or several members; a text that isn't gzip's as it is. Throws InputError
/// where it is damaged, ends early, or holds more than 1 GiB.
std::string gunzipped(std::string text);

}  // namespace stepladder
