// The protobuf messages of TensorBoard's event files, encoded by hand: tensorflow.Event and what is
// in it.
//
// Threads: functions of their arguments.
// Format:  field numbers are those of event.proto, summary.proto and tensor.proto; they never
//          change.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shared/metrics/tensor_summary.h"

namespace stoker::metrics {

// `wall` in seconds since 1970.
std::string encode_file_version(double wall);  // the first event of every file
std::string encode_session_start(double wall,
                                 uint64_t step);  // events of this step and later ones are void
std::string encode_scalar(double wall, uint64_t step, std::string_view tag, float value);
std::string encode_text(double wall, uint64_t step, std::string_view tag, std::string_view text);

// `png`: the bytes of a PNG file of that size, in colour.
std::string encode_image(double wall, uint64_t step, std::string_view tag, std::string_view png,
                         uint32_t width, uint32_t height);

// Where no number is finite, a histogram of nothing.
std::string encode_histogram(double wall, uint64_t step, std::string_view tag,
                             const TensorSummary& summary);

// `graph`: the bytes of a GraphDef.
std::string encode_graph_def(double wall, std::string_view graph);

// What only one of TensorBoard's plugins understands.
std::string encode_plugin_content(double wall, std::string_view tag, std::string_view plugin,
                                  std::string_view content);

// A TFRecord frame: length, its checksum, data, its checksum.
std::string frame_record(std::string_view data);

// Hparams: the settings of a run, for TensorBoard's page that compares runs by them. The figures
// beside them are those of the run's curves, in its folder and the folders below it.
//
// Format:  tensorboard.hparams.HParamsPluginData, version 0; field numbers are those of
//          plugin_data.proto and google/protobuf/struct.proto.
using Setting = std::pair<std::string, std::variant<double, bool, std::string>>;

inline constexpr const char* kHparamsStartTag = "_hparams_/session_start_info";
inline constexpr const char* kHparamsEndTag = "_hparams_/session_end_info";

// The content of a summary's metadata under these tags. `wall` in seconds since 1970.
std::string encode_hparams_start(const std::vector<Setting>& options, double wall);
std::string encode_hparams_end(bool is_success, double wall);

// ModelGraph: what a model is made of, for TensorBoard's page of graphs: modules in modules, with
// the shapes of their tensors. Its lines lead from a part to what it is a part of; they are not the
// way of the data.
//
// Format:  tensorflow.GraphDef; field numbers are those of graph.proto, node_def.proto,
//          attr_value.proto and tensor_shape.proto.
struct ModelGraph {
  struct Tensor {
    std::string name;  // in its module: "weight"
    std::vector<int64_t> shape;
    bool is_parameter = true;  // else a buffer
    bool is_trained = true;
  };
  struct Module {
    std::string path;  // "blocks.0.qkv"; empty: the model itself
    std::string type;  // "Linear"
    std::vector<Tensor> tensors;
  };
  std::string name;             // of the model
  std::vector<Module> modules;  // the model itself first, each before its parts
};

// The bytes of a GraphDef.
std::string encode_graph(const ModelGraph& graph);

}  // namespace stoker::metrics
