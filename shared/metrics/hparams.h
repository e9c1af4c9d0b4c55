// Hparams: the settings of a run, for TensorBoard's page that compares runs by them. The figures
// beside them are those of the run's curves, in its folder and the folders below it.
//
// Threads: functions of their arguments.
// Format:  tensorboard.hparams.HParamsPluginData, version 0; field numbers are those of
//          plugin_data.proto and google/protobuf/struct.proto.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace stoker::metrics {

using Setting = std::pair<std::string, std::variant<double, bool, std::string>>;

inline constexpr const char* kHparamsStartTag = "_hparams_/session_start_info";
inline constexpr const char* kHparamsEndTag = "_hparams_/session_end_info";

// The content of a summary's metadata under these tags. `wall` in seconds since 1970.
std::string encode_hparams_start(const std::vector<Setting>& options, double wall);
std::string encode_hparams_end(bool is_success, double wall);

}  // namespace stoker::metrics
