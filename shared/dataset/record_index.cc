#include "shared/dataset/record_index.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "shared/base/log.h"

namespace stoker::dataset {

RecordIndex::RecordIndex(const SetRequest& set, const RecordFields& fields, const FileTable& shards,
                         uint64_t width, const ScanProgress& progress)
    : set_(set),
      record_(*set.config.record()),
      fields_(fields),
      shards_(shards),
      progress_(progress),
      skips_(record_.on_missing_field == config::OnMissingField::kDrop) {
  table_.width = width + (fields.maybe_sequence() != nullptr ? 1 : 0);
}

Status RecordIndex::add(uint64_t offset, std::string_view what, std::span<const FieldValue> values,
                        std::span<const uint64_t> row) {
  assert(values.size() == fields_.names().size());
  if (++seen_ % kProgressRecords == 0) progress_(seen_, "records");
  const auto missing = std::ranges::find_if(values, is_missing);
  if (missing != values.end()) {
    note(incomplete_, offset, what, lacking(static_cast<size_t>(missing - values.begin())));
    return {};
  }
  std::optional<uint64_t> length;
  if (fields_.maybe_sequence() != nullptr) {
    STOKER_ASSIGN_OR_RETURN(length, take_length(offset, what, values));
    if (!length) return {};
  }
  if (kept_++ == 0) STOKER_RETURN_IF_ERROR(at(offset, what, take_form(values[0])));
  STOKER_RETURN_IF_ERROR(take_label(offset, what, values));
  table_.rows.insert(table_.rows.end(), row.begin(), row.end());
  if (length) table_.rows.push_back(*length);
  assert(table_.rows.size() == kept_ * table_.width);
  return {};
}

Status RecordIndex::take_label(uint64_t offset, std::string_view what,
                               std::span<const FieldValue> values) {
  const auto label = fields_.label();
  if (!label) return {};
  const auto number = labels_.add(values[*label]);
  if (!number) {
    const Status named(number.status().code(),
                       "label '" + fields_.names()[*label] + "' " + number.status().message());
    return at(offset, what, named);
  }
  table_.labels.push_back(*number);
  return {};
}

Result<std::optional<uint64_t>> RecordIndex::take_length(uint64_t offset, std::string_view what,
                                                         std::span<const FieldValue> values) {
  const SequenceForm& sequence = *fields_.maybe_sequence();
  const auto measure = sequence.measure(values);
  if (!measure) return at(offset, what, measure.status());
  if (measure->length == 0) {
    note(incomplete_, offset, what, lacking(0));
    return std::optional<uint64_t>();
  }
  const config::OnOverflow overflow = record_.sequence.on_overflow;
  const bool skips = overflow == config::OnOverflow::kDrop;
  const uint64_t most_labels = sequence.most_labels();
  const bool has_more = most_labels > 0 && measure->labels > most_labels;
  const std::string labels = "has " + std::to_string(measure->labels) + " labels";
  if (has_more && !skips)
    return at(
        offset, what,
        Status(Code::kCorrupt, labels + ", more than " + set_.key("sequence.max_label_length") +
                                   " (" + std::to_string(most_labels) + ")"));
  if (has_more || measure->length > sequence.longest())
    note(longer_, offset, what,
         has_more ? labels : "has " + std::to_string(measure->length) + " places");
  const bool stays =
      measure->length <= sequence.longest() || overflow == config::OnOverflow::kTruncate;
  if (has_more || !stays) return std::optional<uint64_t>();
  list_classes_ = std::max(list_classes_, measure->classes);
  return std::optional(measure->length);
}

void RecordIndex::end_shard() {
  table_.shard_ends.push_back(kept_);
  ++shard_;
}

Result<Facts> RecordIndex::finish() {
  progress_(seen_, "records");
  if (seen_ == 0) {
    return Status(Code::kNotFound,
                  set_.key("path") + ": " + set_.config.path() + ": there is no record in its " +
                      std::to_string(shards_.size()) + (shards_.size() == 1 ? " file" : " files"));
  }
  STOKER_RETURN_IF_ERROR(judge_incomplete());
  STOKER_RETURN_IF_ERROR(judge_longer());
  STOKER_RETURN_IF_ERROR(take_classes());
  return std::move(table_).to_facts();
}

Status RecordIndex::take_classes() {
  const auto given = static_cast<uint64_t>(record_.num_classes.value_or(0));
  if (fields_.maybe_sequence() != nullptr && fields_.maybe_sequence()->has_labels()) {
    if (given > 0 && given < list_classes_)
      return set_.wrong("num_classes", "is " + std::to_string(given) + ", but a label is " +
                                           std::to_string(list_classes_ - 1));
    table_.classes = std::max(given, list_classes_);
    if (table_.classes == 0) return set_.wrong("fields.labels", "hold no class, only -100");
  }
  if (!fields_.label()) return {};
  auto classes = labels_.finish(given);
  if (!classes) return set_.wrong("num_classes", classes.status().message());
  table_.classes = classes->count;
  table_.class_names = std::move(classes->names);
  for (uint64_t& label : table_.labels) label = classes->of_label[label];
  return {};
}

Status RecordIndex::at(uint64_t offset, std::string_view what, const Status& status) const {
  if (status.ok()) return status;
  return in_shard(status.with_context(std::string(what.empty() ? "record" : what) + " at offset " +
                                      std::to_string(offset)));
}

Status RecordIndex::in_shard(const Status& status) const {
  if (status.ok()) return status;
  return status.with_context(set_.key("path") + ": " + shards_.path(shard_));
}

void RecordIndex::note(Odd& odd, uint64_t offset, std::string_view what, const std::string& how) {
  if (odd.count++ == 0) odd.first = at(offset, what, Status(Code::kCorrupt, how)).message();
}

std::string RecordIndex::lacking(size_t name) const {
  return "has no " + std::string(fields_.setting_of(name)) + " '" + fields_.names()[name] + "'";
}

std::string RecordIndex::counted(const Odd& odd, const std::string& are) const {
  return odd.first + "; " + std::to_string(odd.count) + " of " + std::to_string(seen_) + " are " +
         are;
}

Status RecordIndex::judge_incomplete() const {
  if (incomplete_.count == 0) return {};
  const std::string are = counted(incomplete_, "incomplete");
  if (kept_ == 0)
    return Status(Code::kInvalidArgument, are + ": name what is there in " + set_.key("fields"));
  if (!skips_) {
    return Status(Code::kCorrupt, are + ": complete them, or leave them out with " +
                                      set_.key("on_missing_field") + ": drop");
  }
  log_warn("records dropped", {{"dataset", set_.name},
                               {"reason", "missing_field"},
                               {"count", incomplete_.count},
                               {"total", seen_},
                               {"first", incomplete_.first}});
  return {};
}

Status RecordIndex::judge_longer() const {
  if (longer_.count == 0) return {};
  const config::OnOverflow overflow = record_.sequence.on_overflow;
  if (overflow == config::OnOverflow::kError || kept_ == 0) {
    return Status(kept_ == 0 ? Code::kInvalidArgument : Code::kCorrupt,
                  counted(longer_, "longer than " + set_.key("sequence.max_length") + " (" +
                                       std::to_string(fields_.maybe_sequence()->longest()) + ")") +
                      ": raise it, or say whether to truncate or to drop them with " +
                      set_.key("sequence.on_overflow"));
  }
  log_warn(overflow == config::OnOverflow::kDrop ? "records dropped" : "records truncated",
           {{"dataset", set_.name},
            {"reason", "max_length"},
            {"count", longer_.count},
            {"total", seen_},
            {"first", longer_.first}});
  return {};
}

Status RecordIndex::take_form(const FieldValue& input) {
  if (fields_.is_text()) return {};
  STOKER_ASSIGN_OR_RETURN(table_.form, fields_.form_of(input));
  return {};
}

}  // namespace stoker::dataset
