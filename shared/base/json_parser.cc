#include "shared/base/json_parser.h"

#include <charconv>
#include <cstdint>
#include <string>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>

namespace stoker {
namespace {

namespace json = boost::json;
using json::error_code;
using json::string_view;

// A value takes 16 bytes and more, and "0," is one: bounds the memory of a large text.
constexpr size_t kMaxValues = 8'000'000;

// Its destructor is not virtual; nothing deletes a category.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
class TooManyValues final : public boost::system::error_category {
 public:
  const char* name() const noexcept override { return "json"; }
  std::string message(int) const override {
    return "more than " + std::to_string(kMaxValues) + " values";
  }
};
#pragma GCC diagnostic pop

// Builds a value from the parser events like Boost.JSON's own handler, except for doubles.
class ValueHandler {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the parser asks for them by these names
  static constexpr size_t max_object_size = json::object::max_size();
  static constexpr size_t max_array_size = json::array::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  static constexpr size_t max_string_size = json::string::max_size();
  // NOLINTEND(readability-identifier-naming)

  json::value release() { return stack_.release(); }

  bool on_document_begin(error_code&) {
    stack_.reset();
    return true;
  }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) { return true; }
  bool on_object_end(size_t count, error_code& ec) {
    return stack_.push_object(count), counted(ec);
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(size_t count, error_code& ec) { return stack_.push_array(count), counted(ec); }
  bool on_key_part(string_view part, size_t, error_code&) { return stack_.push_chars(part), true; }
  bool on_key(string_view part, size_t, error_code& ec) {
    return stack_.push_key(part), counted(ec);
  }
  bool on_string_part(string_view part, size_t, error_code&) {
    return stack_.push_chars(part), true;
  }
  bool on_string(string_view part, size_t, error_code& ec) {
    return stack_.push_string(part), counted(ec);
  }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t number, string_view, error_code& ec) {
    return stack_.push_int64(number), counted(ec);
  }
  bool on_uint64(uint64_t number, string_view, error_code& ec) {
    return stack_.push_uint64(number), counted(ec);
  }
  // `text` is the complete number, because the parser is given the complete input.
  bool on_double(double number, string_view text, error_code& ec) {
    stack_.push_double(parse_double_exact({text.data(), text.size()}, number));
    return counted(ec);
  }
  bool on_bool(bool value, error_code& ec) { return stack_.push_bool(value), counted(ec); }
  bool on_null(error_code& ec) { return stack_.push_null(), counted(ec); }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

 private:
  bool counted(error_code& ec) {
    static const TooManyValues category;
    if (++num_values_ <= kMaxValues) return true;
    ec.assign(1, category);
    return false;
  }

  size_t num_values_ = 0;
  json::value_stack stack_;
};

}  // namespace

json::value parse_json(std::string_view text, error_code& error, size_t max_depth) {
  json::parse_options options;
  options.max_depth = max_depth;
  json::basic_parser<ValueHandler> parser(options);
  const size_t taken = parser.write_some(false, text.data(), text.size(), error);
  if (!error && taken < text.size()) error = json::error::extra_data;
  return error ? json::value() : parser.handler().release();
}

double parse_double_exact(std::string_view text, double default_value) {
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? number : default_value;
}

}  // namespace stoker
