#include "shared/data/format/text_records.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "shared/data/file_kind.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::format {
namespace {

constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

size_t end_of_line(std::string_view bytes) {
  const void* const found = std::memchr(bytes.data(), '\n', bytes.size());
  if (found == nullptr) return 0;
  return static_cast<size_t>(static_cast<const char*>(found) - bytes.data()) + 1;
}

RowReader::RowReader(files::ByteSource& text, std::string name, LineEnd line_end,
                     uint64_t max_bytes, uint64_t begin)
    : text_(text),
      name_(std::move(name)),
      row_end_(std::move(line_end)),
      max_bytes_(max_bytes),
      has_begun_(begin > 0),
      at_(begin) {}

void RowReader::seek(uint64_t offset) {
  has_begun_ = true;
  at_ = offset;
  rest_ = {};
}

Result<bool> RowReader::next(TextLine& row) {
  if (!has_begun_) STOKER_RETURN_IF_ERROR(begin_file());
  for (;;) {
    STOKER_ASSIGN_OR_RETURN(const size_t bytes, find_row_end());
    if (bytes == 0) return false;
    if (bytes > max_bytes_) return too_long();
    row = {.text = rest_.substr(0, bytes), .offset = at_, .line = line_};
    rest_.remove_prefix(bytes);
    at_ += bytes;
    line_ += static_cast<uint64_t>(std::count(row.text.begin(), row.text.end(), '\n'));
    if (!is_blank(row.text)) return true;
  }
}

Status RowReader::begin_file() {
  has_begun_ = true;
  STOKER_ASSIGN_OR_RETURN(auto first, text_.peek_available(0, 1));
  // Only what starts like an object cannot be a mark, whose bytes can arrive one by one.
  if (!first.empty() && first[0] != std::byte{'{'}) {
    STOKER_ASSIGN_OR_RETURN(first, text_.peek_available(0, kFileMagicBytes));
    // Not of more, which may have arrived or not.
    const Status text = reject_other_text(first.first(std::min(first.size(), kFileMagicBytes)));
    if (!text.ok()) return wrong(name_, text.message());
  }
  rest_ = record::to_string_view(first);
  if (!rest_.starts_with(kUtf8Mark)) return {};
  rest_.remove_prefix(kUtf8Mark.size());
  at_ += kUtf8Mark.size();
  return {};
}

// Size of the row at `at_`, of which `rest_` then has all bytes; 0 at the end.
Result<size_t> RowReader::find_row_end() {
  size_t bytes = rest_.empty() ? 0 : row_end_(rest_);
  while (bytes == 0) {
    const size_t known = rest_.size();
    if (known > max_bytes_) return too_long();
    STOKER_ASSIGN_OR_RETURN(const auto more, text_.peek_available(at_, known + 1));
    rest_ = record::to_string_view(more);
    if (rest_.size() == known) return known;  // the last row has no line end
    // No row ends without a line end: a long row that arrives in parts is not parsed for each.
    if (end_of_line(rest_.substr(known)) > 0) bytes = row_end_(rest_);
  }
  return bytes;
}

Status RowReader::too_long() const {
  // Only within quotes a row contains line ends.
  const bool has_lines = rest_.substr(0, max_bytes_).find('\n') != std::string_view::npos;
  return wrong(name_ + ':' + std::to_string(line_),
               "a row of more than " + std::to_string(max_bytes_) + " bytes" +
                   (has_lines ? "; is a quote never closed?" : ""));
}

Status RowReader::wrong(const std::string& where, const std::string& what) const {
  const Status status(StatusCode::kCorrupt, what);
  return name_.empty() ? status : status.with_context(where);
}

Status scan_lines(const files::FileReader& reader, const files::FileTable& files, size_t file,
                  const LineEnd& line_end, const std::function<Status(const TextLine&)>& on_line) {
  if (files.stamp(file).size == 0) return {};
  files::FileSource text(reader, file, files.stamp(file).size);
  STOKER_ASSIGN_OR_RETURN(const auto head, text.peek(0, kFileKindBytes));
  if (const Status is_text = reject_binary(head); !is_text.ok())
    return is_text.with_context(files.path(file));
  RowReader rows(text, files.path(file), line_end);
  for (TextLine row;;) {
    STOKER_ASSIGN_OR_RETURN(const bool more, rows.next(row));
    if (!more) return {};
    STOKER_RETURN_IF_ERROR(on_line(row));
  }
}

LineLocation LineLocation::of(const TextLine& row) {
  return {.offset = row.offset, .line = row.line, .bytes = row.text.size()};
}

LineLocation LineLocation::of_numbers(std::span<const uint64_t> numbers) {
  return {.offset = numbers[0],
          .line = numbers[1] >> kBytesBits,
          .bytes = numbers[1] & ((uint64_t{1} << kBytesBits) - 1)};
}

std::array<uint64_t, LineLocation::kWidth> LineLocation::to_numbers() const {
  constexpr uint64_t kLastLine = (uint64_t{1} << (64 - kBytesBits)) - 1;
  return {offset, std::min(line, kLastLine) << kBytesBits | bytes};
}

std::string line_location_text(uint64_t line) { return "line " + std::to_string(line); }

config::RecordConfig with_shape(config::RecordConfig record) {
  if (record.input_shape.empty() && !record.fields.input.empty())
    record.input_shape = {static_cast<int64_t>(record.fields.input.size())};
  return record;
}

}  // namespace stoker::data::format
