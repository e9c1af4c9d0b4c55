#include "shared/control/request_fields.h"

#include <charconv>
#include <utility>

namespace stoker::control {
namespace {

namespace json = boost::json;

std::string bounds(std::string_view name, uint64_t least, uint64_t most) {
  return std::string(name) + " must be a whole number from " + std::to_string(least) + " to " +
         std::to_string(most);
}

}  // namespace

RequestFields::RequestFields(const json::value* maybe_params) {
  if (maybe_params == nullptr) return;
  maybe_fields_ = maybe_params->if_object();
  if (maybe_fields_ == nullptr) note("params must be an object");
}

void RequestFields::note(std::string mistake) {
  if (mistake_.empty()) mistake_ = std::move(mistake);
}

const json::value* RequestFields::take(std::string_view name) {
  taken_.emplace(name);
  if (maybe_fields_ == nullptr || !mistake_.empty()) return nullptr;
  return maybe_fields_->if_contains(json::string_view(name.data(), name.size()));
}

void RequestFields::take_number(std::string_view name, uint64_t least, uint64_t most,
                                uint64_t* value) {
  const json::value* const field = take(name);
  if (field == nullptr) return;
  boost::system::error_code error;
  const auto number =
      field->is_int64() || field->is_uint64() ? field->to_number<uint64_t>(error) : uint64_t{0};
  const bool is_whole = field->is_int64() || field->is_uint64();
  if (!is_whole || error || number < least || number > most) return note(bounds(name, least, most));
  *value = number;
}

void RequestFields::take_flag(std::string_view name, bool* value) {
  const json::value* const field = take(name);
  if (field == nullptr) return;
  if (!field->is_bool()) return note(std::string(name) + " must be true or false");
  *value = field->get_bool();
}

void RequestFields::take_text(std::string_view name, size_t most_bytes, std::string* value) {
  const json::value* const field = take(name);
  if (field == nullptr) return;
  if (!field->is_string() || field->get_string().empty() ||
      field->get_string().size() > most_bytes) {
    return note(std::string(name) + " must be a text of at most " + std::to_string(most_bytes) +
                " bytes");
  }
  *value = field->get_string();
}

void RequestFields::require(std::string_view name) {
  const bool is_there = maybe_fields_ != nullptr &&
                        maybe_fields_->contains(json::string_view(name.data(), name.size()));
  if (!is_there) note(std::string(name) + " is missing");
}

Status RequestFields::finish(std::string_view how) const {
  std::string mistake = mistake_;
  if (mistake.empty() && maybe_fields_ != nullptr) {
    for (const auto& field : *maybe_fields_) {
      const std::string_view key(field.key().data(), field.key().size());
      if (!taken_.contains(key)) mistake = "a field is not known";
    }
  }
  if (mistake.empty()) return {};
  return Status(Code::kInvalidArgument, mistake + "; such as " + std::string(how));
}

Result<uint64_t> number_of_word(std::string_view name, std::string_view word, uint64_t least,
                                uint64_t most) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < least || value > most)
    return Status(Code::kInvalidArgument, bounds(name, least, most));
  return value;
}

}  // namespace stoker::control
