#include "shared/dataset/text_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace stoker::dataset {
namespace {

constexpr uint64_t kLastLine = (uint64_t{1} << (64 - RowPlace::kBytesBits)) - 1;

}  // namespace

RowPlace RowPlace::of(const TextRow& row) {
  return {.offset = row.offset, .line = std::min(row.line, kLastLine), .bytes = row.text.size()};
}

RowPlace RowPlace::of_numbers(std::span<const uint64_t> numbers) {
  return {.offset = numbers[0],
          .line = numbers[1] >> kBytesBits,
          .bytes = numbers[1] & ((uint64_t{1} << kBytesBits) - 1)};
}

std::array<uint64_t, RowPlace::kWidth> RowPlace::to_numbers() const {
  return {offset, line << kBytesBits | bytes};
}

std::string line_text(uint64_t line) { return "line " + std::to_string(line); }

config::RecordConfig with_shape(config::RecordConfig record) {
  if (record.input_shape.empty() && !record.fields.input.empty())
    record.input_shape = {static_cast<int64_t>(record.fields.input.size())};
  return record;
}

Result<std::string_view> TextRecords::read_row(uint64_t record) const {
  thread_local std::vector<std::byte> bytes;
  const RowPlace where = place(record);
  bytes.resize(where.bytes);
  STOKER_RETURN_IF_ERROR(reader().read(table().shard_of(record), where.offset, bytes));
  return text_of(bytes);
}

void TextRecords::prefetch(uint64_t record, PrefetchedBytes& bytes) const {
  const RowPlace where = place(record);
  reader().prefetch(table().shard_of(record), where.offset, where.bytes, bytes);
}

Status TextRecords::at(uint64_t record, const Status& status) const {
  if (status.ok()) return status;
  const Origin where = origin(record);
  return status.with_context(where.file + ": " + what(record) + " at offset " +
                             std::to_string(where.offset));
}

}  // namespace stoker::dataset
