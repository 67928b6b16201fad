// Structs as JSON, by their fields().
#pragma once

#include <algorithm>
#include <cmath>

#include "bench/results/results.h"

namespace stepladder {

class Writer {
 public:
  template <class T>
  void operator()(const char* key, const T& value) {
    json_[key] = write(value);
  }
  template <class T>
  void added(const char* key, const T& value) {
    (*this)(key, value);
  }
  /// An estimate over rounds is left out where not every round has the number.
  void added(const char* key, const std::optional<Estimate>& value) { if_any(key, value); }
  template <class T>
  void if_any(const char* key, const T& value) {
    if (!value.empty()) (*this)(key, value);
  }
  template <class T>
  void if_any(const char* key, const std::optional<T>& value) {
    if (value) (*this)(key, *value);
  }

  template <class T>
  static Json write(const T& value) {
    if constexpr (requires(Writer w) { fields(w, value); }) {
      Writer writer;
      fields(writer, value);
      return writer.json_;
    } else if constexpr (std::same_as<T, Status>) {
      return name_of(value);
    } else {
      return value;
    }
  }
  template <class T>
  static Json write(const std::optional<T>& value) {
    return value ? write(*value) : Json();
  }
  /// Steps as a column for each field. A column without any number is left out, except step_ms and loss;
  /// run_length_encoded() shortens the others.
  static Json write(const std::vector<Step>& steps) {
    Json all = {{"step_ms", Json::array()}, {"loss", Json::array()}}, columns;
    for (const Step& step : steps) {
      const Json one = write<Step>(step);
      for (const auto& [key, value] : one.items()) all[key].push_back(value);
    }
    for (auto& [key, column] : all.items())
      if (columns.size() < 2)
        columns[key] = std::move(column);
      else if (std::ranges::any_of(column, [](const Json& x) { return !x.is_null(); }))
        columns[key] = run_length_encoded(std::move(column));
    return columns;
  }
  template <class T>
  static Json write(const std::vector<T>& values) {
    Json array = Json::array();
    for (const T& value : values) array.push_back(write(value));
    return array;
  }

 private:
  /// A column run-length encoded, {"values": [61, 60], "times": [3, 2]} for [61, 61, 61, 60, 60]; the column
  /// itself where that has as many items. Whole numbers lose their ".0", which reading doesn't need.
  static Json run_length_encoded(Json column) {
    Json values = Json::array();
    std::vector<size_t> times;
    for (Json& value : column) {
      if (value.is_number_float() && value == std::trunc(value.get<double>()) &&
          std::abs(value.get<double>()) < 0x1p53)
        value = static_cast<int64_t>(value.get<double>());
      if (!values.empty() && values.back() == value) {
        ++times.back();
      } else {
        values.push_back(value);
        times.push_back(1);
      }
    }
    if (2 * times.size() >= column.size()) return column;
    return {{"values", std::move(values)}, {"times", times}};
  }

  Json json_ = Json::object();
};

}  // namespace stepladder
