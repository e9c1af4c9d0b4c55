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

}  // namespace stoker::metrics
