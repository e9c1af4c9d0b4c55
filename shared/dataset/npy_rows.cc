#include "shared/dataset/npy_rows.h"

#include <algorithm>
#include <cassert>

namespace stoker::dataset {
namespace {

constexpr uint64_t kMaxRank = 32;

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

bool NpyLayout::take_from(std::span<const uint64_t>& numbers, const FileTable& files) {
  uint64_t dimensions = 0, count = 0;
  if (!take(numbers, type.kind) || !take(numbers, type.bytes) || !take(numbers, dimensions) ||
      to_string(type).empty() || dimensions > kMaxRank || dimensions > numbers.size())
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

Status NpyRows::read(uint64_t row, std::span<std::byte> bytes) const {
  return reader_.read(part_of(row).file, offset_of(row), bytes);
}

void NpyRows::prefetch(uint64_t row, PrefetchedBytes& bytes) const {
  prefetch(row, layout_.row_elements(), bytes);
}

void NpyRows::prefetch(uint64_t row, uint64_t numbers, PrefetchedBytes& bytes) const {
  reader_.prefetch(part_of(row).file, offset_of(row), numbers * layout_.type.bytes, bytes);
}

}  // namespace stoker::dataset
