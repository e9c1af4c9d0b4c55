#include "shared/data/format/npy_rows.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <string>
#include <vector>

#include "shared/data/record/field_value.h"
#include "shared/data/record/sample_spec.h"

namespace stoker::data::format {
namespace {

template <typename T>
bool take(std::span<const uint64_t>& numbers, T& value) {
  if (numbers.empty()) return false;
  value = static_cast<T>(numbers.front());
  numbers = numbers.subspan(1);
  return true;
}

}  // namespace

uint64_t NpyLayout::row_elements() const {
  uint64_t elements = 1;
  for (const uint64_t side : row) elements *= side;
  return elements;
}

std::string to_string(const NpyLayout& layout) {
  std::string text = std::string(to_string(layout.type)) + " rows of [";
  for (size_t i = 0; i < layout.row.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(layout.row[i]);
  return text + ']';
}

Status NpyLayout::add(const NpyHeader& header, uint64_t file, uint64_t array_offset) {
  NpyLayout other{
      .type = header.type, .row = {header.shape.begin() + 1, header.shape.end()}, .parts = {}};
  if (parts.empty()) {
    type = other.type;
    row = other.row;
  } else if (type != other.type || row != other.row) {
    return Status(StatusCode::kMismatch,
                  "has " + to_string(other) + ", but those before have " + to_string(*this));
  }
  parts.push_back({.file = file,
                   .offset = array_offset + header.data_offset,
                   .rows_end = rows() + header.rows()});
  return {};
}

void NpyLayout::append_to(std::vector<uint64_t>& numbers) const {
  numbers.insert(numbers.end(), {static_cast<uint64_t>(type.kind), type.bytes, row.size()});
  numbers.insert(numbers.end(), row.begin(), row.end());
  numbers.push_back(parts.size());
  for (const Part& part : parts)
    numbers.insert(numbers.end(), {part.file, part.offset, part.rows_end});
}

bool NpyLayout::take_from(std::span<const uint64_t>& numbers, const files::FileTable& files) {
  uint64_t dimensions = 0, count = 0;
  if (!take(numbers, type.kind) || !take(numbers, type.bytes) || !take(numbers, dimensions) ||
      to_string(type).empty() || dimensions > kMaxNpyDimensions || dimensions > numbers.size())
    return false;
  row.assign(numbers.begin(), numbers.begin() + static_cast<ptrdiff_t>(dimensions));
  numbers = numbers.subspan(dimensions);
  uint64_t bytes = type.bytes;
  for (const uint64_t side : row)
    if (side == 0 || __builtin_mul_overflow(bytes, side, &bytes)) return false;
  if (!take(numbers, count) || count == 0 || count > numbers.size() / 3) return false;
  parts.clear();
  for (uint64_t i = 0; i < count; ++i) {
    Part part;
    const uint64_t before = rows();
    (void)(take(numbers, part.file) && take(numbers, part.offset) && take(numbers, part.rows_end));
    if (part.file >= files.size() || part.rows_end <= before) return false;
    const uint64_t size = files.stamp(part.file).size;
    if (part.offset > size || (part.rows_end - before) > (size - part.offset) / bytes) return false;
    parts.push_back(part);
  }
  return true;
}

const NpyLayout::Part& NpyRows::part_of(uint64_t row) const {
  assert(row < layout_.rows());
  return *std::ranges::upper_bound(layout_.parts, row, {}, &NpyLayout::Part::rows_end);
}

uint64_t NpyRows::offset_of(uint64_t row) const {
  const NpyLayout::Part& part = part_of(row);
  const uint64_t before = &part == layout_.parts.data() ? 0 : std::prev(&part)->rows_end;
  return part.offset + (row - before) * layout_.row_bytes();
}

SampleSource NpyRows::source(uint64_t row) const {
  return {.file = files_.path(part_of(row).file), .offset = offset_of(row)};
}

std::string NpyRows::describe(uint64_t row) const {
  const NpyLayout::Part& part = part_of(row);
  return files_.path(part.file) + ": row " +
         std::to_string((offset_of(row) - part.offset) / layout_.row_bytes());
}

Status NpyRows::read(uint64_t row, std::span<std::byte> bytes) const {
  return reader_.read(part_of(row).file, offset_of(row), bytes);
}

void NpyRows::prefetch(uint64_t row, files::PrefetchedBytes& bytes) const {
  prefetch(row, layout_.row_elements(), bytes);
}

void NpyRows::prefetch(uint64_t row, uint64_t numbers, files::PrefetchedBytes& bytes) const {
  reader_.prefetch(part_of(row).file, offset_of(row), numbers * layout_.type.bytes, bytes);
}

namespace {

Status no_label(const NpyRows& rows, uint64_t row, int64_t label) {
  const SampleSource where = rows.source(row);
  return Status(StatusCode::kCorrupt, where.file + ": label " + std::to_string(label) +
                                          " at offset " + std::to_string(where.offset) +
                                          " was not there when the file was indexed");
}

}  // namespace

Result<uint64_t> read_npy_class(const NpyRows& rows, uint64_t row, uint64_t classes) {
  const NpyType& type = rows.layout().type;
  std::array<std::byte, sizeof(int64_t)> bytes;
  const auto stored = std::span(bytes).first(type.bytes);
  STOKER_RETURN_IF_ERROR(rows.read(row, stored));
  const int64_t label = record::class_at({stored, type}, 0);
  if (label < 0 || static_cast<uint64_t>(label) >= classes) return no_label(rows, row, label);
  return static_cast<uint64_t>(label);
}

Status check_npy_labels(const NpyRows& rows, uint64_t row, uint64_t classes,
                        const record::FieldArray& labels) {
  for (uint64_t i = 0; i < labels.size(); ++i) {
    const int64_t label = record::integer_at(labels, i);
    const bool is_class = label >= 0 && static_cast<uint64_t>(label) < classes;
    if (!is_class && label != record::kPaddedLabel) return no_label(rows, row, label);
  }
  return {};
}

Status read_npy_labels(const NpyRows& rows, uint64_t row, std::span<int64_t> labels) {
  const NpyType& type = rows.layout().type;
  std::vector<std::byte> bytes;
  while (!labels.empty()) {
    const size_t count = std::min<uint64_t>(rows.part_end(row) - row, labels.size());
    bytes.resize(count * type.bytes);
    STOKER_RETURN_IF_ERROR(rows.read(row, bytes));
    record::copy_integers(record::FieldArray{bytes, type}, labels.first(count));
    labels = labels.subspan(count);
    row += count;
  }
  return {};
}

Status for_each_npy_number(const NpyRows& rows, const files::ScanProgress& progress,
                           std::string_view what, const OnNumber& on_number) {
  constexpr uint64_t kAtOnce = 1 << 16;  // elements
  const NpyLayout& layout = rows.layout();
  const uint64_t numbers = layout.row_elements();
  std::vector<std::byte> chunk;
  for (uint64_t row = 0; row < layout.rows();) {
    const uint64_t count =
        std::min(rows.part_end(row) - row, std::max<uint64_t>(1, kAtOnce / numbers));
    chunk.resize(count * layout.row_bytes());
    STOKER_RETURN_IF_ERROR(rows.read(row, chunk));
    for (uint64_t i = 0; i < count * numbers; ++i) {
      STOKER_RETURN_IF_ERROR(
          on_number(rows, row + i / numbers, record::integer_at({chunk, layout.type}, i)));
    }
    row += count;
    progress(row, what);
  }
  return {};
}

}  // namespace stoker::data::format
