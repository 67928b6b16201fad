#include "bench/results/columns.h"

#include <algorithm>
#include <map>

#include "bench/base/text.h"
#include "bench/results/json.h"
#include "model/error.h"

namespace stepladder {
namespace {

// A small file can stand for any number of rows.
constexpr size_t kMaxRows = 1'000'000;
constexpr size_t kMaxBytes = size_t{1} << 28;  // as text, and of the rows' own

bool all_objects(const Json& list) {
  return list.is_array() && !list.empty() && std::ranges::all_of(list, &Json::is_object);
}

Json column_of(const Json& list) {
  if (!list.empty() && std::ranges::all_of(list, all_objects)) {
    Json joined = Json::array(), lengths = Json::array();
    for (const Json& part : list) {
      lengths.push_back(part.size());
      joined.insert(joined.end(), part.begin(), part.end());
    }
    return {{"lengths", column_of(lengths)}, {"joined", columns_of(joined)}};
  }
  std::map<std::string, size_t> places;
  Json values = Json::array(), of = Json::array();
  for (const Json& value : list) {
    const auto [place, is_new] = places.emplace(dump(value), values.size());
    if (is_new) values.push_back(value);
    of.push_back(place->second);
  }
  Json whole = columns_of(list);
  if (values.size() == list.size()) return whole;
  Json column = {{"values", columns_of(values)}};
  if (values.size() > 1) column["of"] = std::move(of);
  return dump(column).size() < dump(whole).size() ? column : whole;
}

/// Makes rows of columns; knows how much they have come to.
class Rows {
 public:
  Json rows(const Json& columns) {
    const Json count = field(columns, "rows", &Json::is_number_integer);
    if (count < 1 || count > kMaxRows) throw InputError("their number of rows is none");
    count_in(count.get<size_t>() * sizeof(Json));
    const Json& named = field(columns, "columns", &Json::is_object);
    const auto in_some = [](const Json& column) { return column.is_object() && column.contains("in"); };
    for (const Json& column : named)
      count_in((in_some(column) ? column["in"].size() : count.get<size_t>()) *
               sizeof(Json::object_t::value_type));
    Json rows(count.get<size_t>(), Json::object());
    for (const auto& [key, column] : named.items()) {
      const bool some = in_some(column);
      const std::vector<size_t> in = some ? places(column["in"], rows.size()) : std::vector<size_t>();
      Json values = list(some ? field(column, "column", anything) : column, some ? in.size() : rows.size());
      for (size_t i = 0; i < values.size(); ++i) rows[some ? in[i] : i][key] = std::move(values[i]);
    }
    return rows;
  }

 private:
  template <typename Is>
  static const Json& field(const Json& of, const char* key, Is is) {
    const auto found = of.is_object() ? of.find(key) : of.end();
    if (found == of.end() || !std::invoke(is, *found)) throw InputError(cat("they have no \"", key, "\""));
    return *found;
  }

  static bool anything(const Json&) { return true; }

  static std::vector<size_t> places(const Json& list, size_t count) {
    std::vector<size_t> places;
    for (const Json& place : list) {
      if (!place.is_number_integer() || place < 0 || place >= count)
        throw InputError(cat("one names place ", printable(dump(place), 40), " of ", count));
      places.push_back(place.get<size_t>());
    }
    return places;
  }

  Json list(const Json& column, size_t count) {
    Json list = column;
    if (column.is_object() && column.contains("values")) {
      Json values = field(column, "values", anything);
      if (values.is_object()) values = rows(values);
      if (!values.is_array()) throw InputError("their \"values\" are no list");
      std::vector<size_t> sizes;
      for (const Json& value : values) sizes.push_back(dump(value).size());
      const std::vector<size_t> of = column.contains("of") ? places(column["of"], values.size())
                                                           : std::vector<size_t>(values.empty() ? 0 : count);
      for (const size_t place : of) count_in(sizes[place]);
      list = Json::array();
      for (const size_t place : of) list.push_back(values[place]);
    } else if (column.is_object() && column.contains("joined")) {
      list = parts(this->list(field(column, "lengths", anything), count), rows(column["joined"]));
    } else if (column.is_object()) {
      list = rows(column);
    }
    if (!list.is_array() || list.size() != count)
      throw InputError(cat("one is no column of ", count, " values"));
    return list;
  }

  static Json parts(const Json& lengths, Json joined) {
    Json parts = Json::array();
    auto from = joined.begin();
    for (const Json& length : lengths) {
      if (!length.is_number_integer() || length < 1 || length > joined.end() - from)
        throw InputError(
            cat("one names ", printable(dump(length), 40), " of ", joined.end() - from, " objects"));
      const auto to = from + length.get<ptrdiff_t>();
      Json& part = parts.emplace_back(Json::array());
      for (; from != to; ++from) part.push_back(std::move(*from));
    }
    if (from != joined.end()) throw InputError(cat("one leaves ", joined.end() - from, " objects over"));
    return parts;
  }

  void count_in(size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > kMaxBytes) throw InputError("they stand for too much");
  }

  size_t bytes_ = 0;
};

}  // namespace

Json columns_of(const Json& rows) {
  if (!all_objects(rows)) return rows;
  std::vector<std::string> keys;  // as they first appear
  std::map<std::string, Json> values, in;
  for (size_t i = 0; i < rows.size(); ++i)
    for (const auto& [key, value] : rows[i].items()) {
      if (!values.contains(key)) keys.push_back(key);
      values[key].push_back(value);
      in[key].push_back(i);
    }
  Json columns = Json::object();
  for (const std::string& key : keys) {
    Json column = column_of(values[key]);
    columns[key] = values[key].size() == rows.size()
                       ? std::move(column)
                       : Json{{"in", std::move(in[key])}, {"column", std::move(column)}};
  }
  return {{"rows", rows.size()}, {"columns", std::move(columns)}};
}

Json rows_from_columns(const Json& columns) try {
  return columns.is_object() ? Rows().rows(columns) : columns;
} catch (const InputError& e) {
  throw InputError(cat("columns: ", e.what()));
}

}  // namespace stepladder
