#include "shared/metrics/event_message.h"

#include <cstring>

#include "shared/base/crc32c.h"
#include "shared/metrics/protobuf_message.h"
#include "shared/metrics/utf8.h"

namespace stoker::metrics {
namespace {

using Message = ProtobufMessage;

// Event
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kGraphDef = 4, kSummary = 5,
                   kSessionLog = 7;
// SessionLog
constexpr uint32_t kStatus = 1;
constexpr uint64_t kStart = 1;
// Summary, Summary.Value
constexpr uint32_t kValue = 1;
constexpr uint32_t kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8,
                   kMetadata = 9;
// Summary.Image
constexpr uint32_t kHeight = 1, kWidth = 2, kColorSpace = 3, kEncodedImage = 4;
constexpr uint64_t kRgb = 3;
// HistogramProto
constexpr uint32_t kMin = 1, kMax = 2, kNumber = 3, kSum = 4, kSumOfSquares = 5, kLimits = 6,
                   kCounts = 7;
// SummaryMetadata, SummaryMetadata.PluginData
constexpr uint32_t kPluginData = 1, kPluginName = 1, kContent = 2;
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

std::string encode_histogram(double wall, uint64_t step, std::string_view tag,
                             const TensorSummary& summary) {
  const auto finite = static_cast<double>(summary.count - summary.nan - summary.inf);
  std::vector<double> limits, counts;
  // TensorBoard takes a bucket to begin where the one before ends, and the first at the smallest
  // number. Empty ones in a row are written as one: around zero there are hundreds.
  for (const TensorSummary::Bucket& bucket : summary.buckets) {
    if (bucket.count == 0 && !counts.empty() && counts.back() == 0) {
      limits.back() = bucket.limit;
      continue;
    }
    limits.push_back(bucket.limit);
    counts.push_back(bucket.count);
  }
  Message histogram;
  histogram.fixed64(kMin, summary.min).fixed64(kMax, summary.max).fixed64(kNumber, finite);
  histogram.fixed64(kSum, summary.mean * finite);
  histogram.fixed64(kSumOfSquares, summary.norm * summary.norm);
  histogram.doubles(kLimits, limits).doubles(kCounts, counts);
  Message one;
  one.bytes(kTag, valid_utf8(tag)).message(kHistogram, histogram);
  return event_of(wall, step).message(kSummary, Message().message(kValue, one)).encoded();
}

std::string encode_graph_def(double wall, std::string_view graph) {
  return event_of(wall, 0).bytes(kGraphDef, graph).encoded();
}

std::string encode_plugin_content(double wall, std::string_view tag, std::string_view plugin,
                                  std::string_view content) {
  Message metadata;
  metadata.message(kPluginData, Message().bytes(kPluginName, plugin).bytes(kContent, content));
  Message one;
  one.bytes(kTag, tag).message(kMetadata, metadata);
  return event_of(wall, 0).message(kSummary, Message().message(kValue, one)).encoded();
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
