#include "tests/shared/config/variant_configs.h"

#include <map>
#include <utility>

#include <gtest/gtest.h>

namespace stoker::config::test {
namespace {

const char* const kImages = "data: {train: {format: cifar10, path: a}}\n";
const char* const kCaptions =
    "data: {train: {format: image_list, path: a, fields: {caption: c}, tokenizer: {path: w}, "
    "transforms: [resize: {size: [8, 8]}]}}\n";
const char* const kText = "data: {train: {format: text, path: a}}\n";
const char* const kClassifierConfig = "task: {name: classification}\nmodel: {name: mlp}\n";

std::string text_with_format(const std::string& format) {
  const std::string images = ", transforms: [resize: {size: [8, 8]}]";
  const std::map<std::string, std::string> keys{
      {"text", "path: a"},
      {"tokens", "path: a"},
      {"image_folder", "path: a" + images},
      {"image_list", "path: a" + images},
      {"idx", "path: a, labels_path: b"},
      {"cifar10", "path: a"},
      {"cifar100", "path: a"},
      {"numpy", "path: a"},
      {"tfrecord", "path: a, fields: {image: x, label: y}" + images},
      {"webdataset", "path: a, fields: {image: x, label: y}" + images},
      {"csv", "path: a, fields: {label: y}"},
      {"jsonl", "path: a, fields: {input: x, label: y}"},
      {"synthetic", "num_samples: 5, input_shape: [3]"}};
  const std::string others = ", code: {format: text, path: a}, prose: {format: text, path: b}}\n";
  if (format == "mixture") return "data: {train: {mixture: {code: 0.7, prose: 0.3}}" + others;
  if (format == "concat") return "data: {train: {concat: [code, prose]}" + others;
  const bool has_tokens = format == "text" || format == "tokens";
  return "data: {train: {format: " + format + ", " + keys.at(format) + "}}\n" +
         (has_tokens ? "" : kClassifierConfig);
}

std::string text_with_model(const std::string& model) {
  std::string keys = "name: " + model;
  for (const char* const user_code : {"plugin", "exported"})
    if (model == user_code) keys += ", path: a";
  if (model == "sequential") keys += ", layers: [flatten, linear]";
  if (model == "captioner")
    return std::string(kCaptions) + "task: {name: captioning}\nmodel: {name: captioner}\n";
  const bool has_tokens =
      model == "gpt" || model == "gpt2" || model == "llama" || model == "lstm_lm";
  return (has_tokens ? kText : kImages + std::string("task: {name: classification}\n")) +
         "model: {" + keys + "}\n";
}

}  // namespace

std::string text_with_variant(const std::string& section, const std::string& variant) {
  if (section == "data.train") return text_with_format(variant);
  if (section == "model") return text_with_model(variant);
  if (section == "task" && variant == "captioning") return text_with_model("captioner");
  const bool is_per_step = variant == "sequence_labeling" || variant == "ctc";
  if (section == "task" && variant == "custom")
    return kImages + std::string("model: {name: exported, path: a}\ntask: {name: custom}\n");
  if (section == "task" && variant != "language_modeling")
    return kImages + std::string("model: {name: ") + (is_per_step ? "blstm" : "mlp") +
           "}\ntask: {name: " + variant + "}\n";
  if (variant.empty()) return kText;
  const std::map<std::string, std::string> required{{"multi_step", ", milestones: [5]"},
                                                    {"exponential", ", gamma: 0.9"}};
  const auto more = required.find(variant);
  return kText + section + ": {name: " + variant + (more == required.end() ? "" : more->second) +
         "}\n";
}

std::vector<SectionVariant> all_section_variants() {
  Config config;
  config.data["train"] = {};
  std::vector<SectionVariant> all;
  for (const Section& section : all_sections(config)) {
    if (section.variants.names.empty()) all.push_back({section.key, ""});
    for (const std::string_view name : section.variants.names)
      all.push_back({section.key, std::string(name)});
  }
  EXPECT_FALSE(all.empty());
  return all;
}

Section section_of(Config& config, const std::string& key) {
  for (Section& section : all_sections(config))
    if (section.key == key) return std::move(section);
  return {};
}

Config config_with_variant(const SectionVariant& each) {
  Config config;
  config.data["train"] = {};
  const Variants variants = section_of(config, each.section).variants;
  for (size_t i = 0; i < variants.names.size(); ++i)
    if (variants.names[i] == each.variant) variants.select(i);
  return config;
}

}  // namespace stoker::config::test
