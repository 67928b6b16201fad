#include "bench/results/json.h"

#include <cmath>
#include <set>

#include "bench/base/text.h"
#include "model/error.h"

namespace stepladder {

Json parse_json(const std::string& text) {
  constexpr int kMaxDepth = 32;
  std::vector<std::set<std::string>> keys;  // keys so far of the objects around this place
  const auto look = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaxDepth) throw InputError(cat("nested deeper than ", kMaxDepth));
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw InputError(cat("the key ", printable(dump(parsed), 100), " is there twice"));
    if (event == Event::value && parsed.is_number_float())
      if (const auto number = parsed.get<double>(); std::abs(number) < 0x1p53 && number == std::trunc(number))
        parsed = static_cast<int64_t>(number);
    return true;
  };
  try {
    return Json::parse(text, look);
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

void require_same(const std::string& what, const std::string& field, const Json& was, const Json& now,
                  const std::string& way_out) {
  if (was == now || dump(was) == dump(now)) return;  // equal as a file keeps them: not every byte
  const auto text = [](const Json& json) { return printable(dump(json), 200); };
  if (!was.is_object() || !now.is_object())
    throw Error(cat(what, ": ", field, " was ", text(was), ", now it is ", text(now), "; ", way_out),
                kExitNotComparable);
  Json all = was;
  all.update(now);
  for (const auto& item : all.items())
    require_same(what, cat(field, ".", item.key()), was.value(item.key(), Json()),
                 now.value(item.key(), Json()), way_out);
}

std::string whole_text_at(const Json& json, const std::string& key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : dump(*found);
}

std::string text_at(const Json& json, const std::string& key) {
  return printable(whole_text_at(json, key), 200);
}

std::optional<double> number_at(const Json& json, const std::string& key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end() || !found->is_number()) return {};
  return found->get<double>();
}

}  // namespace stepladder
