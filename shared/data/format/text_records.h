// RowReader: reads a text file or stream once, row by row, at the speed of memchr.
//
// A row is a line, or several lines if the format allows line ends within quotes; `line_end` finds
// the end of a row. Blank lines and a UTF-8 byte order mark are skipped.
//
// Threads:   one at a time.
// Blocking:  as the source.
// Ownership: the source must outlive this object.
// Errors:    kCorrupt (UTF-16, a compressed file, a row over the maximum) with name and line, if
//            there is a name; those of the source. next() must not be called after an error.
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
#include "shared/data/files/byte_source.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"

namespace stoker::data::format {

// LineLocation has 24 bits for it.
constexpr uint64_t kMaxTextLineBytes = (uint64_t{1} << 24) - 1;

struct TextLine {
  std::string_view text;  // with its line end, except possibly at the end of the file
  uint64_t offset = 0;    // in the file
  uint64_t line = 0;      // 1-based
};

// Size in bytes of the first row including its line end; 0 if the row does not end within `bytes`.
using LineEnd = std::function<size_t(std::string_view bytes)>;
size_t end_of_line(std::string_view bytes);  // for formats with one row per line

class RowReader {
 public:
  // `name`: of the file, for messages; empty: the caller adds the location. `begin`: the offset of
  // the first row, for reading from the middle; lines are counted from there.
  RowReader(files::ByteSource& text, std::string name, LineEnd line_end,
            uint64_t max_bytes = kMaxTextLineBytes, uint64_t begin = 0);

  // The next row that is not blank; false at the end. Its text is valid until the next call.
  Result<bool> next(TextLine& row);
  // Of the next row; after an error, of the wrong one.
  uint64_t offset() const { return at_; }
  uint64_t line() const { return line_; }
  // Continues with the row at `offset`, which is not 0.
  void seek(uint64_t offset);

 private:
  Status begin_file();
  Result<size_t> find_row_end();
  Status too_long() const;
  Status wrong(const std::string& where, const std::string& what) const;

  files::ByteSource& text_;
  const std::string name_;
  const LineEnd row_end_;
  const uint64_t max_bytes_;
  bool has_begun_;
  uint64_t at_;            // offset of the next row
  std::string_view rest_;  // the bytes from there that were read
  uint64_t line_ = 1;
};

// Calls `on_line` for each row of a file. The errors of `on_line` are returned unchanged.
Status scan_lines(const files::FileReader& reader, const files::FileTable& files, size_t file,
                  const LineEnd& line_end, const std::function<Status(const TextLine&)>& on_line);

// Location of a row, packed into two numbers of the index.
struct LineLocation {
  static constexpr uint64_t kWidth = 2;
  static constexpr int kBytesBits = 24;  // for the row size; the line number has 40

  uint64_t offset = 0;
  uint64_t line = 0;
  uint64_t bytes = 0;

  static LineLocation of(const TextLine& row);
  static LineLocation of_numbers(std::span<const uint64_t> numbers);  // at least kWidth numbers
  std::array<uint64_t, kWidth> to_numbers() const;
};
static_assert(kMaxTextLineBytes < (uint64_t{1} << LineLocation::kBytesBits));

// "line 17", for messages.
std::string line_location_text(uint64_t line);

// The record config. An empty input_shape is set to a vector with one element per input name.
config::RecordConfig with_shape(config::RecordConfig record);

}  // namespace stoker::data::format
