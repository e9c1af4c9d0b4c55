// NpyRows: reads the rows of an array that is stored in one or more .npy files or members of .npz
// archives.
//
// Threads:  NpyLayout is a value; NpyRows::read() can be called from any thread, concurrently.
// Blocking: read() for the disk.
// Errors:   those of FileReader.
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

// Metadata of an array: its type, the shape of a row, and the locations of its parts.
struct NpyLayout {
  struct Part {
    uint64_t file = 0;      // index in the table of the files to read
    uint64_t offset = 0;    // of its first row in the file
    uint64_t rows_end = 0;  // number of rows up to the end of this part
  };
  NpyType type;
  std::vector<uint64_t> row;  // shape of a row; empty: a scalar
  std::vector<Part> parts;

  uint64_t rows() const { return parts.empty() ? 0 : parts.back().rows_end; }
  uint64_t row_elements() const;
  uint64_t row_bytes() const { return row_elements() * type.bytes; }

  // Appends a part. kMismatch if its type or row shape differs from the previous parts.
  Status add(const NpyHeader& header, uint64_t file, uint64_t array_offset);
  void append_to(std::vector<uint64_t>& numbers) const;
  // Consumes from the front what append_to() wrote. False if it is invalid.
  bool take_from(std::span<const uint64_t>& numbers, const files::FileTable& files);
};
std::string to_string(const NpyLayout& layout);  // "uint8 rows of [28, 28]"

class NpyRows {
 public:
  // Both references must outlive this object.
  NpyRows(const files::FileTable& files, const files::FileReader& reader, NpyLayout layout)
      : files_(files), reader_(reader), layout_(std::move(layout)) {}

  const NpyLayout& layout() const { return layout_; }
  SampleSource source(uint64_t row) const;
  std::string describe(uint64_t row) const;  // "x.npy: row 40", as NumPy counts in this file
  // The bytes of one row, or of several rows within one part: see part_end().
  Status read(uint64_t row, std::span<std::byte> bytes) const;
  void prefetch(uint64_t row, files::PrefetchedBytes& bytes) const;  // one row
  // Only the first `numbers` elements of the row.
  void prefetch(uint64_t row, uint64_t numbers, files::PrefetchedBytes& bytes) const;
  uint64_t part_end(uint64_t row) const { return part_of(row).rows_end; }

 private:
  const NpyLayout::Part& part_of(uint64_t row) const;
  uint64_t offset_of(uint64_t row) const;

  const files::FileTable& files_;
  const files::FileReader& reader_;
  const NpyLayout layout_;
};

// npy labels: reads and checks the labels of rows.
//
// Threads: stateless functions.
// Errors:  those of NpyRows; kCorrupt if a label is not a class of the index.

// The only element of a row, which must be below `classes`.
Result<uint64_t> read_npy_class(const NpyRows& rows, uint64_t row, uint64_t classes);
// The only elements of `labels.size()` rows, unchecked.
Status read_npy_labels(const NpyRows& rows, uint64_t row, std::span<int64_t> labels);
// Checks the first elements of a row: each must be below `classes`, or -100.
Status check_npy_labels(const NpyRows& rows, uint64_t row, uint64_t classes,
                        const record::FieldArray& labels);

// Calls `on_number` with each element of an integer array, in order, and its row.
using OnNumber = std::function<Status(const NpyRows& rows, uint64_t row, int64_t number)>;
Status for_each_npy_number(const NpyRows& rows, const files::ScanProgress& progress,
                           std::string_view what, const OnNumber& on_number);

}  // namespace stoker::data::format
