// NpyRows: the rows of an array that is stored in one or several npy files, or members of npz archives.
//
// Threads: NpyLayout is a value; NpyRows::read() may be called from any thread, concurrently.
// Errors:  those of FileReader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/scan.h"
#include "shared/data/format/npy_header.h"

namespace stoker::data::format {

// What an index knows of an array: its type, the shape of a row, and where its parts lie.
struct NpyLayout {
  struct Part {
    uint64_t file = 0;      // of the table of files that are read
    uint64_t offset = 0;    // of its first row
    uint64_t rows_end = 0;  // of all parts up to this one
  };
  NpyType type;
  std::vector<uint64_t> row;  // its shape; empty: one number
  std::vector<Part> parts;

  uint64_t rows() const { return parts.empty() ? 0 : parts.back().rows_end; }
  uint64_t row_elements() const;
  uint64_t row_bytes() const { return row_elements() * type.bytes; }

  // kMismatch where type or shape differ from those of the parts before.
  Status add(const NpyHeader& header, uint64_t file, uint64_t array_offset);
  void append_to(std::vector<uint64_t>& numbers) const;
  // Takes off the front what append_to() wrote. False where it cannot have been that.
  bool take_from(std::span<const uint64_t>& numbers, const files::FileTable& files);
};
std::string to_string(const NpyLayout& layout);  // "uint8 rows of [28, 28]"

class NpyRows {
 public:
  // Both must outlive this object.
  NpyRows(const files::FileTable& files, const files::FileReader& reader, NpyLayout layout)
      : files_(files), reader_(reader), layout_(std::move(layout)) {}

  const NpyLayout& layout() const { return layout_; }
  SampleSource source(uint64_t row) const;
  // The bytes of a row, or of several that lie in one part: see part_end().
  Status read(uint64_t row, std::span<std::byte> bytes) const;
  void prefetch(uint64_t row, files::PrefetchedBytes& bytes) const;  // of one row
  // Of its first `numbers` numbers.
  void prefetch(uint64_t row, uint64_t numbers, files::PrefetchedBytes& bytes) const;
  uint64_t part_end(uint64_t row) const { return part_of(row).rows_end; }

 private:
  const NpyLayout::Part& part_of(uint64_t row) const;
  uint64_t offset_of(uint64_t row) const;

  const files::FileTable& files_;
  const files::FileReader& reader_;
  const NpyLayout layout_;
};

// npy labels: the labels of rows.
//
// Threads: functions of their arguments.
// Errors:  those of NpyRows; kCorrupt where a label is not one that the index knows.

// A row's only number, below `classes`.
Result<uint64_t> read_npy_class(const NpyRows& rows, uint64_t row, uint64_t classes);
// The only numbers of `labels.size()` rows, as they are.
Status read_npy_labels(const NpyRows& rows, uint64_t row, std::span<int64_t> labels);
// Of the first numbers of a row: each is below `classes`, or -100.
Status check_npy_labels(const NpyRows& rows, uint64_t row, uint64_t classes,
                        const record::FieldArray& labels);

// Calls `on_number` with each whole number of an array, in order, and the row that it is in.
using OnNumber = std::function<Status(const NpyRows& rows, uint64_t row, int64_t number)>;
Status for_each_npy_number(const NpyRows& rows, const files::ScanProgress& progress,
                           std::string_view what, const OnNumber& on_number);

}  // namespace stoker::data::format
