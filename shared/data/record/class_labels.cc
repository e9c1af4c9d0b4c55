#include "shared/data/record/class_labels.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace stoker::data::record {
namespace {

constexpr size_t kMaxNameBytes = 1024;

Status wrong_label(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

// The label as text; names have no surrounding whitespace.
Result<std::string> text_of_label(const FieldValue& label) {
  if (const auto* bytes = std::get_if<FieldBytes>(&label)) {
    const std::string_view text = trimmed(to_string_view(*bytes));
    if (text.empty()) return wrong_label("is empty");
    if (text.size() > kMaxNameBytes) return wrong_label("is no label: " + describe(label));
    return std::string(text);
  }
  STOKER_ASSIGN_OR_RETURN(const uint64_t number, non_negative_integer(label));
  return std::to_string(number);
}

}  // namespace

Result<uint64_t> ClassLabels::add(const FieldValue& label) {
  STOKER_ASSIGN_OR_RETURN(std::string text, text_of_label(label));
  const auto [entry, is_new] = of_text_.try_emplace(text, labels_.size());
  if (!is_new) return entry->second;
  if (labels_.size() == kMaxClasses)
    return wrong_label("is the " + std::to_string(kMaxClasses + 1) + "th different label");
  const auto number = non_negative_integer(label);
  all_numbers_ = all_numbers_ && number.ok() && *number < kMaxClasses;
  labels_.push_back({.text = std::move(text), .number = number.ok() ? *number : 0});
  return entry->second;
}

Result<ClassLabels::Classes> ClassLabels::finish(uint64_t given) const {
  Classes classes;
  classes.of_label.resize(labels_.size());
  if (all_numbers_) {
    for (size_t i = 0; i < labels_.size(); ++i) {
      classes.of_label[i] = labels_[i].number;
      classes.count = std::max(classes.count, labels_[i].number + 1);
    }
  } else {
    std::vector<uint64_t> order(labels_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [this](uint64_t label) { return labels_[label].text; });
    for (size_t i = 0; i < order.size(); ++i) {
      classes.of_label[order[i]] = i;
      classes.names.push_back(labels_[order[i]].text);
    }
    classes.count = order.size();
  }
  if (given == 0) return classes;
  if (classes.count > given) {
    const std::string found =
        all_numbers_ ? "a label is " + std::to_string(classes.count - 1)
                     : "there are " + std::to_string(classes.count) + " different labels";
    return Status(StatusCode::kInvalidArgument, "is " + std::to_string(given) + ", but " + found);
  }
  classes.count = given;
  return classes;
}

}  // namespace stoker::data::record
