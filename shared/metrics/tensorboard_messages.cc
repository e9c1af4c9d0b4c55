#include "shared/metrics/tensorboard_messages.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "shared/base/hash.h"
#include "shared/base/utf8.h"

namespace stoker::metrics {
namespace {

static_assert(std::endian::native == std::endian::little, "protobuf is little endian");

// Encoder of a protobuf message. Each field is a key (its number and wire type) and a value.
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
  // A packed list.
  Message& doubles(uint32_t field, std::span<const double> values) {
    return bytes(field, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
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
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kGraphDef = 4, kSummary = 5,
                   kSessionLog = 7;
// SessionLog
constexpr uint32_t kStatus = 1;
constexpr uint64_t kStart = 1;
// Each entry of a map
constexpr uint32_t kMapKey = 1, kMapValue = 2;
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
constexpr uint32_t kPluginData = 1, kDescription = 3, kPluginName = 1, kContent = 2;
// TensorProto, TensorShapeProto, TensorShapeProto.Dim
constexpr uint32_t kDtype = 1, kShape = 2, kTensorContent = 4, kStringVal = 8, kDim = 2,
                   kDimSize = 1;
constexpr uint64_t kDtFloat = 1, kDtString = 7;
// PrCurvePluginData; its version is 0, which is not encoded
constexpr uint32_t kNumThresholds = 2;

Message make_event(double wall, uint64_t step) {
  Message event;
  event.fixed64(kWallTime, wall).varint(kStep, step);
  return event;
}

// A Summary.Value without its value.
Message summary_value(std::string_view tag) { return Message().bytes(kTag, valid_utf8(tag)); }

std::string encode_summary(double wall, uint64_t step, const Message& value) {
  return make_event(wall, step).message(kSummary, Message().message(kValue, value)).encoded();
}

}  // namespace

std::string encode_file_version(double wall) {
  return Message().fixed64(kWallTime, wall).bytes(kFileVersion, "brain.Event:2").encoded();
}

std::string encode_session_start(double wall, uint64_t step) {
  return make_event(wall, step).message(kSessionLog, Message().varint(kStatus, kStart)).encoded();
}

std::string encode_scalar(double wall, uint64_t step, std::string_view tag, float value,
                          std::string_view description) {
  Message scalar = summary_value(tag).fixed32(kSimpleValue, value);
  if (!description.empty())
    scalar.message(kMetadata, Message().bytes(kDescription, valid_utf8(description)));
  return encode_summary(wall, step, scalar);
}

std::string encode_text(double wall, uint64_t step, std::string_view tag, std::string_view text) {
  Message shape;
  shape.message(kDim, Message().varint(kDimSize, 1));
  Message tensor;
  tensor.varint(kDtype, kDtString).message(kShape, shape).bytes(kStringVal, valid_utf8(text));
  Message metadata;
  metadata.message(kPluginData, Message().bytes(kPluginName, "text"));
  return encode_summary(wall, step,
                        summary_value(tag).message(kTensor, tensor).message(kMetadata, metadata));
}

std::string encode_image(double wall, uint64_t step, std::string_view tag, std::string_view png,
                         uint32_t width, uint32_t height) {
  Message image;
  image.varint(kHeight, height).varint(kWidth, width).varint(kColorSpace, kRgb);
  image.bytes(kEncodedImage, png);
  return encode_summary(wall, step, summary_value(tag).message(kImage, image));
}

std::string encode_histogram(double wall, uint64_t step, std::string_view tag,
                             const TensorSummary& summary) {
  const auto finite = static_cast<double>(summary.count - summary.nan - summary.inf);
  std::vector<double> limits, counts;
  // In TensorBoard a bucket starts at the end of the previous one, and the first at the smallest
  // value. Consecutive empty buckets are merged; around zero there are hundreds.
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
  return encode_summary(wall, step, summary_value(tag).message(kHistogram, histogram));
}

std::string encode_pr_curve(double wall, uint64_t step, std::string_view tag,
                            std::span<const uint64_t> true_positives,
                            std::span<const uint64_t> false_positives) {
  const size_t count = std::min(true_positives.size(), false_positives.size());
  if (count == 0) return make_event(wall, step).encoded();
  const auto ratio = [](uint64_t part, uint64_t all) {
    return all == 0 ? 0.0F : static_cast<float>(part) / static_cast<float>(all);
  };
  constexpr size_t kRows = 6;
  std::vector<float> values(kRows * count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t tp = true_positives[i], fp = false_positives[i];
    const uint64_t positives = true_positives[0], negatives = false_positives[0];
    const auto cell = [&](size_t row) -> float& { return values[row * count + i]; };
    cell(0) = static_cast<float>(tp);
    cell(1) = static_cast<float>(fp);
    cell(2) = static_cast<float>(negatives - fp);
    cell(3) = static_cast<float>(positives - tp);
    cell(4) = ratio(tp, tp + fp);
    cell(5) = ratio(tp, positives);
  }
  Message shape;
  for (const size_t size : {kRows, count})
    shape.message(kDim, Message().varint(kDimSize, static_cast<uint64_t>(size)));
  Message tensor;
  tensor.varint(kDtype, kDtFloat)
      .message(kShape, shape)
      .bytes(kTensorContent,
             {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  Message metadata;
  metadata.message(
      kPluginData,
      Message()
          .bytes(kPluginName, "pr_curves")
          .message(kContent, Message().varint(kNumThresholds, static_cast<uint64_t>(count))));
  return encode_summary(wall, step,
                        summary_value(tag).message(kTensor, tensor).message(kMetadata, metadata));
}

std::string encode_graph_def(double wall, std::string_view graph) {
  return make_event(wall, 0).bytes(kGraphDef, graph).encoded();
}

std::string encode_plugin_content(double wall, std::string_view tag, std::string_view plugin,
                                  std::string_view content) {
  Message metadata;
  metadata.message(kPluginData, Message().bytes(kPluginName, plugin).bytes(kContent, content));
  return encode_summary(wall, 0, summary_value(tag).message(kMetadata, metadata));
}

namespace {

// Layout, Category, Chart, MultilineChartContent
constexpr uint32_t kLayoutCategory = 2, kCategoryTitle = 1, kCategoryChart = 2, kChartTitle = 1,
                   kChartMultiline = 2, kMultilineTag = 1;

}  // namespace

std::string encode_layout(double wall, const std::vector<ChartCategory>& categories) {
  Message layout;
  for (const ChartCategory& category : categories) {
    Message encoded;
    encoded.bytes(kCategoryTitle, valid_utf8(category.title));
    for (const ChartLayout& chart : category.charts) {
      Message curves;
      for (const std::string& tag : chart.tags) curves.bytes(kMultilineTag, valid_utf8(tag));
      encoded.message(
          kCategoryChart,
          Message().bytes(kChartTitle, valid_utf8(chart.title)).message(kChartMultiline, curves));
    }
    layout.message(kLayoutCategory, encoded);
  }
  Message tensor;  // a scalar
  tensor.varint(kDtype, kDtString).message(kShape, Message()).bytes(kStringVal, layout.encoded());
  Message metadata;
  metadata.message(kPluginData, Message().bytes(kPluginName, "custom_scalars"));
  return encode_summary(
      wall, 0, summary_value(kLayoutTag).message(kTensor, tensor).message(kMetadata, metadata));
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

namespace {

// HParamsPluginData
constexpr uint32_t kVersion = 1, kStartInfo = 3, kEndInfo = 4;
constexpr uint64_t kKnownVersion = 0;
// SessionStartInfo
constexpr uint32_t kHparams = 1, kStartTime = 5;
// SessionEndInfo, Status
constexpr uint32_t kEndStatus = 1, kEndTime = 2;
constexpr uint64_t kSuccess = 1, kFailure = 2;
// google.protobuf.Value
constexpr uint32_t kNumberValue = 2, kStringValue = 3, kBoolValue = 4;

Message setting_value(const Setting& setting) {
  Message value;
  if (const auto* const number = std::get_if<double>(&setting.second))
    value.fixed64(kNumberValue, *number);
  else if (const auto* const flag = std::get_if<bool>(&setting.second))
    value.varint(kBoolValue, *flag ? 1 : 0);
  else
    value.bytes(kStringValue, valid_utf8(std::get<std::string>(setting.second)));
  return value;
}

std::string hparams_content(uint32_t field, const Message& info) {
  return Message().varint(kVersion, kKnownVersion).message(field, info).encoded();
}

}  // namespace

std::string encode_hparams_start(const std::vector<Setting>& options, double wall) {
  Message info;
  for (const Setting& setting : options)
    info.message(kHparams, Message()
                               .bytes(kMapKey, valid_utf8(setting.first))
                               .message(kMapValue, setting_value(setting)));
  info.fixed64(kStartTime, wall);
  return hparams_content(kStartInfo, info);
}

std::string encode_hparams_end(bool is_success, double wall) {
  return hparams_content(
      kEndInfo,
      Message().varint(kEndStatus, is_success ? kSuccess : kFailure).fixed64(kEndTime, wall));
}

namespace {

// GraphDef, VersionDef
constexpr uint32_t kNode = 1, kVersions = 4, kProducer = 1;
constexpr uint64_t kKnownProducer = 22;  // as in the graphs that PyTorch writes
// NodeDef
constexpr uint32_t kName = 1, kOp = 2, kInput = 3, kAttr = 5;
// AttrValue, AttrValue.ListValue
constexpr uint32_t kList = 1, kAttrString = 2, kInt = 3, kListShape = 7;

void add_attribute(Message& node, std::string_view key, const Message& value) {
  node.message(kAttr, Message().bytes(kMapKey, key).message(kMapValue, value));
}

Message encode_node(const GraphNode& node) {
  Message message;
  message.bytes(kName, node.name).bytes(kOp, node.type);
  for (const std::string& input : node.inputs) message.bytes(kInput, input);
  Message shapes;
  for (const std::vector<int64_t>& sizes : node.output_shapes) {
    Message shape;
    for (const int64_t size : sizes)
      shape.message(kDim, Message().varint(kDimSize, static_cast<uint64_t>(size)));
    shapes.message(kListShape, shape);
  }
  if (!node.output_shapes.empty())
    add_attribute(message, "_output_shapes", Message().message(kList, shapes));
  for (const auto& [key, value] : node.attributes) {
    const auto* const number = std::get_if<int64_t>(&value);
    add_attribute(message, key,
                  number != nullptr ? Message().varint(kInt, static_cast<uint64_t>(*number))
                                    : Message().bytes(kAttrString, std::get<std::string>(value)));
  }
  return message;
}

}  // namespace

std::string encode_graph(const std::vector<GraphNode>& nodes) {
  Message graph;
  for (const GraphNode& node : nodes) graph.message(kNode, encode_node(node));
  graph.message(kVersions, Message().varint(kProducer, kKnownProducer));
  return graph.encoded();
}

}  // namespace stoker::metrics
