// row scanner: goes once over a file of text, row by row, at the speed of memchr.
//
// A row is a line, or several where a format allows line ends within quotes: who calls says where one
// ends. Lines without a character but spaces are passed over; a UTF-8 byte order mark is too.
//
// Threads: a function; memory is one row, at most kMaxTextLineBytes.
// Errors:  kCorrupt (UTF-16, a row over kMaxTextLineBytes), those of FileReader and of `on_line`; each names
//          file and line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"
#include "shared/data/record/table_reader.h"

namespace stoker::data::format {

constexpr uint64_t kMaxTextLineBytes =
    (uint64_t{1} << 24) - 1;  // LineLocation packs it into 24 bits

struct TextLine {
  std::string_view text;  // with its line end, unless the file ends without one
  uint64_t offset = 0;    // in the file
  uint64_t line = 0;      // from 1
};

// How many of the bytes are the first row with its line end; 0 where it does not end in them.
using LineEnd = std::function<size_t(std::string_view bytes)>;
size_t end_of_line(std::string_view bytes);  // of a format whose rows are lines

Status scan_lines(const files::FileReader& reader, const files::FileTable& files, size_t file,
                  const LineEnd& line_end, const std::function<Status(const TextLine&)>& on_line);

// text rows: what the formats have in common whose records are rows of text with named fields.
//
// Threads: values; TextRecords as Records.

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
class TextRecords : public record::TableReader {
 public:
  using record::TableReader::TableReader;
  void prefetch(uint64_t record, files::PrefetchedBytes& bytes) const override;

 protected:
  uint64_t offset(uint64_t record) const override { return location(record).offset; }
  std::string what(uint64_t record) const override {
    return line_location_text(location(record).line);
  }
  LineLocation location(uint64_t record) const {
    return LineLocation::of_numbers(table().row(record));
  }
  // The row with its line end, in memory that the calling thread keeps until its next call.
  Result<std::string_view> read_line(uint64_t record) const;
};

}  // namespace stoker::data::format
