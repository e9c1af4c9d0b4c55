#include "shared/control/request_fields.h"

#include <charconv>
#include <utility>

namespace stoker::control {
namespace {

namespace json = boost::json;

std::string bounds(std::string_view name, uint64_t min, uint64_t max) {
  return std::string(name) + " must be a whole number from " + std::to_string(min) + " to " +
         std::to_string(max);
}

}  // namespace

RequestFields::RequestFields(const json::value* maybe_params) {
  if (maybe_params == nullptr) return;
  maybe_fields_ = maybe_params->if_object();
  if (maybe_fields_ == nullptr) add_error("params must be an object");
}

void RequestFields::add_error(std::string message) {
  if (error_.empty()) error_ = std::move(message);
}

const json::value* RequestFields::find_field(std::string_view name) {
  used_.emplace(name);
  if (maybe_fields_ == nullptr || !error_.empty()) return nullptr;
  return maybe_fields_->if_contains(json::string_view(name.data(), name.size()));
}

void RequestFields::read_number(std::string_view name, uint64_t min, uint64_t max,
                                uint64_t* value) {
  const json::value* const field = find_field(name);
  if (field == nullptr) return;
  boost::system::error_code error;
  const auto number =
      field->is_int64() || field->is_uint64() ? field->to_number<uint64_t>(error) : uint64_t{0};
  const bool is_integer = field->is_int64() || field->is_uint64();
  if (!is_integer || error || number < min || number > max)
    return add_error(bounds(name, min, max));
  *value = number;
}

void RequestFields::read_bool(std::string_view name, bool* value) {
  const json::value* const field = find_field(name);
  if (field == nullptr) return;
  if (!field->is_bool()) return add_error(std::string(name) + " must be true or false");
  *value = field->get_bool();
}

void RequestFields::read_text(std::string_view name, size_t max_bytes, std::string* value) {
  const json::value* const field = find_field(name);
  if (field == nullptr) return;
  if (!field->is_string() || field->get_string().empty() ||
      field->get_string().size() > max_bytes) {
    return add_error(std::string(name) + " must be a text of at most " + std::to_string(max_bytes) +
                     " bytes");
  }
  *value = field->get_string();
}

void RequestFields::require(std::string_view name) {
  const bool is_there = maybe_fields_ != nullptr &&
                        maybe_fields_->contains(json::string_view(name.data(), name.size()));
  if (!is_there) add_error(std::string(name) + " is missing");
}

Status RequestFields::finish(std::string_view how) const {
  std::string message = error_;
  if (message.empty() && maybe_fields_ != nullptr) {
    for (const auto& field : *maybe_fields_) {
      const std::string_view key(field.key().data(), field.key().size());
      if (!used_.contains(key)) message = "a field is not known";
    }
  }
  if (message.empty()) return {};
  return Status(StatusCode::kInvalidArgument, message + "; such as " + std::string(how));
}

Result<uint64_t> parse_number(std::string_view name, std::string_view word, uint64_t min,
                              uint64_t max) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < min || value > max)
    return Status(StatusCode::kInvalidArgument, bounds(name, min, max));
  return value;
}

}  // namespace stoker::control
