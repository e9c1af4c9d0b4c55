#include "shared/data/format/json_values.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <unordered_map>
#include <utility>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/error.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"
#include "shared/data/record/chat_messages.h"

namespace stoker::data::format {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxNameBytes = 64;  // in error messages

// The value found for one name.
struct Found {
  enum class Form { kNothing, kText, kInts, kFloats };
  Form form = Form::kNothing;
  bool is_there = false;  // also set by null
  bool is_list = false;
  size_t row = 0;             // required length of each nested list; 0: any
  bool can_be_texts = false;  // an array of strings
  bool is_messages = false;   // an array of objects
  std::string text;           // messages: encoded
  std::vector<int64_t> ints;
  std::vector<float> floats;

  void clear() {
    form = Form::kNothing;
    is_there = is_list = false;
    text.clear();
    ints.clear();
    floats.clear();
  }
  void add(int64_t number) {
    if (form == Form::kFloats) return floats.push_back(static_cast<float>(number));
    form = Form::kInts;
    ints.push_back(number);
  }
  void add(double number) {
    if (form != Form::kFloats) {  // converts the preceding integers
      floats.assign(ints.begin(), ints.end());
      ints.clear();
      form = Form::kFloats;
    }
    floats.push_back(static_cast<float>(number));
  }
  size_t numbers() const { return form == Form::kFloats ? floats.size() : ints.size(); }
  record::FieldValue value() const {
    switch (form) {
      case Form::kText:
        return std::as_bytes(std::span(text));
      case Form::kInts:
        return record::FieldInts(ints);
      case Form::kFloats:
        return record::FieldFloats(floats);
      case Form::kNothing:
        break;
    }
    return {};
  }
};

// Callbacks of Boost.JSON's parser. Returning false ends parsing; `wrong` then has our error text.
class Handler {
 public:
  static constexpr size_t max_object_size = SIZE_MAX;
  static constexpr size_t max_array_size = SIZE_MAX;
  static constexpr size_t max_key_size = size_t{1} << 16;
  static constexpr size_t max_string_size = SIZE_MAX;

  Handler(const std::vector<std::string>& names, uint64_t row, std::optional<size_t> maybe_texts,
          std::optional<size_t> maybe_messages, std::vector<bool> can_be_empty)
      : found_(names.size()), can_be_empty_(std::move(can_be_empty)) {
    can_be_empty_.resize(names.size());
    for (size_t i = 0; i < names.size(); ++i) indices_[names[i]].push_back(i);
    if (!found_.empty()) found_.front().row = row;
    if (maybe_texts) found_[indices_[names[*maybe_texts]].front()].can_be_texts = true;
    if (maybe_messages) found_[indices_[names[*maybe_messages]].front()].is_messages = true;
  }

  void clear() {
    for (Found& found : found_) found.clear();
    path_.clear();
    ends_.clear();
    wrong_.clear();
    arrays_ = 0;
    open_ = nullptr;
    is_object_ = in_key_ = in_text_ = in_message_ = false;
  }
  const std::string& wrong() const { return wrong_; }
  void collect(std::span<record::FieldValue> values) const {
    assert(values.size() == found_.size());
    for (const auto& [name, indices] : indices_)
      for (const size_t index : indices) {
        const Found& found = found_[indices.front()];
        values[index] = found.value();
        if (found.form == Found::Form::kNothing && found.is_list && can_be_empty_[index])
          values[index] = record::FieldInts();
      }
  }

  // ---- Boost.JSON callbacks

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& error) {
    if (arrays_ == 0 && ends_.empty()) is_object_ = true;
    if (arrays_ == 0 && !ends_.empty() && wanted() != nullptr) return fail(error, "is an object");
    const bool is_message = reads_messages() && arrays_ == 1 && !in_message_;
    if (open_ != nullptr && !is_message) return fail(error, "contains an object");
    in_message_ = is_message;
    if (is_message) role_.reset(), content_.reset();
    ends_.push_back(path_.size());
    return true;
  }
  bool on_object_end(size_t, json::error_code& error) {
    path_.resize(ends_.back());
    ends_.pop_back();
    if (!std::exchange(in_message_, false)) return true;
    if (!role_ || !content_) return fail(error, "has a message without role and content");
    open_->form = Found::Form::kText;
    record::append_message({.role = *role_, .content = *content_}, open_->text);
    return true;
  }
  bool on_key_part(json::string_view part, size_t, json::error_code&) {
    if (!in_key_) start_key();
    in_key_ = true;
    path_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, size_t size, json::error_code& error) {
    on_key_part(part, size, error);
    in_key_ = false;
    return true;
  }
  bool on_array_begin(json::error_code& error) {
    if (!is_object_) return fail(error, "");
    if (in_message_) return fail(error, "is not supported in a message, as it is a list");
    if (arrays_++ == 0) {
      if (!take(error)) return false;
      if (open_ != nullptr) open_->is_list = true;
    }
    if (reads_messages() && arrays_ > 1) return fail(error, "must be a list of messages");
    if (arrays_ == 2 && open_ != nullptr) line_start_ = open_->numbers();
    return true;
  }
  bool on_array_end(size_t, json::error_code& error) {
    if (arrays_ == 2 && open_ != nullptr && !is_row()) return fail(error, wrong_row());
    if (--arrays_ == 0) open_ = nullptr;
    return true;
  }
  bool on_string_part(json::string_view part, size_t, json::error_code& error) {
    if (in_message_) return add_to_message(part, error);
    if (!in_text_) {
      in_text_ = true;
      if (open_ != nullptr && !begin_listed_text()) return fail(error, "contains a text");
      if (arrays_ == 0 && !take(error)) return false;
      if (open_ != nullptr && open_->is_messages) return fail(error, "must be a list of messages");
      if (open_ != nullptr) open_->form = Found::Form::kText;
    }
    if (open_ != nullptr) open_->text.append(part.data(), part.size());
    return true;
  }
  bool on_string(json::string_view part, size_t size, json::error_code& error) {
    const bool went_well = on_string_part(part, size, error);
    in_text_ = false;
    if (arrays_ == 0) open_ = nullptr;
    return went_well;
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t number, json::string_view, json::error_code& error) {
    return take_number(number, error);
  }
  bool on_uint64(uint64_t number, json::string_view, json::error_code& error) {
    return take_number(static_cast<double>(number), error);  // does not fit in int64_t
  }
  bool on_double(double number, json::string_view text, json::error_code& error) {
    return take_number(parse_double_exact({text.data(), text.size()}, number), error);
  }
  bool on_bool(bool value, json::error_code& error) {
    return take_number(int64_t{value ? 1 : 0}, error);
  }
  bool on_null(json::error_code& error) {
    if (in_message_ && !is_role() && !is_content()) return true;
    if (open_ != nullptr) return fail(error, "contains null");
    if (arrays_ > 0) return true;
    const bool went_well = take(error);
    open_ = nullptr;
    return went_well;
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  bool fail(json::error_code& error, const std::string& what) {
    wrong_ =
        what.empty() ? "is not an object" : quote_for_message(path_, kMaxNameBytes) + " " + what;
    error = json::error::incomplete;  // any code works: wrong_ has the message
    return false;
  }

  bool reads_messages() const { return open_ != nullptr && open_->is_messages; }
  // Whether path_ is that of a message's role, or content.
  std::string_view message_key() const { return std::string_view(path_).substr(ends_.back()); }
  bool is_role() const { return message_key() == ".role"; }
  bool is_content() const { return message_key() == ".content"; }
  bool add_to_message(json::string_view part, json::error_code& error) {
    if (!is_role() && !is_content()) return fail(error, "is not supported in a message");
    std::optional<std::string>& text = is_role() ? role_ : content_;
    if (!text) {
      text.emplace();
    } else if (!in_text_) {
      return fail(error, "is a duplicate key");
    }
    in_text_ = true;
    text->append(part.data(), part.size());
    return true;
  }

  // Starts a string of an array of strings.
  bool begin_listed_text() {
    const bool is_first = open_->form == Found::Form::kNothing;
    if (!open_->can_be_texts || (!is_first && open_->form != Found::Form::kText)) return false;
    open_->form = Found::Form::kText;
    if (!is_first) open_->text += '\n';
    return true;
  }

  bool is_row() const {
    const size_t row = open_->row;
    return row == 0 || (line_start_ % row == 0 && open_->numbers() - line_start_ == row);
  }
  std::string wrong_row() const {
    return "must be lists of " + std::to_string(open_->row) + " numbers each, got one of " +
           std::to_string(open_->numbers() - line_start_) + " after " +
           std::to_string(line_start_) + " numbers";
  }

  void start_key() {
    path_.resize(ends_.back());
    if (ends_.size() > 1) path_ += '.';
  }

  // The requested value at the current path; null if there is none. Not called within arrays.
  Found* wanted() {
    const auto found = indices_.find(path_);
    return found == indices_.end() ? nullptr : &found_[found->second.front()];
  }

  // Called when a value starts. Sets open_ if the value at the current path is requested.
  bool take(json::error_code& error) {
    if (!is_object_) return fail(error, "");
    open_ = wanted();
    if (open_ == nullptr) return true;
    if (open_->is_there) return fail(error, "is a duplicate key");
    open_->is_there = true;
    return true;
  }

  template <typename Number>
  bool take_number(Number number, json::error_code& error) {
    if (arrays_ == 0 && !take(error)) return false;
    if (open_ != nullptr && open_->is_messages)
      return fail(error, !in_message_                ? "must be a list of messages"
                         : is_role() || is_content() ? "must be text"
                                                     : "is not supported in a message");
    if (open_ != nullptr && open_->form == Found::Form::kText)
      return fail(error, "has texts and numbers");
    if (open_ != nullptr) open_->add(number);
    if (arrays_ == 0) open_ = nullptr;
    return true;
  }

  std::unordered_map<std::string, std::vector<size_t>> indices_;
  std::vector<Found> found_;  // for a duplicate name only the first index is used
  std::vector<bool> can_be_empty_;
  std::string path_;          // of the next value: "meta.score"
  std::vector<size_t> ends_;  // length of path_ at the start of each open object
  size_t arrays_ = 0;         // number of open arrays
  size_t line_start_ = 0;     // size of open_ at the start of the open nested list
  Found* open_ = nullptr;     // the requested value being read
  bool is_object_ = false;    // the document has started with an object
  bool in_key_ = false;
  bool in_text_ = false;
  bool in_message_ = false;
  std::optional<std::string> role_, content_;  // of the open message
  std::string wrong_;
};

json::parse_options strict() {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  return options;
}

}  // namespace

namespace {

// Whether the text ends in the first half of a surrogate pair, and perhaps a backslash.
bool ends_in_surrogate(std::string_view text) {
  constexpr size_t kEscape = 6;  // \ud83d
  if (text.ends_with('\\')) text.remove_suffix(1);
  if (text.size() < kEscape) return false;
  const std::string_view last = text.substr(text.size() - kEscape);
  return last.starts_with("\\u") && (last[2] == 'd' || last[2] == 'D') &&
         std::string_view("89abAB").find(last[3]) != std::string_view::npos;
}

// Why the line is not JSON; the parser stopped at `taken`.
std::string cause_of(const json::error_code& error, std::string_view line, size_t taken) {
  constexpr size_t kBefore = 9;  // it stops within -Infinity
  const std::string_view near = line.substr(taken - std::min(taken, kBefore), 2 * kBefore);
  for (const std::string_view number : {"NaN", "Infinity"})
    if (near.find(number) != std::string_view::npos)
      return "invalid JSON (" + std::string(number) + " is no number of JSON; write null)";
  for (std::string_view rest = line; !rest.empty();) {
    const size_t bytes = utf8_character_bytes(rest);
    if (bytes == 0) return "invalid JSON (not UTF-8)";
    rest.remove_prefix(bytes);
  }
  if (error == json::error::illegal_leading_surrogate ||
      error == json::error::illegal_trailing_surrogate || ends_in_surrogate(line.substr(0, taken)))
    return "invalid JSON (half of a surrogate pair, as \\ud83d without \\ude00)";
  return "invalid JSON (" + error.message() + ")";
}

}  // namespace

class JsonValues::Parser {
 public:
  Parser(const std::vector<std::string>& names, uint64_t row, std::optional<size_t> maybe_texts,
         std::optional<size_t> maybe_messages, std::vector<bool> can_be_empty)
      : parser_(strict(), names, row, maybe_texts, maybe_messages, std::move(can_be_empty)) {}

  Status read(std::string_view line, std::span<record::FieldValue> values) {
    parser_.reset();
    parser_.handler().clear();
    json::error_code error;
    const size_t taken = parser_.write_some(false, line.data(), line.size(), error);
    const std::string at = " at byte " + std::to_string(taken + 1) + " of the line";
    if (!parser_.handler().wrong().empty())
      return Status(StatusCode::kCorrupt, parser_.handler().wrong() + at);
    if (error) return Status(StatusCode::kCorrupt, cause_of(error, line, taken) + at);
    if (line.find_first_not_of(" \t\r\n", taken) != std::string_view::npos)
      return Status(StatusCode::kCorrupt, "has text after its object" + at);
    parser_.handler().collect(values);
    return {};
  }

 private:
  json::basic_parser<Handler> parser_;
};

JsonValues::JsonValues(const std::vector<std::string>& names, uint64_t row,
                       std::optional<size_t> maybe_texts, std::optional<size_t> maybe_messages,
                       std::vector<bool> can_be_empty)
    : parser_(std::make_unique<Parser>(names, row, maybe_texts, maybe_messages,
                                       std::move(can_be_empty))) {}
JsonValues::~JsonValues() = default;

Status JsonValues::read(std::string_view line, std::span<record::FieldValue> values) {
  return parser_->read(line, values);
}

}  // namespace stoker::data::format
