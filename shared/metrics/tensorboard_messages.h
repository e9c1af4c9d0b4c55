// The protobuf messages of TensorBoard's event files (tensorflow.Event and its parts), encoded by
// hand.
//
// Threads: functions of their arguments.
// Format:  field numbers from event.proto, summary.proto and tensor.proto; they never change.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shared/metrics/tensor_summary.h"

namespace stoker::metrics {

// `wall` in seconds since 1970.
std::string encode_file_version(double wall);  // the first event of every file
// Invalidates earlier events of this step and later steps.
std::string encode_session_start(double wall, uint64_t step);
// `description`, Markdown that TensorBoard shows next to the curve, is needed once per tag.
std::string encode_scalar(double wall, uint64_t step, std::string_view tag, float value,
                          std::string_view description = {});
std::string encode_text(double wall, uint64_t step, std::string_view tag, std::string_view text);

// `png`: the bytes of a color PNG file of this size.
std::string encode_image(double wall, uint64_t step, std::string_view tag, std::string_view png,
                         uint32_t width, uint32_t height);

// An empty histogram if no value is finite.
std::string encode_histogram(double wall, uint64_t step, std::string_view tag,
                             const TensorSummary& summary);

// `graph`: the bytes of a GraphDef.
std::string encode_graph_def(double wall, std::string_view graph);

// A precision-recall curve on the PR Curves page. `true_positives`, `false_positives`: at thresholds
// that increase evenly from 0, where every sample is predicted as positive, to 1; equally many.
//
// Format:  tensor [6, thresholds] of the counts, precision and recall, and PrCurvePluginData, version
//          0; rows and field numbers are those of plugins/pr_curve.
std::string encode_pr_curve(double wall, uint64_t step, std::string_view tag,
                            std::span<const uint64_t> true_positives,
                            std::span<const uint64_t> false_positives);

// Content that only the TensorBoard plugin `plugin` interprets.
std::string encode_plugin_content(double wall, std::string_view tag, std::string_view plugin,
                                  std::string_view content);

// Charts of the Custom Scalars page, each with the curves of several tags, of all runs that are shown.
//
// Format:  tensorboard.Layout; field numbers are those of plugins/custom_scalar/layout.proto.
struct ChartLayout {
  std::string title;
  std::vector<std::string> tags;  // regular expressions
};
struct ChartCategory {
  std::string title;
  std::vector<ChartLayout> charts;
};
inline constexpr const char* kLayoutTag = "custom_scalars__config__";
std::string encode_layout(double wall, const std::vector<ChartCategory>& categories);

// A TFRecord frame: length, CRC of the length, data, CRC of the data.
std::string frame_record(std::string_view data);

// Hparams: the configuration of a run for TensorBoard's HParams page, which compares runs. The page
// takes the metrics from the run's curves, in its folder and the folders below it.
//
// Format:  tensorboard.hparams.HParamsPluginData, version 0; field numbers are those of
//          plugin_data.proto and google/protobuf/struct.proto.
using Setting = std::pair<std::string, std::variant<double, bool, std::string>>;

inline constexpr const char* kHparamsStartTag = "_hparams_/session_start_info";
inline constexpr const char* kHparamsEndTag = "_hparams_/session_end_info";

// The metadata content of a summary with the tags above. `wall` in seconds since 1970.
std::string encode_hparams_start(const std::vector<Setting>& options, double wall);
std::string encode_hparams_end(bool is_success, double wall);

// GraphNode: a node of the graph on TensorBoard's Graphs page, which groups the nodes by the parts of
// their names and labels the edges with the shapes of the outputs.
//
// Format:  tensorflow.GraphDef; field numbers are those of graph.proto, node_def.proto,
//          attr_value.proto and tensor_shape.proto.
struct GraphNode {
  std::string name = {};                 // "model/layer1/0/conv2d"; unique
  std::string type = {};                 // "conv2d"
  std::vector<std::string> inputs = {};  // names of nodes; "NAME:1" is the second output of NAME
  std::vector<std::vector<int64_t>> output_shapes = {};
  std::vector<std::pair<std::string, std::variant<int64_t, std::string>>> attributes = {};
};

// The bytes of a GraphDef.
std::string encode_graph(const std::vector<GraphNode>& nodes);

}  // namespace stoker::metrics
