// text rows: what the formats have in common whose records are rows of text with named fields.
//
// Threads: values; TextRecords as Records.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shared/config/dataset_config.h"
#include "shared/dataset/line_scanner.h"
#include "shared/dataset/records.h"

namespace stoker::dataset {

// Where a row lies, in two numbers of an index.
struct LineLocation {
  static constexpr uint64_t kWidth = 2;
  static constexpr int kBytesBits = 24;  // of kMaxTextLineBytes; the line has the other 40

  uint64_t offset = 0;
  uint64_t line = 0;
  uint64_t bytes = 0;

  static LineLocation of(const TextLine& row);
  static LineLocation of_numbers(std::span<const uint64_t> numbers);  // at least kWidth
  std::array<uint64_t, kWidth> to_numbers() const;
};
static_assert(kMaxTextLineBytes < (uint64_t{1} << LineLocation::kBytesBits));

// "line 17", for messages.
std::string line_location_text(uint64_t line);

// The settings with what they leave out: an input without a shape is a vector of as many numbers as
// it has names.
config::RecordConfig with_shape(config::RecordConfig record);

// Records that are rows; the first numbers of a row of the table are its LineLocation.
class TextRecords : public RecordReader {
 public:
  using RecordReader::RecordReader;
  std::string what(uint64_t record) const override {
    return line_location_text(location(record).line);
  }
  void prefetch(uint64_t record, PrefetchedBytes& bytes) const override;

 protected:
  uint64_t offset(uint64_t record) const override { return location(record).offset; }
  LineLocation location(uint64_t record) const {
    return LineLocation::of_numbers(table().row(record));
  }
  // The row with its line end, in memory that the calling thread keeps until its next call.
  Result<std::string_view> read_line(uint64_t record) const;
  // "a.csv: line 17 at offset 402: …"
  Status at(uint64_t record, const Status& status) const;
};

}  // namespace stoker::dataset
