#include "shared/data/stream/record_stream.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "shared/config/dataset_config.h"
#include "shared/data/file_kind.h"
#include "shared/data/format/tar_index.h"
#include "shared/data/format/tar_reader.h"
#include "shared/data/format/text_records.h"
#include "shared/data/format/tfrecord_index.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::stream {
namespace {

Status corrupt(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

Status too_large(uint64_t bytes) {
  return corrupt("has " + std::to_string(bytes) + " bytes, more than the limit of " +
                 std::to_string(kMaxRecordBytes));
}

}  // namespace

// Finds the records of one kind of framing.
class RecordStream::Framer {
 public:
  Framer(StreamBuffer& buffer, uint64_t offset) : buffer_(buffer), at_(offset) {}
  virtual ~Framer() = default;

  // The next record; false at the end. Sets the offset and the bytes, and moves offset() to its end.
  virtual Result<bool> next(StreamRecord& record) = 0;
  // Continues at a record that starts at `offset` or after it; not 0.
  virtual void seek(uint64_t offset) { at_ = offset; }
  uint64_t offset() const { return at_; }
  uint64_t number = 0;  // of the record that next() finds
  bool can_continue = false;
  bool is_incomplete = false;
  uint64_t dropped_bytes = 0;

 protected:
  Status truncated() {
    is_incomplete = true;
    return wrong(corrupt("the stream ends in it"));
  }
  // Adds the location to an error of the record that starts at offset(). Errors of the input have
  // their own.
  Status wrong(const Status& status) const {
    if (buffer_.has_failed()) return status;
    return status.with_context(buffer_.name() + ": record " + std::to_string(number) +
                               " at offset " + std::to_string(at_));
  }

  StreamBuffer& buffer_;
  uint64_t at_;
};

class RecordStream::LineFramer final : public Framer {
 public:
  LineFramer(StreamBuffer& buffer, uint64_t offset, bool needs_end)
      : Framer(buffer, offset),
        needs_end_(needs_end),
        rows_(buffer, "", format::end_of_line, kMaxRecordBytes, offset) {}

  Result<bool> next(StreamRecord& record) override {
    format::TextLine row;
    const auto more = rows_.next(row);
    if (!more) {
      at_ = rows_.offset();
      return wrong(more.status());
    }
    if (!*more) return false;
    at_ = record.at.offset = row.offset;
    // Only the last line can lack its end. Then a complete object is accepted.
    if (!row.text.ends_with('\n') && (needs_end_ || !record::trimmed(row.text).ends_with('}')))
      return truncated();
    at_ += row.text.size();
    record.bytes = std::as_bytes(std::span(row.text));
    return true;
  }

  void seek(uint64_t offset) override {
    Framer::seek(offset);
    rows_.seek(offset);
  }

 private:
  const bool needs_end_;
  format::RowReader rows_;
};

class RecordStream::BlockFramer final : public Framer {
 public:
  BlockFramer(StreamBuffer& buffer, uint64_t offset, const Framing& framing)
      : Framer(buffer, offset), framing_(framing), begin_(offset) {}

  Result<bool> next(StreamRecord& record) override {
    buffer_.discard_before(at_);
    record.at.offset = at_;
    STOKER_ASSIGN_OR_RETURN(record.bytes, buffer_.peek(at_, framing_.block_bytes));
    if (record.bytes.size() < framing_.block_bytes) return end(record.bytes.size());
    at_ += framing_.block_bytes - framing_.token_bytes;
    return true;
  }

  void seek(uint64_t offset) override { at_ = begin_ = offset; }

 private:
  Result<bool> end(uint64_t left) {
    if (left % framing_.token_bytes != 0 && !framing_.needs_ends) {
      at_ += left / framing_.token_bytes * framing_.token_bytes;
      return wrong(corrupt("the stream ends in a token of " + std::to_string(framing_.token_bytes) +
                           " bytes; is the dtype right?"));
    }
    // After the first block, one token was the last of the block before.
    const bool has_shared_token = at_ > begin_ || begin_ > 0;
    dropped_bytes = left - std::min(left, has_shared_token ? framing_.token_bytes : 0);
    return false;
  }

  const Framing framing_;
  uint64_t begin_;  // where reading began
};

class RecordStream::TfrecordFramer final : public Framer {
 public:
  using Framer::Framer;

  Result<bool> next(StreamRecord& record) override {
    using format::kFrameHead, format::kFrameTail;
    buffer_.discard_before(at_);
    record.at.offset = at_;
    STOKER_ASSIGN_OR_RETURN(const auto head, buffer_.peek(at_, kFrameHead));
    if (head.empty()) return false;
    if (at_ == 0) STOKER_RETURN_IF_ERROR(wrong(reject_packed(head)));
    if (head.size() < kFrameHead) return truncated();
    const auto length = format::frame_length(head);
    if (!length) return wrong(no_frame(length.status()));
    if (*length > kMaxRecordBytes) return wrong(too_large(*length));
    const uint64_t bytes = kFrameHead + *length + kFrameTail;
    STOKER_ASSIGN_OR_RETURN(const auto frame, buffer_.peek(at_, bytes));
    if (frame.size() < bytes) return truncated();
    const auto data = format::framed_data(frame);
    const Status status = wrong(data.status());
    at_ += bytes;
    can_continue = true;  // after an error, too: the length was right
    STOKER_RETURN_IF_ERROR(status);
    record.bytes = *data;
    return true;
  }

 private:
  static Status no_frame(const Status& status) {
    return corrupt(status.message() +
                   ": something that is no record is here, or the stream is not of TFRecords");
  }
};

class RecordStream::TarFramer final : public Framer {
 public:
  TarFramer(StreamBuffer& buffer, uint64_t offset, bool needs_end)
      : Framer(buffer, offset),
        needs_end_(needs_end),
        tar_(buffer, offset, format::TarReader::AfterEnd::kArchives),
        has_begun_(offset > 0) {}

  Result<bool> next(StreamRecord& record) override {
    STOKER_RETURN_IF_ERROR(check_begin());
    std::optional<Sample> sample = std::exchange(next_sample_, std::nullopt);
    if (sample) buffer_.discard_before(sample->begin);
    // A sample ends with its archive, or where the next one begins.
    while (!has_ended_ && !next_sample_ && !(sample && is_between_archives_))
      STOKER_RETURN_IF_ERROR(read_member(sample));
    if (!sample) {
      at_ = std::min(at_, buffer_.size());  // the padding of the last member can be missing
      return false;
    }
    record.at.offset = at_ = sample->begin;
    if (needs_end_ && has_ended_) return truncated();
    if (sample->key.size() > format::kMaxTarKey)
      return wrong(corrupt("its key has " + std::to_string(sample->key.size()) + " bytes"));
    at_ = std::min(sample->end, buffer_.size());  // as above
    STOKER_ASSIGN_OR_RETURN(record.bytes, buffer_.peek(sample->begin, sample->end - sample->begin));
    return true;
  }

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

  Status check_begin() {
    if (std::exchange(has_begun_, true)) return {};
    STOKER_ASSIGN_OR_RETURN(const auto first, buffer_.peek(0, format::kTarBlock));
    return wrong(reject_packed(first));
  }

  // Adds the next member to `maybe_sample`, or starts a sample with it. If there is already another
  // one, starts next_sample_.
  Status read_member(std::optional<Sample>& maybe_sample) {
    const uint64_t begin = tar_.offset();
    at_ = maybe_sample ? maybe_sample->begin : begin;
    if (begin - at_ > kMaxRecordBytes) return wrong(too_large(begin - at_));
    buffer_.discard_before(at_);
    format::TarMember member;
    const auto more = tar_.next(member);
    is_incomplete = !more && buffer_.size() != files::ByteSource::kUnknownSize;
    if (!more) return wrong(more.status());
    is_between_archives_ = !*more && tar_.has_end_block();
    has_ended_ = !*more && !tar_.has_end_block();
    if (!*more || !(member.is_file || member.is_link)) return {};
    const auto name = format::split_tar_name(member.name);
    if (!name) return {};
    if (maybe_sample && maybe_sample->key == name->key) {
      maybe_sample->end = tar_.offset();
      if (++maybe_sample->members <= format::kMaxTarMembers) return {};
      return wrong(corrupt("has more than " + std::to_string(format::kMaxTarMembers) + " members"));
    }
    std::optional<Sample>& added = maybe_sample ? next_sample_ : maybe_sample;
    added = Sample{.key = std::string(name->key), .begin = member.begin, .end = tar_.offset()};
    return {};
  }

  const bool needs_end_;
  format::TarReader tar_;
  std::optional<Sample> next_sample_;  // its first member was read
  bool has_begun_;
  bool is_between_archives_ = false;  // the last one has ended with a zero block
  bool has_ended_ = false;
};

std::unique_ptr<RecordStream::Framer> RecordStream::make_framer(const Framing& framing,
                                                                StreamBuffer& buffer,
                                                                uint64_t offset) {
  switch (framing.kind) {
    case Framing::Kind::kLines:
      return std::make_unique<LineFramer>(buffer, offset, framing.needs_ends);
    case Framing::Kind::kBlocks:
      return std::make_unique<BlockFramer>(buffer, offset, framing);
    case Framing::Kind::kTfrecord:
      return std::make_unique<TfrecordFramer>(buffer, offset);
    case Framing::Kind::kTar:
      return std::make_unique<TarFramer>(buffer, offset, framing.needs_ends);
  }
  return nullptr;
}

RecordStream::RecordStream(const Framing& framing, std::unique_ptr<ByteInput> input,
                           StreamPosition start)
    : buffer_(std::move(input), start.offset),
      framer_(make_framer(framing, buffer_, start.offset)),
      position_(start) {}
RecordStream::~RecordStream() = default;

Result<bool> RecordStream::next(StreamRecord& record, const std::stop_token& stop) {
  buffer_.set_stop(stop);
  record.at.record = framer_->number = position_.record;
  framer_->can_continue = framer_->is_incomplete = false;
  const auto more = framer_->next(record);
  position_.offset = framer_->offset();
  if (more ? *more : framer_->can_continue) ++position_.record;
  return more;
}

Status RecordStream::skip_to(const StreamPosition& to, const std::stop_token& stop) {
  if (to.offset < position_.offset)
    return Status(StatusCode::kInvalidArgument, buffer_.name() + ": cannot go back from offset " +
                                                    std::to_string(position_.offset) + " to " +
                                                    std::to_string(to.offset));
  if (to.offset > position_.offset) {
    buffer_.set_stop(stop);
    STOKER_RETURN_IF_ERROR(buffer_.skip_to(to.offset));
    framer_->seek(to.offset);
  }
  position_ = to;
  return {};
}

bool RecordStream::can_continue() const { return framer_->can_continue; }
bool RecordStream::is_incomplete() const { return framer_->is_incomplete; }
uint64_t RecordStream::dropped_bytes() const { return framer_->dropped_bytes; }

namespace {

Result<Framing> blocks_of(const DatasetRequest& request, uint64_t token_bytes) {
  STOKER_ASSIGN_OR_RETURN(const uint64_t block_size, block_size_of(request));
  const Framing framing{.kind = Framing::Kind::kBlocks,
                        .block_bytes = (block_size + 1) * token_bytes,
                        .token_bytes = token_bytes};
  if (framing.block_bytes <= kMaxRecordBytes) return framing;
  return request.config_error(
      "sequence.block_size",
      "a block of a stream has at most " + std::to_string(kMaxRecordBytes) + " bytes");
}

}  // namespace

bool finds_records(config::DatasetFormat format) {
  return format == config::DatasetFormat::kJsonl || format == config::DatasetFormat::kText;
}

Result<Framing> framing_of(const DatasetRequest& request) {
  switch (request.config.format()) {
    case config::DatasetFormat::kText:
      return blocks_of(request, 1);
    case config::DatasetFormat::kTokens:
      return blocks_of(request, token_bytes(request.as<config::TokensDataset>().dtype));
    case config::DatasetFormat::kTfrecord:
      return Framing{.kind = Framing::Kind::kTfrecord};
    case config::DatasetFormat::kWebdataset:
      return Framing{.kind = Framing::Kind::kTar};
    case config::DatasetFormat::kJsonl:
      return Framing{.kind = Framing::Kind::kLines};
    case config::DatasetFormat::kImageFolder:
    case config::DatasetFormat::kImageList:
    case config::DatasetFormat::kIdx:
    case config::DatasetFormat::kCifar10:
    case config::DatasetFormat::kCifar100:
    case config::DatasetFormat::kNumpy:
    case config::DatasetFormat::kCsv:
    case config::DatasetFormat::kSynthetic:
      break;
  }
  return request.config_error("stream",
                              "needs format text, tokens, tfrecord, webdataset or jsonl; the "
                              "others cannot be read without an index");
}

}  // namespace stoker::data::stream
