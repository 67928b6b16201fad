#include "bench/results/json.h"

#include "bench/base/text.h"
#include "model/error.h"

namespace stepladder {
namespace {

constexpr int kMaxDepth = 32;

}  // namespace

Json parse_json(const std::string& text) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) throw InputError(cat("nested deeper than ", kMaxDepth));
    return true;
  };
  try {
    return Json::parse(text, shallow);
  } catch (const Json::exception& e) {
    // what() is "[json.exception.parse_error.101] parse error at line 1, column 1: .."
    const std::string what = e.what();
    const size_t code = what.find("] ");
    throw InputError(
        cat("not JSON: ", printable(code == std::string::npos ? what : what.substr(code + 2), 300)));
  }
}

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string text_at(const Json& json, const std::string& key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end() || found->is_null()) return "";
  return printable(found->is_string() ? found->get<std::string>() : dump(*found), 200);
}

}  // namespace stepladder
