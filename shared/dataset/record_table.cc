#include "shared/dataset/record_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "shared/dataset/class_labels.h"

namespace stoker::dataset {
namespace {

constexpr size_t kHead = 2;  // form, classes; then a number a shard, rows, labels

Status no_table() {
  return Status(StatusCode::kCorrupt, "the index does not describe its records");
}

}  // namespace

size_t RecordTable::shard_index(uint64_t record) const {
  assert(record < size());
  const auto found = std::ranges::upper_bound(shard_ends, record);
  return static_cast<size_t>(found - shard_ends.begin());
}

IndexMetadata RecordTable::to_metadata() && {
  IndexMetadata metadata{.numbers = {}, .names = std::move(class_names), .made = FileTable()};
  metadata.numbers.reserve(kHead + shard_ends.size() + rows.size() + labels.size());
  metadata.numbers = {static_cast<uint64_t>(form), classes};
  for (const auto* part : {&shard_ends, &rows, &labels})
    metadata.numbers.insert(metadata.numbers.end(), part->begin(), part->end());
  return metadata;
}

Result<RecordTable> RecordTable::of(IndexMetadata metadata, size_t shards, uint64_t width,
                                    const RecordFields& fields) {
  const std::span<const uint64_t> numbers(metadata.numbers);
  const SequenceLayout* const sequence = fields.sequence_layout();
  const bool has_labels = fields.label().has_value();  // a class a record, in the table
  const bool has_lists = sequence != nullptr && sequence->has_labels();  // in the records
  if (shards == 0 || numbers.size() < kHead + shards) return no_table();
  RecordTable table{.class_names = std::move(metadata.names),
                    .width = width + (sequence != nullptr ? 1 : 0)};
  if (numbers[0] > static_cast<uint64_t>(InputForm::kNumbers)) return no_table();
  table.form = static_cast<InputForm>(numbers[0]);
  table.classes = numbers[1];
  const auto ends = numbers.subspan(kHead, shards);
  const auto rest = numbers.subspan(kHead + shards);
  const uint64_t each = table.width + (has_labels ? 1 : 0);
  const bool fits = std::ranges::is_sorted(ends) && rest.size() % each == 0 &&
                    rest.size() / each == ends.back() && ends.back() > 0;
  const bool has_classes = table.classes > 0 && table.classes <= kMaxClasses;
  if (!fits || (has_labels || has_lists) != has_classes) return no_table();
  if (!table.class_names.empty() && table.class_names.size() > table.classes) return no_table();
  table.shard_ends.assign(ends.begin(), ends.end());
  const auto rows = rest.first(table.width * table.size());
  const auto labels = rest.subspan(rows.size());
  const auto is_class = [&table](uint64_t label) { return label < table.classes; };
  if (!std::ranges::all_of(labels, is_class)) return no_table();
  table.rows.assign(rows.begin(), rows.end());
  table.labels.assign(labels.begin(), labels.end());
  return table;
}

}  // namespace stoker::dataset
