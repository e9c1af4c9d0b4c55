#include "shared/metrics/hparams.h"

#include "shared/metrics/protobuf_message.h"
#include "shared/metrics/utf8.h"

namespace stoker::metrics {
namespace {

// HParamsPluginData
constexpr uint32_t kVersion = 1, kStartInfo = 3, kEndInfo = 4;
constexpr uint64_t kKnownVersion = 0;
// SessionStartInfo, an entry of its map
constexpr uint32_t kHparams = 1, kStartTime = 5, kKey = 1, kValue = 2;
// SessionEndInfo, Status
constexpr uint32_t kStatus = 1, kEndTime = 2;
constexpr uint64_t kSuccess = 1, kFailure = 2;
// google.protobuf.Value
constexpr uint32_t kNumber = 2, kString = 3, kBool = 4;

ProtobufMessage setting_value(const Setting& setting) {
  ProtobufMessage value;
  if (const auto* const number = std::get_if<double>(&setting.second))
    value.fixed64(kNumber, *number);
  else if (const auto* const flag = std::get_if<bool>(&setting.second))
    value.varint(kBool, *flag ? 1 : 0);
  else
    value.bytes(kString, valid_utf8(std::get<std::string>(setting.second)));
  return value;
}

std::string content(uint32_t field, const ProtobufMessage& info) {
  return ProtobufMessage().varint(kVersion, kKnownVersion).message(field, info).encoded();
}

}  // namespace

std::string encode_hparams_start(const std::vector<Setting>& options, double wall) {
  ProtobufMessage info;
  for (const Setting& setting : options)
    info.message(kHparams, ProtobufMessage()
                               .bytes(kKey, valid_utf8(setting.first))
                               .message(kValue, setting_value(setting)));
  info.fixed64(kStartTime, wall);
  return content(kStartInfo, info);
}

std::string encode_hparams_end(bool is_success, double wall) {
  return content(
      kEndInfo,
      ProtobufMessage().varint(kStatus, is_success ? kSuccess : kFailure).fixed64(kEndTime, wall));
}

}  // namespace stoker::metrics
