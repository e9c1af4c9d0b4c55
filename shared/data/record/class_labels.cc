#include "shared/data/record/class_labels.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "shared/base/utf8.h"

namespace stoker::data::record {
namespace {

constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kNamesShown = 3;

Status wrong_label(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

// The label as text; names have no surrounding whitespace.
Result<std::string> text_of_label(const FieldValue& label) {
  if (const auto* bytes = std::get_if<FieldBytes>(&label)) {
    const std::string_view text = trimmed(to_string_view(*bytes));
    if (text.empty()) return wrong_label("is empty");
    if (text.size() > kMaxNameBytes) return wrong_label("is no label: " + describe(label));
    return escape_invalid_utf8(text);
  }
  STOKER_ASSIGN_OR_RETURN(const uint64_t number, class_index(label));
  return std::to_string(number);
}

bool is_negative_integer(std::string_view text) {
  const auto number = integer(std::as_bytes(std::span(text)));
  return number.ok() && *number < 0;
}

}  // namespace

TextLabels text_labels_of(const config::DatasetConfig& config) {
  const config::DatasetFormat format = config.format();
  bool is_typed =
      format == config::DatasetFormat::kJsonl || format == config::DatasetFormat::kTfrecord;
  if (format == config::DatasetFormat::kImageList) is_typed = config.path().ends_with(".jsonl");
  // A member is a text; a value in its JSON has a type.
  if (format == config::DatasetFormat::kWebdataset)
    is_typed = config.record()->fields.label.find(':') != std::string::npos;
  return is_typed ? TextLabels::kValues : TextLabels::kNumbers;
}

ClassLabels::ClassLabels(std::vector<std::string> names, TextLabels texts)
    : given_(std::move(names)), texts_(texts) {
  for (const std::string& name : given_) {
    of_given_.try_emplace(name, of_given_.size());
    given_has_index_ = given_has_index_ || class_index(std::as_bytes(std::span(name))).ok();
  }
}

Result<uint64_t> ClassLabels::index_of(const FieldValue& label) const {
  auto index = class_index(label);
  const auto* const bytes = std::get_if<FieldBytes>(&label);
  if (!index.ok() || bytes == nullptr || texts_ == TextLabels::kNumbers) return index;
  const std::string_view text = trimmed(to_string_view(*bytes));
  if (text == std::to_string(*index)) return index;
  return wrong_label("is the text " + quote_for_message(text) + ", which is no class index");
}

// A number that is no name is an index of the list if no name could be taken for one.
Result<uint64_t> ClassLabels::given_class(const FieldValue& label, const std::string& text) const {
  if (const auto found = of_given_.find(text); found != of_given_.end()) return found->second;
  const auto index = index_of(label);
  if (index.ok())  // 3.0 is 3
    if (const auto found = of_given_.find(std::to_string(*index)); found != of_given_.end())
      return found->second;
  if (index.ok() && !given_has_index_ && *index < given_.size()) return index;
  return wrong_label(quote_for_message(text) + " is none of the " + std::to_string(given_.size()) +
                     " in class_names");
}

Result<uint64_t> ClassLabels::class_of(const FieldValue& label) const {
  STOKER_ASSIGN_OR_RETURN(const std::string text, text_of_label(label));
  return given_class(label, text);
}

Result<uint64_t> ClassLabels::add(const FieldValue& label) {
  STOKER_ASSIGN_OR_RETURN(std::string text, text_of_label(label));
  const auto [entry, is_new] = of_text_.try_emplace(text, labels_.size());
  if (!is_new) return ++labels_[entry->second].count, entry->second;
  if (labels_.size() == kMaxClasses)
    return wrong_label("is the " + std::to_string(kMaxClasses + 1) + "th different label");
  auto index = given_.empty() ? index_of(label) : given_class(label, text);
  if (!given_.empty() && !index) return index.status();
  const bool is_class = index.ok() && *index < kMaxClasses;
  if (!is_class && !first_name_) first_name_ = labels_.size();
  std::optional<uint64_t> spelled;
  if (!is_class && is_bytes(label))
    if (const auto other = class_index(label); other.ok() && *other < kMaxClasses) spelled = *other;
  labels_.push_back({.text = std::move(text),
                     .index = is_class ? *index : 0,
                     .is_class = is_class,
                     .spelled = spelled,
                     .count = 1});
  return entry->second;
}

bool ClassLabels::all_indices() const { return std::ranges::all_of(labels_, &Label::is_class); }

Result<ClassLabels::Classes> ClassLabels::finish(const DatasetRequest& request) const {
  STOKER_RETURN_IF_ERROR(reject_stray_names(request));
  Classes classes;
  if (all_indices()) {
    for (const Label& label : labels_) {
      classes.of_label.push_back(label.index);
      classes.count = std::max(classes.count, label.index + 1);
    }
  } else {
    classes = number_names();
  }
  if (!given_.empty()) {
    classes.count = given_.size();
    classes.names = given_;
  }
  const auto given = static_cast<uint64_t>(request.config.num_classes().value_or(0));
  if (given == 0) return classes;
  if (classes.count > given) {
    const std::string found =
        all_indices() ? "a label is " + std::to_string(classes.count - 1)
                      : "there are " + std::to_string(classes.count) + " different labels";
    return request.config_error("num_classes", "is " + std::to_string(given) + ", but " + found);
  }
  classes.count = given;
  return classes;
}

ClassLabels::Classes ClassLabels::number_names() const {
  Classes classes{.count = labels_.size(), .names = {}, .of_label = {}};
  classes.of_label.resize(labels_.size());
  std::vector<uint64_t> order(labels_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [this](uint64_t label) { return labels_[label].text; });
  for (size_t i = 0; i < order.size(); ++i) {
    classes.of_label[order[i]] = i;
    classes.names.push_back(labels_[order[i]].text);
  }
  return classes;
}

// If most records have class indices, the others are mistakes: -1 for "unknown", a typing error.
// Labels such as -1, 0 and 1, texts such as 001, or digits among letters, are names that are meant.
Status ClassLabels::reject_stray_names(const DatasetRequest& request) const {
  uint64_t num_indices = 0, with_index = 0, with_name = 0;
  std::vector<const Label*> stray;
  for (const Label& label : labels_) {
    (label.is_class ? with_index : with_name) += label.count;
    if (label.is_class)
      ++num_indices;
    else
      stray.push_back(&label);
  }
  const auto is_sign = [](const Label* label) { return is_negative_integer(label->text); };
  // Such as -1, 0 and 1, or ratings from -2 to 2.
  const bool are_signs =
      (num_indices <= 2 || stray.size() + 1 >= num_indices) && std::ranges::all_of(stray, is_sign);
  // "01" to "12" are, "03" beside "3" is a mistake.
  std::set<uint64_t> indices;
  for (const Label& label : labels_)
    if (label.is_class) indices.insert(label.index);
  const bool are_spellings =
      texts_ == TextLabels::kValues && std::ranges::all_of(stray, [&](const Label* label) {
        return label->spelled && indices.insert(*label->spelled).second;
      });
  if (stray.empty() || are_signs || are_spellings || 2 * with_name >= with_index) return {};
  std::string shown;
  for (size_t i = 0; i < std::min(stray.size(), kNamesShown); ++i)
    shown += (i == 0 ? "" : ", ") + quote_for_message(stray[i]->text);
  if (stray.size() > kNamesShown) shown += ", …";
  const Status status(
      StatusCode::kCorrupt,
      "the label is " + shown + " in " + std::to_string(with_name) + " of " +
          std::to_string(with_index + with_name) +
          " records and a class index in the others: correct it, or list the labels in " +
          request.key("class_names"));
  return location_.empty() ? status : status.with_context(location_);
}

std::string class_names_text(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? " class_names=" : ",") + std::to_string(name.size()) + ':' + name;
  return text;
}

}  // namespace stoker::data::record
