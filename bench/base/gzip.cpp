#include "bench/base/gzip.h"

#include <zlib.h>

#include "model/error.h"

namespace stepladder {
namespace {

constexpr int kGzip = 15 + 16;  // zlib's largest window, with gzip's header and check
constexpr size_t kMostText = size_t{1} << 30;

Bytef* bytes(const char* text) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(text));
}

}  // namespace

std::string gzipped(std::string_view text) {
  z_stream stream{};
  check(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK,
        "zlib: deflateInit2 failed");
  std::string all(deflateBound(&stream, text.size()), '\0');
  stream.next_in = bytes(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = bytes(all.data());
  stream.avail_out = static_cast<uInt>(all.size());
  const int status = deflate(&stream, Z_FINISH);
  all.resize(stream.total_out);
  deflateEnd(&stream);
  check(status == Z_STREAM_END, "zlib: deflate failed");
  return all;
}

std::string gunzipped(std::string text) {
  if (!is_gzip(text)) return text;
  z_stream stream{};
  check(inflateInit2(&stream, kGzip) == Z_OK, "zlib: inflateInit2 failed");
  stream.next_in = bytes(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  std::string all, piece(size_t{1} << 20, '\0');
  int status = Z_OK;
  while (status == Z_OK && all.size() <= kMostText) {
    stream.next_out = bytes(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    status = inflate(&stream, Z_NO_FLUSH);
    all.append(piece.data(), piece.size() - stream.avail_out);
    if (status == Z_STREAM_END && stream.avail_in > 0) status = inflateReset(&stream);  // the next member
  }
  inflateEnd(&stream);
  if (all.size() > kMostText) throw InputError("holds more than 1 GiB as text");
  if (status != Z_STREAM_END)
    throw InputError("is damaged: gzip's data in it ends early, or its check fails");
  return all;
}

}  // namespace stepladder
