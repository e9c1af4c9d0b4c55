// row scanner: goes once over a file of text, row by row, at the speed of memchr.
//
// A row is a line, or several where a format allows line ends within quotes: who calls says where one
// ends. Lines without a character but spaces are passed over; a UTF-8 byte order mark is too.
//
// Threads: a function; memory is one row, at most kMaxTextLineBytes.
// Errors:  kCorrupt (UTF-16, a row over kMaxTextLineBytes), those of FileReader and of `on_line`; each names
//          file and line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "shared/base/status.h"
#include "shared/dataset/file_reader.h"
#include "shared/dataset/file_table.h"

namespace stoker::dataset {

constexpr uint64_t kMaxTextLineBytes = (uint64_t{1} << 24) - 1;  // text_row.h packs it into 24 bits

struct TextLine {
  std::string_view text;  // with its line end, unless the file ends without one
  uint64_t offset = 0;    // in the file
  uint64_t line = 0;      // from 1
};

// How many of the bytes are the first row with its line end; 0 where it does not end in them.
using LineEnd = std::function<size_t(std::string_view bytes)>;
size_t end_of_line(std::string_view bytes);  // of a format whose rows are lines

Status scan_lines(const FileReader& reader, const FileTable& files, size_t file,
                  const LineEnd& line_end, const std::function<Status(const TextLine&)>& on_line);

}  // namespace stoker::dataset
