#include "shared/checkpoint/manifest.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

namespace stoker::checkpoint {
namespace {

constexpr size_t kHexDigits = 64;
constexpr size_t kMaxName = 255;

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

bool is_sha256(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == kHexDigits && std::ranges::all_of(text, is_digit);
}

bool is_file_name(std::string_view name) {
  const auto fits = [](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; };
  return !name.empty() && name.size() <= kMaxName && name[0] != '.' &&
         std::ranges::all_of(name, fits);
}

std::string optimizer_shard_name(int index, int count) {
  char name[64];
  std::snprintf(name, sizeof name, "optimizer-%05d-of-%05d.safetensors", index + 1, count);
  return name;
}

std::string format_checksums(const std::vector<Checksum>& sums) {
  std::string text;
  for (const Checksum& sum : sums) text += sum.sha256 + "  " + sum.name + '\n';
  return text;
}

Result<std::vector<Checksum>> parse_checksums(std::string_view text,
                                              const std::string& path_in_messages) {
  std::vector<Checksum> sums;
  const auto corrupt = [&](const char* what) {
    return Status(StatusCode::kCorrupt,
                  path_in_messages + ":" + std::to_string(sums.size() + 1) + ": " + what);
  };
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return corrupt("the line is not terminated");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.size() < kHexDigits + 2 || !is_sha256(line.substr(0, kHexDigits)) ||
        line.substr(kHexDigits, 2) != "  " || !is_file_name(line.substr(kHexDigits + 2)))
      return corrupt("not a SHA-256, two spaces and a file name");
    Checksum sum{std::string(line.substr(0, kHexDigits)), std::string(line.substr(kHexDigits + 2))};
    if (std::ranges::find(sums, sum.name, &Checksum::name) != sums.end())
      return corrupt("lists a file twice");
    sums.push_back(std::move(sum));
  }
  if (sums.empty()) return corrupt("the file is empty");
  return sums;
}

namespace {

namespace json = boost::json;

constexpr size_t kMaxFiles = 64;  // in addition to optimizer shards

// Boost.JSON's accessors throw. All calls are inside parse_manifest(), which converts exceptions to
// Status.
std::string text_at(const json::object& object, const char* key) {
  return std::string(object.at(key).as_string());
}
uint64_t count_at(const json::object& object, const char* key) {
  return object.at(key).to_number<uint64_t>();
}
// 0 or empty if missing, for fields that were added later and are optional.
uint64_t optional_count_at(const json::object& object, const char* key) {
  return object.contains(key) ? count_at(object, key) : 0;
}
std::string optional_text_at(const json::object& object, const char* key) {
  return object.contains(key) ? text_at(object, key) : std::string();
}

WrittenFile parse_file(const json::value& value) {
  const json::object& object = value.as_object();
  return {text_at(object, "name"), count_at(object, "bytes"), text_at(object, "sha256")};
}

DatasetVersion parse_dataset_version(const json::value& value) {
  const json::object& object = value.as_object();
  return {count_at(object, "start_ticket"), count_at(object, "epoch"), count_at(object, "samples"),
          text_at(object, "fingerprint")};
}

json::array dataset_versions_to_json(const Manifest& manifest) {
  json::array states;
  for (const DatasetVersion& state : manifest.dataset_versions)
    states.push_back({{"start_ticket", state.start_ticket},
                      {"epoch", state.epoch},
                      {"samples", state.samples},
                      {"fingerprint", state.fingerprint}});
  return states;
}

BaseWeights parse_base_weights(const json::object& root) {
  BaseWeights base{.path = text_at(root, "path"),
                   .sha256 = text_at(root, "sha256"),
                   .tensors = {},
                   .r = root.at("r").to_number<int64_t>(),
                   .lora_alpha = root.at("lora_alpha").to_number<double>()};
  for (const json::value& name : root.at("tensors").as_array())
    base.tensors.emplace_back(name.as_string());
  return base;
}

json::object base_weights_to_json(const BaseWeights& base) {
  json::array tensors;
  for (const std::string& name : base.tensors) tensors.emplace_back(name);
  return {{"path", base.path},
          {"sha256", base.sha256},
          {"r", base.r},
          {"lora_alpha", base.lora_alpha},
          {"tensors", std::move(tensors)}};
}

Manifest parse_manifest_fields(const json::object& root) {
  Manifest manifest;
  manifest.format = root.at("format").to_number<int>();
  manifest.step = count_at(root, "step");
  manifest.epoch = count_at(root, "epoch");
  manifest.next_ticket = count_at(root, "next_ticket");
  manifest.created_at = text_at(root, "created_at");
  manifest.stoker_version = text_at(root, "stoker_version");
  manifest.torch_version = text_at(root, "torch_version");
  manifest.processor = optional_text_at(root, "processor");
  manifest.system = optional_text_at(root, "system");
  manifest.device = optional_text_at(root, "device");
  manifest.num_threads = optional_count_at(root, "num_threads");
  manifest.world_size = root.at("world_size").to_number<int>();
  manifest.micro_batch_size = optional_count_at(root, "micro_batch_size");
  manifest.gradient_accumulation_steps = optional_count_at(root, "gradient_accumulation_steps");
  manifest.optimizer_shards = static_cast<int>(
      std::min<uint64_t>(optional_count_at(root, "optimizer_shards"), kMaxOptimizerShards + 1));
  manifest.model_digest = text_at(root, "model_digest");
  manifest.model_file = optional_text_at(root, "model_file");
  if (root.contains("base_weights"))
    manifest.base_weights = parse_base_weights(root.at("base_weights").as_object());
  manifest.tokenizer = optional_text_at(root, "tokenizer");
  if (root.contains("tied_parameters"))
    for (const auto& [name, same] : root.at("tied_parameters").as_object())
      manifest.tied_parameters[std::string(name)] = std::string(same.as_string());
  manifest.config_digest = text_at(root, "config_digest");
  manifest.data_digest = text_at(root, "data_digest");
  if (root.contains("data_schema"))
    manifest.data_schema = parse_schema_object(root.at("data_schema").as_object());
  if (root.contains("dataset_versions"))
    for (const json::value& state : root.at("dataset_versions").as_array())
      manifest.dataset_versions.push_back(parse_dataset_version(state));
  for (const json::value& file : root.at("files").as_array())
    manifest.files.push_back(parse_file(file));
  manifest.parent_checkpoint = text_at(root, "parent_checkpoint");
  manifest.metrics_bytes = count_at(root, "metrics_bytes");
  if (root.contains("sample_errors")) manifest.sample_errors = count_at(root, "sample_errors");
  manifest.live_settings = json::serialize(root.at("live_settings").as_object());
  return manifest;
}

// Empty if the optimizer state is complete.
std::string find_shard_error(const Manifest& manifest) {
  if (manifest.optimizer_shards > kMaxOptimizerShards) return "has too many optimizer_shards";
  if ((manifest.optimizer_shards > 0) != (manifest.format == kShardedFormat))
    return "has optimizer_shards that do not belong to its format";
  for (int index = 0; index < manifest.optimizer_shards; ++index) {
    const std::string name = optimizer_shard_name(index, manifest.optimizer_shards);
    if (std::ranges::find(manifest.files, name, &WrittenFile::name) == manifest.files.end())
      return "does not list " + name;
  }
  return {};
}

// Empty if the files can be opened below the checkpoint directory.
std::string find_file_error(const Manifest& manifest) {
  if (manifest.files.empty()) return "lists no files";
  if (manifest.files.size() > kMaxFiles + static_cast<size_t>(manifest.optimizer_shards))
    return "lists too many files";
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const WrittenFile& file = manifest.files[i];
    if (!is_file_name(file.name) || file.name == kManifestName || file.name == kChecksumsName)
      return "lists a file that cannot be part of a checkpoint";
    if (!is_sha256(file.sha256)) return "has no SHA-256 for " + file.name;
    const auto has_same_name = [&](const WrittenFile& other) { return other.name == file.name; };
    if (std::count_if(manifest.files.begin(), manifest.files.end(), has_same_name) > 1)
      return "lists " + file.name + " twice";
  }
  if (manifest.base_weights && manifest.base_weights->r < 1)
    return "has base_weights without a rank";
  return find_shard_error(manifest);
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  json::array files;
  for (const WrittenFile& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  boost::system::error_code error;
  json::value live_settings =
      parse_json(manifest.live_settings.empty() ? "{}" : manifest.live_settings, error);
  assert(!error && live_settings.is_object() && "Manifest::live_settings must be a JSON object");
  json::object root{{"format", manifest.format},
                    {"step", manifest.step},
                    {"epoch", manifest.epoch},
                    {"next_ticket", manifest.next_ticket},
                    {"created_at", manifest.created_at},
                    {"stoker_version", manifest.stoker_version},
                    {"torch_version", manifest.torch_version},
                    {"world_size", manifest.world_size},
                    {"model_digest", manifest.model_digest},
                    {"config_digest", manifest.config_digest},
                    {"data_digest", manifest.data_digest},
                    {"files", std::move(files)},
                    {"parent_checkpoint", manifest.parent_checkpoint},
                    {"metrics_bytes", manifest.metrics_bytes},
                    {"live_settings", std::move(live_settings)}};
  if (!manifest.processor.empty()) root["processor"] = manifest.processor;
  if (!manifest.system.empty()) root["system"] = manifest.system;
  if (!manifest.device.empty()) root["device"] = manifest.device;
  if (manifest.num_threads != 0) root["num_threads"] = manifest.num_threads;
  if (manifest.micro_batch_size != 0) root["micro_batch_size"] = manifest.micro_batch_size;
  if (!manifest.model_file.empty()) root["model_file"] = manifest.model_file;
  if (manifest.base_weights) root["base_weights"] = base_weights_to_json(*manifest.base_weights);
  if (!manifest.tokenizer.empty()) root["tokenizer"] = manifest.tokenizer;
  if (!manifest.tied_parameters.empty()) {
    json::object tied;
    for (const auto& [name, same] : manifest.tied_parameters) tied[name] = same;
    root["tied_parameters"] = std::move(tied);
  }
  if (manifest.data_schema) root["data_schema"] = to_json_object(*manifest.data_schema);
  if (!manifest.dataset_versions.empty())
    root["dataset_versions"] = dataset_versions_to_json(manifest);
  if (manifest.optimizer_shards > 0) root["optimizer_shards"] = manifest.optimizer_shards;
  if (manifest.gradient_accumulation_steps != 0)
    root["gradient_accumulation_steps"] = manifest.gradient_accumulation_steps;
  if (manifest.sample_errors) root["sample_errors"] = *manifest.sample_errors;
  return json::serialize(root) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& path_in_messages) {
  const auto corrupt = [&](const std::string& what) {
    return Status(StatusCode::kCorrupt, path_in_messages + ": " + what);
  };
  const auto read = [&](const json::object& root) -> Result<Manifest> {
    // Checked before the other fields, which can differ in a later format.
    const auto format = root.at("format").to_number<int64_t>();
    if (format > kShardedFormat) {
      return Status(StatusCode::kMismatch, path_in_messages + ": format " + std::to_string(format) +
                                               "; this version reads up to " +
                                               std::to_string(kShardedFormat) +
                                               ", install a newer stoker");
    }
    if (format < kFormat)
      return corrupt("format " + std::to_string(format) + " is not supported; this version reads " +
                     std::to_string(kFormat));
    Manifest manifest = parse_manifest_fields(root);
    if (const std::string file_error = find_file_error(manifest); !file_error.empty())
      return corrupt(file_error);
    return manifest;
  };
  return parse_json_object<Manifest>(text, path_in_messages, read);
}

}  // namespace stoker::checkpoint
