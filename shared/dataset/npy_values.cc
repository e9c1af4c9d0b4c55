#include "shared/dataset/npy_values.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "shared/dataset/npy_numbers.h"
#include "shared/dataset/sequence_layout.h"

namespace stoker::dataset {
namespace {

Result<std::span<const std::byte>> first_numbers(const NpyRows& rows, uint64_t row, size_t count) {
  thread_local std::vector<std::byte> bytes;
  bytes.resize(count * rows.layout().type.bytes);
  STOKER_RETURN_IF_ERROR(rows.read(row, bytes));
  return std::span<const std::byte>(bytes);
}

Status no_label(const NpyRows& rows, uint64_t row, int64_t label) {
  const SampleSource where = rows.source(row);
  return Status(StatusCode::kCorrupt, where.file + ": label " + std::to_string(label) +
                                          " at offset " + std::to_string(where.offset) +
                                          " was not there when the file was indexed");
}

}  // namespace

Status read_npy_floats(const NpyRows& rows, uint64_t row, std::span<std::byte> out) {
  const NpyType& type = rows.layout().type;
  if (type == NpyType{'f', 4}) return rows.read(row, out);
  STOKER_ASSIGN_OR_RETURN(const auto bytes, first_numbers(rows, row, out.size() / sizeof(float)));
  npy_to_floats(type, bytes, out);
  return {};
}

Status read_npy_class(const NpyRows& rows, uint64_t row, uint64_t classes,
                      std::span<std::byte> out) {
  STOKER_ASSIGN_OR_RETURN(const auto bytes, first_numbers(rows, row, 1));
  const int64_t label = npy_to_class(rows.layout().type, bytes);
  if (label < 0 || static_cast<uint64_t>(label) >= classes) return no_label(rows, row, label);
  std::memcpy(out.data(), &label, sizeof label);
  return {};
}

Status read_npy_classes(const NpyRows& rows, uint64_t row, uint64_t classes,
                        std::span<std::byte> out) {
  const NpyType& type = rows.layout().type;
  const size_t count = out.size() / sizeof(int64_t);
  STOKER_ASSIGN_OR_RETURN(const auto bytes, first_numbers(rows, row, count));
  for (size_t i = 0; i < count; ++i) {
    const int64_t label = npy_to_label(type, bytes.subspan(i * type.bytes));
    const bool is_class = label >= 0 && static_cast<uint64_t>(label) < classes;
    if (!is_class && label != kPaddedLabel) return no_label(rows, row, label);
    std::memcpy(out.data() + i * sizeof label, &label, sizeof label);
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
    const std::span<const std::byte> numbers(bytes);
    for (size_t i = 0; i < count; ++i)
      labels[i] = npy_to_label(type, numbers.subspan(i * type.bytes));
    labels = labels.subspan(count);
    row += count;
  }
  return {};
}

Status for_each_npy_number(const NpyRows& rows, const ScanProgress& progress, std::string_view what,
                           const OnNumber& on_number) {
  constexpr uint64_t kAtOnce = 1 << 16;  // numbers
  const NpyLayout& layout = rows.layout();
  const uint64_t numbers = layout.row_elements();
  std::vector<std::byte> chunk;
  for (uint64_t row = 0; row < layout.rows();) {
    const uint64_t count =
        std::min(rows.part_end(row) - row, std::max<uint64_t>(1, kAtOnce / numbers));
    chunk.resize(count * layout.row_bytes());
    STOKER_RETURN_IF_ERROR(rows.read(row, chunk));
    for (uint64_t i = 0; i < count * numbers; ++i) {
      const auto number = std::span<const std::byte>(chunk).subspan(i * layout.type.bytes);
      STOKER_RETURN_IF_ERROR(on_number(rows, row + i / numbers, npy_to_label(layout.type, number)));
    }
    row += count;
    progress(row, what);
  }
  return {};
}

}  // namespace stoker::dataset
