#include "shared/control/duplicate_keys.h"

#include <set>
#include <string>
#include <vector>

#include <boost/json/basic_parser_impl.hpp>

namespace stoker::control {
namespace {

namespace json = boost::json;

// Handler for Boost.JSON's parser. Only objects and their keys matter.
struct KeyCollector {
  using Error = boost::system::error_code;
  // NOLINTBEGIN(readability-identifier-naming): names required by the parser
  constexpr static size_t max_object_size = static_cast<size_t>(-1);
  constexpr static size_t max_array_size = static_cast<size_t>(-1);
  constexpr static size_t max_key_size = static_cast<size_t>(-1);
  constexpr static size_t max_string_size = static_cast<size_t>(-1);
  // NOLINTEND(readability-identifier-naming)

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_object_begin(Error&) {
    open.emplace_back();
    return true;
  }
  bool on_object_end(size_t, Error&) {
    open.pop_back();
    return true;
  }
  bool on_array_begin(Error&) { return true; }
  bool on_array_end(size_t, Error&) { return true; }
  bool on_key_part(json::string_view part, size_t, Error&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, size_t, Error&) {
    key.append(part.data(), part.size());
    if (!open.back().insert(std::move(key)).second) duplicate = true;
    key.clear();
    return true;
  }
  bool on_string_part(json::string_view, size_t, Error&) { return true; }
  bool on_string(json::string_view, size_t, Error&) { return true; }
  bool on_number_part(json::string_view, Error&) { return true; }
  bool on_int64(int64_t, json::string_view, Error&) { return true; }
  bool on_uint64(uint64_t, json::string_view, Error&) { return true; }
  bool on_double(double, json::string_view, Error&) { return true; }
  bool on_bool(bool, Error&) { return true; }
  bool on_null(Error&) { return true; }
  bool on_comment_part(json::string_view, Error&) { return true; }
  bool on_comment(json::string_view, Error&) { return true; }

  std::vector<std::set<std::string>> open;
  std::string key;
  bool duplicate = false;
};

}  // namespace

bool has_duplicate_keys(std::string_view text, int max_depth) {
  json::parse_options options;
  options.max_depth = static_cast<size_t>(max_depth);
  json::basic_parser<KeyCollector> parser(options);
  boost::system::error_code error;
  parser.write_some(false, text.data(), text.size(), error);
  return parser.handler().duplicate;
}

}  // namespace stoker::control
