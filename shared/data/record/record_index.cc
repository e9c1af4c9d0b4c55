#include "shared/data/record/record_index.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "shared/base/log.h"
#include "shared/data/record/class_labels.h"
#include "shared/data/sample_split.h"

namespace stoker::data::record {
namespace {

constexpr size_t kHead = 2;  // form, classes; then one number per shard, rows, labels

Status no_table() {
  return Status(StatusCode::kCorrupt, "the index does not describe its records");
}

}  // namespace

size_t RecordTable::shard_index(uint64_t record) const {
  assert(record < size());
  const auto found = std::ranges::upper_bound(shard_ends, record);
  return static_cast<size_t>(found - shard_ends.begin());
}

files::IndexMetadata RecordTable::to_metadata() && {
  files::IndexMetadata metadata{
      .numbers = {}, .names = std::move(class_names), .made = files::FileTable()};
  metadata.numbers.reserve(kHead + shard_ends.size() + rows.size() + labels.size());
  metadata.numbers = {static_cast<uint64_t>(form), classes};
  for (const auto* part : {&shard_ends, &rows, &labels})
    metadata.numbers.insert(metadata.numbers.end(), part->begin(), part->end());
  return metadata;
}

Result<RecordTable> RecordTable::of(files::IndexMetadata metadata, size_t shards, uint64_t width,
                                    SampleSpec& spec) {
  const std::span<const uint64_t> numbers(metadata.numbers);
  const bool has_labels = spec.has_target(FieldRole::kLabel);  // one per record, in the table
  const bool has_lists = spec.has_target(FieldRole::kLabels);  // in the records
  if (shards == 0 || numbers.size() < kHead + shards) return no_table();
  RecordTable table{.class_names = std::move(metadata.names),
                    .width = width + (spec.is_sequence() ? 1 : 0)};
  if (numbers[0] > static_cast<uint64_t>(InputForm::kNumbers)) return no_table();
  table.form = static_cast<InputForm>(numbers[0]);
  table.classes = numbers[1];
  const auto ends = numbers.subspan(kHead, shards);
  const auto rest = numbers.subspan(kHead + shards);
  const uint64_t each = table.width + (has_labels ? 1 : 0);
  const bool fits = std::ranges::is_sorted(ends) && rest.size() % each == 0 &&
                    rest.size() / each == ends.back() && ends.back() > 0;
  const bool has_classes = table.classes > 0 && table.classes <= kMaxClasses;
  const bool needs_classes = has_labels || has_lists || spec.has_mask() || spec.has_captions();
  if (!fits || needs_classes != has_classes) return no_table();
  if (spec.has_captions() && table.class_names != spec.vocabulary->words()) return no_table();
  if (!table.class_names.empty() && table.class_names.size() > table.classes) return no_table();
  table.shard_ends.assign(ends.begin(), ends.end());
  const auto rows = rest.first(table.width * table.size());
  const auto labels = rest.subspan(rows.size());
  const auto is_class = [&table](uint64_t label) { return label < table.classes; };
  if (!std::ranges::all_of(labels, is_class)) return no_table();
  table.rows.assign(rows.begin(), rows.end());
  table.labels.assign(labels.begin(), labels.end());
  spec.set_input_form(table.form);
  return table;
}

RecordIndexBuilder::RecordIndexBuilder(const DatasetRequest& request, const SampleSpec& spec,
                                       const files::FileTable& shards, uint64_t width,
                                       const files::ScanProgress& progress)
    : request_(request),
      record_(*request.config.record()),
      assembler_(spec),
      shards_(shards),
      progress_(progress),
      maybe_tokenizer_(spec.tokenizer == nullptr || request.maybe_sandbox == nullptr
                           ? nullptr
                           : request.maybe_sandbox->make_tokenizer(request.name,
                                                                   spec.tokenizer->digest(), 0,
                                                                   [this] {
                                                                     progress_(seen_, "records");
                                                                     return false;
                                                                   })),
      skips_(record_.on_missing_field == config::OnMissingField::kDrop),
      labels_(record_.class_names, text_labels_of(request.config)),
      bad_(request, record_.max_bad_record_rate) {
  table_.width = width + (spec.is_sequence() ? 1 : 0);
}

void RecordIndexBuilder::report(uint64_t offset) {
  ++seen_;
  if (seen_ % kClockRecords != 0 && offset - clock_offset_ < kClockBytes) return;
  clock_offset_ = offset;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_report_) return;
  next_report_ = now + kProgressInterval;
  const double fraction = static_cast<double>(bytes_before_ + offset) /
                          static_cast<double>(std::max<uint64_t>(shards_.total_bytes(), 1));
  progress_(seen_, "records", std::min(fraction, 1.0));
}

Status RecordIndexBuilder::add(uint64_t offset, std::string_view what,
                               std::span<const FieldValue> values, std::span<const uint64_t> row) {
  assert(values.size() == spec().num_values() + (spec().has_group ? 1 : 0));
  report(offset);
  const auto missing = std::ranges::find_if(values, is_missing);
  if (missing != values.end()) {
    add_dropped(incomplete_, offset, what,
                spec().missing_text(static_cast<size_t>(missing - values.begin())));
    return {};
  }
  Status added = add_good(offset, what, values, row);
  return added.code() == StatusCode::kCorrupt && !is_fatal_ ? note_bad(offset, what, added) : added;
}

// Errors are without the location.
Status RecordIndexBuilder::add_good(uint64_t offset, std::string_view what,
                                    std::span<const FieldValue> values,
                                    std::span<const uint64_t> row) {
  std::optional<uint64_t> length, group;
  if (spec().has_group) {
    STOKER_ASSIGN_OR_RETURN(group, hash_of_group(values.back()));
    values = values.first(spec().num_values());
  }
  if (spec().is_sequence()) {
    STOKER_ASSIGN_OR_RETURN(length, take_length(offset, what, values));
    if (!length) return {};
  }
  if (kept_ == 0) STOKER_RETURN_IF_ERROR(take_form(values[0]));
  STOKER_RETURN_IF_ERROR(take_label(offset, what, values));
  ++kept_;
  table_.rows.insert(table_.rows.end(), row.begin(), row.end());
  if (length) table_.rows.push_back(*length);
  if (group) groups_.push_back(*group);
  assert(table_.rows.size() == kept_ * table_.width);
  return {};
}

Status RecordIndexBuilder::add_bad(uint64_t offset, std::string_view what, const Status& why) {
  if (why.code() != StatusCode::kCorrupt) return at(offset, what, why);
  report(offset);
  return note_bad(offset, what, why);
}

Status RecordIndexBuilder::note_bad(uint64_t offset, std::string_view what, const Status& why) {
  constexpr uint64_t kMaxOfOtherFormat = 10'000;  // then most are bad, so the rest is not read
  bad_.add({.path = shards_.path(shard_),
            .record = std::string(what),
            .offset = offset,
            .text = location_text(offset, what)},
           why);
  return bad_.count() >= kMaxOfOtherFormat && 2 * bad_.count() > seen_ && bad_.are_too_many(seen_)
             ? bad_.check(seen_)
             : Status();
}

Result<uint64_t> RecordIndexBuilder::hash_of_group(const FieldValue& group) const {
  const auto text = group_text(group);
  if (text.ok()) return name_hash(*text);
  return spec().in_field(spec().num_values(), text.status());
}

Status RecordIndexBuilder::take_label(uint64_t offset, std::string_view what,
                                      std::span<const FieldValue> values) {
  const auto label = spec().label_value();
  if (!label) return {};
  const auto number = labels_.add(values[*label]);
  if (!number) return spec().in_field(*label, number.status());
  if (labels_.needs_location(*number)) labels_.set_location(location_text(offset, what));
  table_.labels.push_back(*number);
  return {};
}

Result<std::optional<uint64_t>> RecordIndexBuilder::take_length(
    uint64_t offset, std::string_view what, std::span<const FieldValue> values) {
  const auto measure = assembler_.measure(values, maybe_tokenizer_.get());
  // A tokenizer that crashes or takes too long can succeed at the next start, which would count other records.
  is_fatal_ = !measure && maybe_tokenizer_ != nullptr;
  if (!measure) return is_fatal_ ? at(offset, what, measure.status()) : measure.status();
  if (measure->length == 0) {
    add_dropped(incomplete_, offset, what, spec().missing_text(0));
    return std::optional<uint64_t>();
  }
  const config::OnOverflow overflow = record_.sequence.on_overflow;
  if (const auto excess = assembler_.find_excess(*measure)) {
    if (!excess->is_of_steps && overflow != config::OnOverflow::kDrop) {
      is_fatal_ = true;
      return at(
          offset, what,
          Status(StatusCode::kCorrupt, excess->what + ", more than " + request_.key(excess->key) +
                                           " (" + std::to_string(excess->limit) + ")"));
    }
    add_dropped(longer_, offset, what, excess->what);
    if (overflow != config::OnOverflow::kTruncate) return std::optional<uint64_t>();
  }
  if (!measure->has_reply) {
    add_dropped(without_reply_, offset, what,
                "has no message of the role assistant within max_length");
    return std::optional<uint64_t>();
  }
  list_classes_ = std::max(list_classes_, measure->classes);
  return std::optional(measure->length);
}

void RecordIndexBuilder::end_shard() {
  table_.shard_ends.push_back(kept_);
  if (shard_ < shards_.size()) bytes_before_ += shards_.stamp(shard_).size;
  clock_offset_ = 0;
  ++shard_;
}

Result<files::IndexMetadata> RecordIndexBuilder::finish() {
  progress_(seen_, "records");
  if (seen_ == 0) {
    return Status(StatusCode::kNotFound, request_.key("path") + ": " + request_.config.path() +
                                             ": there is no record in its " +
                                             std::to_string(shards_.size()) +
                                             (shards_.size() == 1 ? " file" : " files"));
  }
  STOKER_RETURN_IF_ERROR(bad_.check(seen_));
  STOKER_RETURN_IF_ERROR(check_missing_fields());
  STOKER_RETURN_IF_ERROR(check_overlong());
  STOKER_RETURN_IF_ERROR(check_replies());
  STOKER_RETURN_IF_ERROR(take_classes());
  files::IndexMetadata metadata = std::move(table_).to_metadata();
  metadata.groups = std::move(groups_);
  return metadata;
}

Status RecordIndexBuilder::take_classes() {
  const auto given = static_cast<uint64_t>(record_.num_classes.value_or(0));
  if (spec().has_target(FieldRole::kLabels)) {
    if (given > 0 && given < list_classes_)
      return request_.config_error(
          "num_classes",
          "is " + std::to_string(given) + ", but a label is " + std::to_string(list_classes_ - 1));
    table_.classes = std::max(given, list_classes_);
    if (table_.classes == 0)
      return request_.config_error("fields.labels", "must contain a class, got only -100");
  }
  if (spec().has_mask()) table_.classes = spec().num_classes;
  if (spec().has_captions()) {
    table_.classes = spec().vocabulary->size();
    table_.class_names = spec().vocabulary->words();
  }
  if (!spec().has_target(FieldRole::kLabel)) return {};
  auto classes = labels_.finish(request_);
  if (!classes) return classes.status();
  table_.classes = classes->count;
  table_.class_names = std::move(classes->names);
  for (uint64_t& label : table_.labels) label = classes->of_label[label];
  return {};
}

Status RecordIndexBuilder::at(uint64_t offset, std::string_view what, const Status& status) const {
  return status.ok() ? status : status.with_context(location_text(offset, what));
}

std::string RecordIndexBuilder::location_text(uint64_t offset, std::string_view what) const {
  return request_.key("path") + ": " + shards_.path(shard_) + ": " +
         std::string(what.empty() ? "record" : what) + " at offset " + std::to_string(offset);
}

Status RecordIndexBuilder::in_shard(const Status& status) const {
  if (status.ok()) return status;
  return status.with_context(request_.key("path") + ": " + shards_.path(shard_));
}

void RecordIndexBuilder::add_dropped(DroppedRecords& dropped, uint64_t offset,
                                     std::string_view what, const std::string& how) {
  if (dropped.count++ == 0)
    dropped.first = at(offset, what, Status(StatusCode::kCorrupt, how)).message();
}

std::string RecordIndexBuilder::counted(const DroppedRecords& dropped,
                                        const std::string& are) const {
  return dropped.first + "; " + std::to_string(dropped.count) + " of " + std::to_string(seen_) +
         " are " + are;
}

Status RecordIndexBuilder::check_missing_fields() const {
  if (incomplete_.count == 0) return {};
  const std::string are = counted(incomplete_, "incomplete");
  if (kept_ == 0)
    return Status(StatusCode::kInvalidArgument,
                  are + ": name what is there in " + request_.key("fields"));
  if (!skips_) {
    return Status(StatusCode::kCorrupt, are + ": complete them, or leave them out with " +
                                            request_.key("on_missing_field") + ": drop");
  }
  log_warn("records dropped", {{"dataset", request_.name},
                               {"reason", "missing_field"},
                               {"count", incomplete_.count},
                               {"total", seen_},
                               {"first", incomplete_.first}});
  return {};
}

Status RecordIndexBuilder::check_overlong() const {
  if (longer_.count == 0) return {};
  const config::OnOverflow overflow = record_.sequence.on_overflow;
  if (overflow == config::OnOverflow::kError || kept_ == 0) {
    return Status(kept_ == 0 ? StatusCode::kInvalidArgument : StatusCode::kCorrupt,
                  counted(longer_, "longer than " + request_.key("sequence.max_length") + " (" +
                                       std::to_string(spec().max_length) + ")") +
                      ": raise it, or say whether to truncate or to drop them with " +
                      request_.key("sequence.on_overflow"));
  }
  using Event = LogEvent<LogLevel::kWarn>;
  log_warn(
      overflow == config::OnOverflow::kDrop ? Event("records dropped") : Event("records truncated"),
      {{"dataset", request_.name},
       {"reason", "max_length"},
       {"count", longer_.count},
       {"total", seen_},
       {"first", longer_.first}});
  return {};
}

// A conversation without a reply has no loss.
Status RecordIndexBuilder::check_replies() const {
  if (without_reply_.count == 0) return {};
  if (kept_ == 0)
    return Status(StatusCode::kInvalidArgument,
                  counted(without_reply_, "conversations without a reply") +
                      ": only the role assistant is learned; rename the roles, or raise " +
                      request_.key("sequence.max_length"));
  log_warn("records dropped", {{"dataset", request_.name},
                               {"reason", "no_reply"},
                               {"count", without_reply_.count},
                               {"total", seen_},
                               {"first", without_reply_.first}});
  return {};
}

Status RecordIndexBuilder::take_form(const FieldValue& input) {
  if (spec().is_text()) return {};
  STOKER_ASSIGN_OR_RETURN(table_.form, assembler_.input_form(input));
  return {};
}

}  // namespace stoker::data::record
