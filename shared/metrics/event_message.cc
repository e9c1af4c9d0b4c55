#include "shared/metrics/event_message.h"

#include <bit>
#include <cstring>

#include "shared/base/crc32c.h"
#include "shared/metrics/utf8.h"

namespace stoker::metrics {
namespace {

static_assert(std::endian::native == std::endian::little,
              "protobuf and TFRecord are little endian");

// A protobuf message under construction. Each field is a key (number and wire type) and a value.
class Message {
 public:
  Message& varint(uint32_t field, uint64_t value) {
    put_varint(field << 3 | 0);
    put_varint(value);
    return *this;
  }
  Message& fixed64(uint32_t field, double value) {
    put_varint(field << 3 | 1);
    put_raw(value);
    return *this;
  }
  Message& fixed32(uint32_t field, float value) {
    put_varint(field << 3 | 5);
    put_raw(value);
    return *this;
  }
  Message& bytes(uint32_t field, std::string_view value) {
    put_varint(field << 3 | 2);
    put_varint(value.size());
    out_ += value;
    return *this;
  }
  Message& message(uint32_t field, const Message& value) { return bytes(field, value.out_); }
  const std::string& encoded() const { return out_; }

 private:
  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  template <typename T>
  void put_raw(T value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    out_.append(raw, sizeof raw);
  }
  std::string out_;
};

// Event
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
// SessionLog
constexpr uint32_t kStatus = 1;
constexpr uint64_t kStart = 1;
// Summary, Summary.Value
constexpr uint32_t kValue = 1;
constexpr uint32_t kTag = 1, kSimpleValue = 2, kImage = 4, kTensor = 8, kMetadata = 9;
// Summary.Image
constexpr uint32_t kHeight = 1, kWidth = 2, kColorSpace = 3, kEncodedImage = 4;
constexpr uint64_t kRgb = 3;
// SummaryMetadata, SummaryMetadata.PluginData
constexpr uint32_t kPluginData = 1, kPluginName = 1;
// TensorProto, TensorShapeProto, TensorShapeProto.Dim
constexpr uint32_t kDtype = 1, kShape = 2, kStringVal = 8, kDim = 2, kDimSize = 1;
constexpr uint64_t kDtString = 7;

Message event_of(double wall, uint64_t step) {
  Message event;
  event.fixed64(kWallTime, wall).varint(kStep, step);
  return event;
}

}  // namespace

std::string encode_file_version(double wall) {
  return Message().fixed64(kWallTime, wall).bytes(kFileVersion, "brain.Event:2").encoded();
}

std::string encode_session_start(double wall, uint64_t step) {
  return event_of(wall, step).message(kSessionLog, Message().varint(kStatus, kStart)).encoded();
}

std::string encode_scalar(double wall, uint64_t step, std::string_view tag, float value) {
  Message one;
  one.bytes(kTag, valid_utf8(tag)).fixed32(kSimpleValue, value);
  return event_of(wall, step).message(kSummary, Message().message(kValue, one)).encoded();
}

std::string encode_text(double wall, uint64_t step, std::string_view tag, std::string_view text) {
  Message shape;
  shape.message(kDim, Message().varint(kDimSize, 1));
  Message tensor;
  tensor.varint(kDtype, kDtString).message(kShape, shape).bytes(kStringVal, valid_utf8(text));
  Message metadata;
  metadata.message(kPluginData, Message().bytes(kPluginName, "text"));
  Message one;
  one.bytes(kTag, valid_utf8(tag)).message(kTensor, tensor).message(kMetadata, metadata);
  return event_of(wall, step).message(kSummary, Message().message(kValue, one)).encoded();
}

std::string encode_image(double wall, uint64_t step, std::string_view tag, std::string_view png,
                         uint32_t width, uint32_t height) {
  Message image;
  image.varint(kHeight, height).varint(kWidth, width).varint(kColorSpace, kRgb);
  image.bytes(kEncodedImage, png);
  Message one;
  one.bytes(kTag, valid_utf8(tag)).message(kImage, image);
  return event_of(wall, step).message(kSummary, Message().message(kValue, one)).encoded();
}

std::string frame_record(std::string_view data) {
  const auto put = [](std::string& out, auto number) {
    char raw[sizeof number];
    std::memcpy(raw, &number, sizeof number);
    out.append(raw, sizeof raw);
  };
  std::string frame;
  frame.reserve(data.size() + 16);
  put(frame, static_cast<uint64_t>(data.size()));
  put(frame, masked_crc32c(frame));
  frame += data;
  put(frame, masked_crc32c(data));
  return frame;
}

}  // namespace stoker::metrics
