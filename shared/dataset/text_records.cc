#include "shared/dataset/text_records.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace stoker::dataset {
namespace {

constexpr uint64_t kLastLine = (uint64_t{1} << (64 - LineLocation::kBytesBits)) - 1;

}  // namespace

LineLocation LineLocation::of(const TextLine& row) {
  return {.offset = row.offset, .line = std::min(row.line, kLastLine), .bytes = row.text.size()};
}

LineLocation LineLocation::of_numbers(std::span<const uint64_t> numbers) {
  return {.offset = numbers[0],
          .line = numbers[1] >> kBytesBits,
          .bytes = numbers[1] & ((uint64_t{1} << kBytesBits) - 1)};
}

std::array<uint64_t, LineLocation::kWidth> LineLocation::to_numbers() const {
  return {offset, line << kBytesBits | bytes};
}

std::string line_location_text(uint64_t line) { return "line " + std::to_string(line); }

config::RecordConfig with_shape(config::RecordConfig record) {
  if (record.input_shape.empty() && !record.fields.input.empty())
    record.input_shape = {static_cast<int64_t>(record.fields.input.size())};
  return record;
}

Result<std::string_view> TextRecords::read_line(uint64_t record) const {
  thread_local std::vector<std::byte> bytes;
  const LineLocation where = location(record);
  bytes.resize(where.bytes);
  STOKER_RETURN_IF_ERROR(reader().read(table().shard_index(record), where.offset, bytes));
  return to_string_view(bytes);
}

void TextRecords::prefetch(uint64_t record, PrefetchedBytes& bytes) const {
  const LineLocation where = location(record);
  reader().prefetch(table().shard_index(record), where.offset, where.bytes, bytes);
}

Status TextRecords::at(uint64_t record, const Status& status) const {
  if (status.ok()) return status;
  const SampleSource where = source(record);
  return status.with_context(where.file + ": " + what(record) + " at offset " +
                             std::to_string(where.offset));
}

}  // namespace stoker::dataset
