#include "shared/dataset/record_index.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "shared/base/log.h"

namespace stoker::dataset {

RecordIndex::RecordIndex(const SetRequest& set, const RecordFields& fields, const FileTable& shards,
                         uint64_t width, const ScanProgress& progress)
    : set_(set),
      fields_(fields),
      shards_(shards),
      progress_(progress),
      skips_(set.config.incomplete == "skip") {
  table_.width = width;
}

Status RecordIndex::add(uint64_t offset, std::string_view what, std::span<const FieldValue> values,
                        std::span<const uint64_t> row) {
  assert(values.size() == fields_.names().size() && row.size() == table_.width);
  if (++seen_ % kProgressRecords == 0) progress_(seen_, "records");
  if (std::ranges::any_of(values, is_missing)) {
    note_incomplete(offset, what, values);
    return {};
  }
  if (complete_++ == 0) STOKER_RETURN_IF_ERROR(at(offset, what, take_form(values[0])));
  if (const auto label = fields_.label()) {
    const auto number = labels_.add(values[*label]);
    if (!number) {
      const Status named(number.status().code(),
                         "label '" + fields_.names()[*label] + "' " + number.status().message());
      return at(offset, what, named);
    }
    table_.labels.push_back(*number);
  }
  table_.rows.insert(table_.rows.end(), row.begin(), row.end());
  return {};
}

void RecordIndex::end_shard() {
  table_.shard_ends.push_back(complete_);
  ++shard_;
}

Result<Facts> RecordIndex::finish() {
  progress_(seen_, "records");
  if (seen_ == 0) {
    return Status(Code::kNotFound,
                  set_.key("path") + ": " + set_.config.path + ": there is no record in its " +
                      std::to_string(shards_.size()) + (shards_.size() == 1 ? " file" : " files"));
  }
  STOKER_RETURN_IF_ERROR(judge_incomplete());
  if (fields_.label()) {
    auto classes = labels_.finish(static_cast<uint64_t>(set_.config.classes));
    if (!classes) return set_.wrong("classes", classes.status().message());
    table_.classes = classes->count;
    table_.class_names = std::move(classes->names);
    for (uint64_t& label : table_.labels) label = classes->of_label[label];
  }
  return std::move(table_).to_facts();
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

void RecordIndex::note_incomplete(uint64_t offset, std::string_view what,
                                  std::span<const FieldValue> values) {
  if (incomplete_++ > 0) return;
  const auto missing =
      static_cast<size_t>(std::ranges::find_if(values, is_missing) - values.begin());
  const Status lacks(Code::kCorrupt, "has no " + std::string(fields_.setting_of(missing)) + " '" +
                                         fields_.names()[missing] + "'");
  first_incomplete_ = at(offset, what, lacks).message();
}

Status RecordIndex::judge_incomplete() const {
  if (incomplete_ == 0) return {};
  const std::string counted = first_incomplete_ + "; " + std::to_string(incomplete_) + " of " +
                              std::to_string(seen_) + " are incomplete";
  if (complete_ == 0) {
    return Status(Code::kInvalidArgument,
                  counted + ": name what is there in " + set_.key("input") + " and so on");
  }
  if (!skips_) {
    return Status(Code::kCorrupt, counted + ": complete them, or leave them out with " +
                                      set_.key("incomplete") + ": skip");
  }
  log_warn("dataset records left out", {{"set", set_.name},
                                        {"incomplete", incomplete_},
                                        {"of", seen_},
                                        {"first", first_incomplete_}});
  return {};
}

Status RecordIndex::take_form(const FieldValue& input) {
  if (fields_.is_text()) return {};
  STOKER_ASSIGN_OR_RETURN(table_.form, fields_.form_of(input));
  return {};
}

}  // namespace stoker::dataset
