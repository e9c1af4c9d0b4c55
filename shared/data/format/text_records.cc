#include "shared/data/format/text_records.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "shared/data/dataset_files.h"

namespace stoker::data::format {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";

bool is_utf16(std::string_view start) {
  return start.starts_with("\xff\xfe") || start.starts_with("\xfe\xff");
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

class RowScan {
 public:
  RowScan(const files::FileReader& reader, const files::FileTable& files, size_t file,
          const LineEnd& line_end)
      : reader_(reader), files_(files), file_(file), row_end_(line_end) {}

  Status run(const std::function<Status(const TextLine&)>& on_line) {
    STOKER_RETURN_IF_ERROR(refill());
    if (is_utf16(rest()))
      return Status(StatusCode::kCorrupt, files_.path(file_) + ": is UTF-16; convert it to UTF-8");
    STOKER_RETURN_IF_ERROR(
        reject_packed(std::as_bytes(std::span(rest()))).with_context(files_.path(file_)));
    if (rest().starts_with(kUtf8Mark)) begin_ += kUtf8Mark.size();
    // A chunk can end exactly at the end of a row, so an empty buffer does not mean the end of the
    // file.
    while (!rest().empty() || !at_end()) {
      const size_t bytes = rest().empty() ? 0 : row_end_(rest());
      if (bytes == 0 && !at_end()) {
        STOKER_RETURN_IF_ERROR(refill());
        continue;
      }
      STOKER_RETURN_IF_ERROR(take_row(bytes == 0 ? rest().size() : bytes, on_line));
    }
    return {};
  }

 private:
  std::string_view rest() const { return {buffer_.data() + begin_, end_ - begin_}; }
  bool at_end() const { return read_ == files_.stamp(file_).size; }

  Status too_long() const {
    return Status(StatusCode::kCorrupt,
                  files_.path(file_) + ":" + std::to_string(line_) + ": a row of more than " +
                      std::to_string(kMaxTextLineBytes) + " bytes; is a quote never closed?");
  }

  // Keeps the unprocessed bytes and reads more. Grows the buffer if a row does not fit.
  Status refill() {
    const size_t buffered = end_ - begin_;
    if (buffered > kMaxTextLineBytes) return too_long();
    if (buffered > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, buffered);
    const uint64_t left = files_.stamp(file_).size - read_;
    const size_t wanted = std::min<uint64_t>(left, std::max(kChunkBytes, buffered));
    if (buffer_.size() < buffered + wanted) buffer_.resize(buffered + wanted);
    begin_ = 0;
    end_ = buffered + wanted;
    const std::span<char> fresh(buffer_.data() + buffered, wanted);
    STOKER_RETURN_IF_ERROR(reader_.read(file_, read_, std::as_writable_bytes(fresh)));
    read_ += wanted;
    return {};
  }

  Status take_row(size_t bytes, const std::function<Status(const TextLine&)>& on_line) {
    if (bytes > kMaxTextLineBytes) return too_long();
    const std::string_view text = rest().substr(0, bytes);
    if (!is_blank(text))
      STOKER_RETURN_IF_ERROR(
          on_line({.text = text, .offset = read_ - (end_ - begin_), .line = line_}));
    line_ += static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
    begin_ += bytes;
    return {};
  }

  const files::FileReader& reader_;
  const files::FileTable& files_;
  const size_t file_;
  const LineEnd& row_end_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // start of the unprocessed bytes in buffer_
  size_t end_ = 0;
  uint64_t read_ = 0;  // bytes read from the file
  uint64_t line_ = 1;
};

}  // namespace

size_t end_of_line(std::string_view bytes) {
  const void* const found = std::memchr(bytes.data(), '\n', bytes.size());
  if (found == nullptr) return 0;
  return static_cast<size_t>(static_cast<const char*>(found) - bytes.data()) + 1;
}

Status scan_lines(const files::FileReader& reader, const files::FileTable& files, size_t file,
                  const LineEnd& line_end, const std::function<Status(const TextLine&)>& on_line) {
  if (files.stamp(file).size == 0) return {};
  return RowScan(reader, files, file, line_end).run(on_line);
}

namespace {

constexpr uint64_t kLastLine = (uint64_t{1} << (64 - LineLocation::kBytesBits)) - 1;

}  // namespace

LineLocation LineLocation::of(const TextLine& row) {
  return {.offset = row.offset, .line = std::min(row.line, kLastLine), .bytes = row.text.size()};
}

LineLocation LineLocation::of_numbers(std::span<const uint64_t> numbers) {
  return {.offset = numbers[0],
          .line = numbers[1] >> kBytesBits,
          .bytes = numbers[1] & ((uint64_t{1} << kBytesBits) - 1)};
}

std::array<uint64_t, LineLocation::kWidth> LineLocation::to_numbers() const {
  return {offset, line << kBytesBits | bytes};
}

std::string line_location_text(uint64_t line) { return "line " + std::to_string(line); }

config::RecordConfig with_shape(config::RecordConfig record) {
  if (record.input_shape.empty() && !record.fields.input.empty())
    record.input_shape = {static_cast<int64_t>(record.fields.input.size())};
  return record;
}

Result<std::string_view> TextRecords::read_line(uint64_t record) const {
  thread_local std::vector<std::byte> bytes;
  const LineLocation where = location(record);
  bytes.resize(where.bytes);
  STOKER_RETURN_IF_ERROR(reader().read(table().shard_index(record), where.offset, bytes));
  return record::to_string_view(bytes);
}

void TextRecords::prefetch(uint64_t record, files::PrefetchedBytes& bytes) const {
  const LineLocation where = location(record);
  reader().prefetch(table().shard_index(record), where.offset, where.bytes, bytes);
}

}  // namespace stoker::data::format
