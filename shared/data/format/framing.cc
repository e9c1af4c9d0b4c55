#include "shared/data/format/framing.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "shared/base/hash.h"
#include "shared/data/file_kind.h"
#include "shared/data/format/tar_index.h"
#include "shared/data/format/tar_reader.h"
#include "shared/data/format/text_records.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::format {
namespace {

constexpr uint64_t kMaxTfrecordBytes = uint64_t{256} << 20;  // of the data of a record

}  // namespace

Status Framer::cut_off() {
  is_incomplete_ = true;
  return corrupt_record("is cut off by the end of the file or stream");
}

Status Framer::too_large(uint64_t bytes) const {
  return corrupt_record("has " + std::to_string(bytes) + " bytes, more than the limit of " +
                        std::to_string(framing_.max_bytes));
}

Result<std::span<const std::byte>> Framer::content(const Frame& frame) {
  const auto bytes = source_.peek(frame.offset, frame.bytes);
  if (!bytes || bytes->size() < frame.bytes) at_ = frame.offset;
  if (!bytes) return bytes.status();
  if (bytes->size() < frame.bytes) return cut_off();
  auto content = framing_.content(*bytes);
  can_continue_ = !content;  // the frame has the start of the next record
  return content;
}

// ---- Lines

namespace {

class LineFramer final : public Framer {
 public:
  LineFramer(files::ByteSource& source, const Framing& framing, uint64_t begin)
      : Framer(source, framing, begin),
        is_stream_(source.size() == files::ByteSource::kUnknownSize),
        rows_(source, "", end_of_line, framing.max_bytes, begin) {}

  Result<std::span<const std::byte>> content(const Frame&) override {
    return std::as_bytes(std::span(row_.text));
  }
  void seek(uint64_t offset) override {
    Framer::seek(offset);
    rows_.seek(offset);
  }

 private:
  Result<bool> find_next(Frame& frame) override {
    const auto more = rows_.next(row_);
    if (!more) {
      at_ = rows_.offset();
      frame.line = rows_.line();
    }
    if (!more || !*more) return more;
    at_ = row_.offset;
    frame = {.offset = row_.offset, .bytes = row_.text.size(), .line = row_.line};
    if (is_stream_ && !has_end()) return cut_off();
    at_ += frame.bytes;
    return true;
  }

  // Only the last line can lack its end. A stream that ends there can have been cut, unless the line has a
  // complete object. A file is as it was written: what its last line is, the fields find out.
  bool has_end() const {
    return row_.text.ends_with('\n') ||
           (!framing_.needs_ends && record::trimmed(row_.text).ends_with('}'));
  }

  const bool is_stream_;
  RowReader rows_;
  TextLine row_;
};

}  // namespace

Framing line_framing() {
  return {
      .make_framer = make_framer<LineFramer>, .max_bytes = kMaxTextLineBytes, .has_lines = true};
}

// ---- Blocks

namespace {

class BlockFramer final : public Framer {
 public:
  BlockFramer(files::ByteSource& source, const Framing& framing, uint64_t begin)
      : Framer(source, framing, begin), begin_(begin) {}

  void seek(uint64_t offset) override { at_ = begin_ = offset; }

 private:
  Result<bool> find_next(Frame& frame) override {
    STOKER_ASSIGN_OR_RETURN(const auto bytes, source_.peek(at_, framing_.block_bytes));
    if (bytes.size() < framing_.block_bytes) return end(bytes.size());
    frame = {.offset = at_, .bytes = framing_.block_bytes};
    at_ += framing_.block_bytes - framing_.token_bytes;
    return true;
  }

  Result<bool> end(uint64_t left) {
    if (left % framing_.token_bytes != 0 && !framing_.needs_ends) {
      at_ += left / framing_.token_bytes * framing_.token_bytes;
      return corrupt_record("the stream ends in a token of " +
                            std::to_string(framing_.token_bytes) + " bytes; is the dtype right?");
    }
    // After the first block, one token was the last of the block before.
    const bool has_shared_token = at_ > begin_ || begin_ > 0;
    dropped_bytes_ = left - std::min(left, has_shared_token ? framing_.token_bytes : 0);
    return false;
  }

  uint64_t begin_;  // where reading began
};

}  // namespace

Framing block_framing(uint64_t block_bytes, uint64_t token_bytes) {
  return {.make_framer = make_framer<BlockFramer>,
          .max_bytes = block_bytes,
          .block_bytes = block_bytes,
          .token_bytes = token_bytes};
}

// ---- TFRecords

namespace {

static_assert(std::endian::native == std::endian::little, "frames are read as they lie");

constexpr size_t kLengthBytes = 8;

template <typename T>
T number_at(std::span<const std::byte> bytes, size_t at) {
  T number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

// Length of the data. `head`: the first kFrameHead bytes of the frame.
Result<uint64_t> frame_length(std::span<const std::byte> head) {
  assert(head.size() >= kFrameHead);
  if (number_at<uint32_t>(head, kLengthBytes) != masked_crc32c(head.first(kLengthBytes)))
    return corrupt_record("the checksum of its length is wrong");
  return number_at<uint64_t>(head, 0);
}

class TfrecordFramer final : public Framer {
 public:
  using Framer::Framer;

 private:
  Result<bool> find_next(Frame& frame) override {
    STOKER_ASSIGN_OR_RETURN(const auto head, source_.peek(at_, kFrameHead));
    if (head.empty()) return false;
    if (at_ == 0) STOKER_RETURN_IF_ERROR(reject_other_kind(head, "a TFRecord file"));
    if (head.size() < kFrameHead) return cut_off();
    const auto length = frame_length(head);
    if (!length) return no_frame(length.status());
    if (*length > framing_.max_bytes) return too_large(*length);
    frame = {.offset = at_, .bytes = kFrameHead + *length + kFrameTail};
    if (frame.bytes > source_.size() - at_) return cut_off();
    at_ += frame.bytes;
    return true;
  }

  Status no_frame(const Status& status) const {
    return corrupt_record(status.message() +
                          (at_ > 0
                               ? ": something that is no record is here"
                               : ": not TFRecords, or packed ones; narrow the glob, or write them "
                                 "without a compression"));
  }
};

}  // namespace

Result<std::span<const std::byte>> framed_data(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHead + kFrameTail) return corrupt_record("truncated");
  STOKER_ASSIGN_OR_RETURN(const uint64_t length, frame_length(bytes));
  if (length > bytes.size() - kFrameHead - kFrameTail) return corrupt_record("longer than it was");
  const auto data = bytes.subspan(kFrameHead, length);
  if (number_at<uint32_t>(bytes, kFrameHead + length) != masked_crc32c(data))
    return corrupt_record("the checksum of its data is wrong; the file is corrupt");
  return data;
}

Framing tfrecord_framing() {
  return {.make_framer = make_framer<TfrecordFramer>,
          .unwrap = framed_data,
          .wrapper_bytes = kFrameHead + kFrameTail,
          .max_bytes = kMaxTfrecordBytes};
}

// ---- Tar

namespace {

class TarFramer final : public Framer {
 public:
  TarFramer(files::ByteSource& source, const Framing& framing, uint64_t begin)
      : Framer(source, framing, begin),
        tar_(source, begin, TarReader::AfterEnd::kArchives),
        has_begun_(begin > 0) {}

  void seek(uint64_t offset) override {
    Framer::seek(offset);
    tar_.seek(offset);
    next_sample_.reset();
    has_begun_ = true;
    is_between_archives_ = has_ended_ = false;
  }

 private:
  struct Sample {
    std::string key;
    uint64_t begin = 0;  // of its first header
    uint64_t end = 0;    // of its last member
    size_t members = 1;
  };

  Result<bool> find_next(Frame& frame) override {
    STOKER_RETURN_IF_ERROR(check_begin());
    std::optional<Sample> sample = std::exchange(next_sample_, std::nullopt);
    if (sample) source_.discard_before(sample->begin);
    // A sample ends with its archive, or where the next one begins.
    while (!has_ended_ && !next_sample_ && !(sample && is_between_archives_))
      STOKER_RETURN_IF_ERROR(read_member(sample));
    if (!sample) {
      at_ = std::min(at_, source_.size());  // the padding of the last member can be missing
      return false;
    }
    at_ = sample->begin;
    if (framing_.needs_ends && has_ended_) return cut_off();
    if (sample->key.size() > kMaxTarKey)
      return corrupt_record("its key has " + std::to_string(sample->key.size()) + " bytes");
    at_ = std::min(sample->end, source_.size());  // as above
    frame = {.offset = sample->begin, .bytes = at_ - sample->begin};
    return true;
  }

  Status check_begin() {
    if (std::exchange(has_begun_, true)) return {};
    STOKER_ASSIGN_OR_RETURN(const auto first, source_.peek(0, kTarBlock));
    return reject_other_kind(first, "a tar archive");
  }

  // Adds the next member to `maybe_sample`, or starts a sample with it. If there is already another
  // one, starts next_sample_.
  Status read_member(std::optional<Sample>& maybe_sample) {
    const uint64_t begin = tar_.offset();
    at_ = maybe_sample ? maybe_sample->begin : begin;
    if (begin - at_ > framing_.max_bytes) return too_large(begin - at_);
    source_.discard_before(at_);
    TarMember member;
    const auto more = tar_.next(member);
    is_incomplete_ = !more && source_.size() != files::ByteSource::kUnknownSize;
    if (!more) return more.status();
    is_between_archives_ = !*more && tar_.has_end_block();
    has_ended_ = !*more && !tar_.has_end_block();
    if (!*more || !(member.is_file || member.is_link)) return {};
    const auto name = split_tar_name(member.name);
    if (!name) return {};
    if (maybe_sample && maybe_sample->key == name->key) {
      maybe_sample->end = tar_.offset();
      if (++maybe_sample->members <= kMaxTarMembers) return {};
      return corrupt_record("has more than " + std::to_string(kMaxTarMembers) + " members");
    }
    std::optional<Sample>& added = maybe_sample ? next_sample_ : maybe_sample;
    added = Sample{.key = std::string(name->key), .begin = member.begin, .end = tar_.offset()};
    return {};
  }

  TarReader tar_;
  std::optional<Sample> next_sample_;  // its first member was read
  bool has_begun_;
  bool is_between_archives_ = false;  // the last one has ended with a zero block
  bool has_ended_ = false;
};

}  // namespace

Framing tar_framing() {
  return {.make_framer = make_framer<TarFramer>, .max_bytes = kMaxTarMember};
}

}  // namespace stoker::data::format
