#include "shared/config/config.h"

#include <charconv>
#include <system_error>

namespace stoker::config {
namespace {

std::vector<std::string> components_of_training(const Config& config) {
  const auto train = config.data.find("train");
  return train == config.data.end() ? std::vector<std::string>{} : train->second.components();
}

}  // namespace

bool is_task_address(std::string_view text) {
  constexpr int kMaxPort = 65535;
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const char* const last = text.data() + text.size();
  int port = 0;
  const auto [end, error] = std::from_chars(text.data() + colon + 1, last, port);
  return error == std::errc() && end == last && port >= 1 && port <= kMaxPort;
}

std::vector<std::string> training_datasets(const Config& config) {
  std::vector<std::string> names{"train"};
  for (std::string& name : components_of_training(config)) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> sampled_datasets(const Config& config) {
  return sampled_datasets(config.data, "train");
}

const TokenizerConfig* training_tokenizer(const Config& config) {
  for (const std::string& name : sampled_datasets(config)) {
    const auto found = config.data.find(name);
    if (found == config.data.end()) continue;
    if (const TokenizerConfig* const tokenizer = found->second.text_tokenizer()) return tokenizer;
  }
  return nullptr;
}

const Normalize* training_normalization(const Config& config) {
  for (const std::string& name : sampled_datasets(config)) {
    const auto found = config.data.find(name);
    if (found == config.data.end()) continue;
    const Transforms* const transforms = found->second.transforms();
    if (transforms == nullptr) continue;
    if (const Normalize* const normalize = find_transform<Normalize>(*transforms)) return normalize;
  }
  return nullptr;
}

const DatasetConfigs::value_type* streamed_dataset(const Config& config) {
  const std::vector<std::string> names = sampled_datasets(config);
  if (names.empty()) return nullptr;
  const auto found = config.data.find(names.back());
  return found != config.data.end() && found->second.stream ? &*found : nullptr;
}

const StreamConfig* training_stream(const Config& config) {
  const auto* const streamed = streamed_dataset(config);
  return streamed == nullptr ? nullptr : &*streamed->second.stream;
}

std::optional<DeviceConfig> parse_device(std::string_view text) {
  using Type = DeviceConfig::Type;
  if (text == "auto") return DeviceConfig{.type = Type::kAuto, .index = {}};
  if (text == "cpu") return DeviceConfig{.type = Type::kCpu, .index = {}};
  if (text == "cuda") return DeviceConfig{.type = Type::kCuda, .index = {}};
  if (text == "fake") return DeviceConfig{.type = Type::kFake, .index = {}};
  const bool is_fake = text.starts_with("fake:");
  if (!is_fake && !text.starts_with("cuda:")) return std::nullopt;
  const std::string_view digits = text.substr(std::string_view("cuda:").size());
  const size_t max_digits = is_fake ? 9 : 2;
  if (digits.empty() || digits.size() > max_digits) return std::nullopt;
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || end != digits.data() + digits.size() || digits[0] == '-')
    return std::nullopt;
  return DeviceConfig{.type = is_fake ? Type::kFake : Type::kCuda, .index = index};
}

std::string to_string(const DeviceConfig& device) {
  switch (device.type) {
    case DeviceConfig::Type::kAuto:
      return "auto";
    case DeviceConfig::Type::kCpu:
      return "cpu";
    case DeviceConfig::Type::kCuda:
      return device.index ? "cuda:" + std::to_string(*device.index) : "cuda";
    case DeviceConfig::Type::kFake:
      return device.index ? "fake:" + std::to_string(*device.index) : "fake";
  }
  return "";
}

}  // namespace stoker::config
