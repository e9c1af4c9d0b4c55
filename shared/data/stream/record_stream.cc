#include "shared/data/stream/record_stream.h"

#include <string>
#include <utility>

#include "shared/config/dataset_config.h"
#include "shared/data/format/framed_records.h"

namespace stoker::data::stream {
namespace {

std::unique_ptr<format::Framer> make_framer(Framing framing, StreamBuffer& buffer,
                                            uint64_t offset) {
  framing.max_bytes = kMaxRecordBytes;
  return framing.make_framer(buffer, framing, offset);
}

}  // namespace

RecordStream::RecordStream(const Framing& framing, std::unique_ptr<ByteInput> input,
                           StreamPosition start)
    : buffer_(std::move(input), start.offset),
      framer_(make_framer(framing, buffer_, start.offset)),
      position_(start) {}

Result<bool> RecordStream::next(StreamRecord& record, const std::stop_token& stop) {
  buffer_.set_stop(stop);
  buffer_.discard_before(framer_->offset());
  record.at.record = position_.record;
  const auto more = find_next(record);
  position_.offset = framer_->offset();
  if (more ? *more : can_continue()) ++position_.record;
  return more;
}

Result<bool> RecordStream::find_next(StreamRecord& record) {
  format::Frame frame;
  const auto more = framer_->next(frame);
  if (!more) return wrong(framer_->offset(), more.status());
  if (!*more) return false;
  record.at.offset = frame.offset;
  const auto content = framer_->content(frame);
  if (!content) return wrong(frame.offset, content.status());
  record.bytes = *content;
  return true;
}

Status RecordStream::wrong(uint64_t offset, const Status& status) const {
  if (buffer_.has_failed()) return status;
  return status.with_context(buffer_.name() + ": record " + std::to_string(position_.record) +
                             " at offset " + std::to_string(offset));
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

namespace {

Result<Framing> blocks_of(const DatasetRequest& request, uint64_t token_bytes) {
  STOKER_ASSIGN_OR_RETURN(const uint64_t block_size, block_size_of(request));
  const Framing framing = format::block_framing((block_size + 1) * token_bytes, token_bytes);
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
      return format::framed_tfrecord().framing;
    case config::DatasetFormat::kWebdataset:
      return format::tar_framing();
    case config::DatasetFormat::kJsonl:
      return format::framed_jsonl().framing;
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
