// The generated documents (config/stoker.yaml, config/stoker.schema.json, the tables of
// docs/configuration.md) and the examples.
#include "shared/config/reference.h"

#include <filesystem>
#include <map>
#include <set>

#include <boost/json/parse.hpp>

#include "shared/base/file.h"
#include "shared/config/key_synonyms.h"
#include "shared/config/schema.h"
#include "shared/config/topology_limits.h"
#include "tests/shared/config/config_text.h"
#include "tests/shared/config/manual_text.h"
#include "tests/shared/config/variant_configs.h"

namespace stoker::config::test {
namespace {

namespace json = boost::json;

const std::string kSource = STOKER_SOURCE_DIR;
const char* const kRegenerate = "; run scripts/generate.sh";

std::string text_of(const std::string& name) {
  auto text = read_file(kSource + '/' + name, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : std::string();
}

// The names ("cache", "cache.type") and defaults of all keys of a variant.
std::map<std::string, const Field*> keys_of(const std::vector<Field>& fields,
                                            std::vector<std::vector<Field>>& nested) {
  std::map<std::string, const Field*> keys;
  for (const Field& field : fields) {
    keys[std::string(field.name)] = &field;
    const auto* const mapping = std::get_if<MappingField>(&field.target);
    if (mapping == nullptr) continue;
    mapping->reset(mapping->target, true);
    nested.push_back(mapping->fields(mapping->target));
    for (const Field& each : nested.back())
      keys[std::string(field.name) + '.' + std::string(each.name)] = &each;
  }
  return keys;
}

const std::vector<ManualKey>& keys_of_manual() {
  static const std::vector<ManualKey> keys = manual_keys(manual_yaml());
  return keys;
}

// The keys of the manual that belong to a variant.
std::vector<ManualKey> manual_keys_of(const SectionVariant& variant) {
  std::vector<ManualKey> keys;
  const std::string discriminator = variant.section == "data.train" ? "format" : "name";
  for (const ManualKey& key : keys_of_manual())
    if (key.section == variant.section && key.belongs_to(variant.variant) &&
        (variant.variant.empty() || key.key() != discriminator))
      keys.push_back(key);
  return keys;
}

// ---- config/stoker.yaml

TEST(ManualTest, ResolvesToDefaultsThatItShows) {
  Config expected;
  TextDataset headers;
  headers.path = "/usr/include/c++";
  headers.sequence.block_size = GptConfig().context_length;
  expected.data["train"].source = headers;
  expected.data["val"].source = headers;
  expected.data["train"].split = {0.0, 0.9};
  expected.data["val"].split = {0.9, 1.0};
  EXPECT_EQ(valid_config(manual_yaml()), expected);
}

TEST(ManualTest, ContainsEveryKeyOfEveryVariantOnce) {
  for (const SectionVariant& variant : all_section_variants()) {
    Config config = config_with_variant(variant);
    std::vector<std::vector<Field>> nested;
    std::multiset<std::string> expected, shown;
    for (const auto& [key, field] : keys_of(section_of(config, variant.section).fields, nested))
      expected.insert(key);
    for (const ManualKey& key : manual_keys_of(variant)) shown.insert(key.key());
    EXPECT_EQ(shown, expected) << variant.section << ' ' << variant.variant;
  }
}

TEST(ManualTest, CommentsOutKeysThatAreNotInUse) {
  const std::map<std::string, std::string> selected{{"data.train", "text"},
                                                    {"model", "gpt"},
                                                    {"task", "language_modeling"},
                                                    {"optimizer", "adamw"},
                                                    {"scheduler", "cosine"}};
  for (const ManualKey& key : keys_of_manual()) {
    // Mappings that are null by default.
    if (key.parent == "pretrained" || key.parent == "lora" || key.parent == "stream" ||
        key.parent == "tokenizer" || key.parent == "cache" || key.section == "data.val")
      continue;
    const auto variant = selected.find(key.section);
    const bool is_in_use = variant == selected.end() || key.belongs_to(variant->second);
    EXPECT_EQ(key.is_commented_out, !is_in_use) << key.full_name();
  }
}

// A key that is uncommented in a configuration of one of its variants must have the documented
// default.
TEST(ManualTest, ShowsDefaultsOfEveryVariant) {
  for (const SectionVariant& variant : all_section_variants()) {
    const std::string text = text_with_variant(variant.section, variant.variant);
    const std::vector<ManualKey> keys = manual_keys_of(variant);
    for (const ManualKey& key : keys) {
      if (key.parent == "stream" || key.name == "stream") continue;  // replaces path; see below
      if (key.parent == "lora") continue;       // requires pretrained; see peft_config_test.cc
      if (key.parent == "tokenizer") continue;  // requires a text; see tokenizer_settings_test.cc
      Flags base;
      if (!key.parent.empty()) {
        for (const ManualKey& other : keys)
          if (other.parent == key.parent && other.is_required && other.name != key.name)
            base.push_back(other.full_name() + '=' + other.value);
        const bool is_in_text = text.find(key.parent + ": {") != std::string::npos;
        if (base.empty() && !is_in_text && !key.is_required)
          base.push_back(key.section + '.' + key.parent + "={}");
      }
      // Required keys cannot have their defaults.
      const bool is_needed = text.find(key.name + ": ") != std::string::npos ||
                             text.find(key.name + ": [") != std::string::npos;
      if (is_needed && !key.is_required) continue;
      // The manual has a dataset named val and another split of the data.
      if (key.full_name() == "data.train.split" || key.full_name() == "eval.datasets") continue;
      Flags flags = base;
      flags.push_back(key.full_name() + '=' + key.value);
      const Config shown = valid_config(text, flags);
      if (!key.is_required) {
        EXPECT_EQ(shown, valid_config(text, base)) << variant.variant << ": " << flags.back();
      }
    }
  }
}

TEST(ManualTest, ShowsDefaultsOfStream) {
  const std::string text =
      "data: {train: {format: text, stream: {source: stdin}}}\ntrain: {max_steps: 5}\n";
  size_t shown = 0;
  for (const ManualKey& key : manual_keys_of({.section = "data.train", .variant = "text"})) {
    if (key.parent != "stream" || key.is_required) continue;
    ++shown;
    const std::string flag = key.full_name() + '=' + key.value;
    EXPECT_EQ(valid_config(text, {flag}), valid_config(text)) << flag;
  }
  EXPECT_EQ(shown, 6u);
}

TEST(ManualTest, MarksRequiredKeys) {
  size_t num_required = 0, num_optional = 0;
  for (const SectionVariant& variant : all_section_variants()) {
    Config config = config_with_variant(variant);
    const Section section = section_of(config, variant.section);
    std::vector<std::vector<Field>> nested;
    const auto fields = keys_of(section.fields, nested);
    for (const ManualKey& key : manual_keys_of(variant)) {
      const auto field = fields.find(key.key());
      if (field != fields.end()) {
        EXPECT_EQ(key.is_required, field->second->is_required) << key.full_name();
        ++(key.is_required ? num_required : num_optional);
      }
    }
  }
  EXPECT_GT(num_required, 0u);
  EXPECT_GT(num_optional, 0u);
}

TEST(ManualTest, FitsInto100Columns) {
  std::istringstream stream(manual_yaml());
  for (std::string line; std::getline(stream, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(ManualTest, DescribesArgumentsOfTransformsAndLayers) {
  const std::string manual = manual_yaml();
  for (const char* const line :
       {"\n    #   - random_crop: {size: 32, padding: 0}\n",
        "\n    #   - random_horizontal_flip: {p: 0.5}\n    #       p: Probability",
        "\n    #   - random_choice: [mixup: {alpha: 0.2}, cutmix: {alpha: 1.0}]\n",
        "\n  #   - linear: {out_features: null, bias: true}\n",
        "\n  #   lr_scale: Factor of the learning rate."})
    EXPECT_THAT(manual, testing::HasSubstr(line));
}

// ---- Committed files

TEST(GeneratedFilesTest, ContainCurrentManual) {
  EXPECT_TRUE(text_of("config/stoker.yaml") == manual_yaml())
      << "config/stoker.yaml is not current" << kRegenerate;
}

TEST(GeneratedFilesTest, ContainCurrentSchema) {
  EXPECT_TRUE(text_of("config/stoker.schema.json") == json_schema())
      << "config/stoker.schema.json is not current" << kRegenerate;
}

TEST(GeneratedFilesTest, ContainCurrentTables) {
  const std::string tables = generated_part(text_of("docs/configuration.md"), "settings");
  ASSERT_FALSE(tables.empty());
  EXPECT_TRUE(tables == "\n" + reference_markdown() + "\n")
      << "the tables of docs/configuration.md are not current" << kRegenerate;
}

TEST(GeneratedFilesTest, ContainCurrentSynonyms) {
  EXPECT_EQ(generated_part(text_of("docs/configuration.md"), "synonyms"),
            "\n" + key_synonyms_markdown() + "\n")
      << "the names of other libraries in docs/configuration.md are not current" << kRegenerate;
}

TEST(GeneratedFilesTest, ContainCurrentLimits) {
  EXPECT_EQ(generated_part(text_of("docs/distributed.md"), "limits"),
            "\n" + topology_limits_markdown() + "\n")
      << "the limits in docs/distributed.md are not current" << kRegenerate;
}

// ---- JSON Schema

void collect_properties(const json::value& value, std::set<std::string>& names) {
  if (const auto* const object = value.if_object()) {
    if (const auto* const properties = object->if_contains("properties"))
      for (const auto& [name, schema] : properties->as_object()) names.insert(std::string(name));
    for (const auto& [key, each] : *object) collect_properties(each, names);
  } else if (const auto* const array = value.if_array()) {
    for (const json::value& each : *array) collect_properties(each, names);
  }
}

TEST(JsonSchemaTest, ContainsEveryKeyOfTables) {
  const json::value schema = json::parse(json_schema());
  std::set<std::string> names;
  collect_properties(schema, names);
  const std::vector<std::string> keys = page_keys(reference_markdown());
  EXPECT_GT(keys.size(), 250u);
  for (std::string key : keys) {
    std::erase_if(key, [](char c) { return c == '[' || c == ']'; });
    if (key.starts_with("data.NAME.")) key.erase(0, 10);
    std::istringstream parts(key);
    for (std::string part; std::getline(parts, part, '.');)
      EXPECT_TRUE(part == "*" || names.contains(part)) << key;
  }
}

TEST(JsonSchemaTest, DefinesEveryReference) {
  const std::string text = json_schema();
  const json::value schema = json::parse(text);
  const json::object& definitions = schema.at("definitions").as_object();
  const std::string start = "#/definitions/";
  size_t count = 0;
  for (size_t at = 0; (at = text.find(start, at)) != std::string::npos; at += start.size()) {
    const size_t from = at + start.size();
    EXPECT_TRUE(definitions.contains(text.substr(from, text.find('"', from) - from)));
    ++count;
  }
  EXPECT_GT(count, 10u);
}

TEST(JsonSchemaTest, ListsEveryVariant) {
  const std::string text = json_schema();
  for (const SectionVariant& each : all_section_variants())
    if (!each.variant.empty()) {
      EXPECT_THAT(text, testing::HasSubstr('"' + each.variant + '"')) << each.section;
    }
}

// ---- docs/configuration.md

TEST(TablesTest, ContainEveryKeyOfEveryVariant) {
  const std::vector<std::string> all = page_keys(reference_markdown());
  const std::set<std::string> rows(all.begin(), all.end());
  for (const SectionVariant& variant : all_section_variants()) {
    Config config = config_with_variant(variant);
    std::vector<std::vector<Field>> nested;
    const std::string section = variant.section == "data.train" ? "data.NAME" : variant.section;
    for (const auto& [key, field] : keys_of(section_of(config, variant.section).fields, nested))
      EXPECT_TRUE(rows.contains(section + '.' + key)) << section << '.' << key;
  }
  for (const char* const key :
       {"data.NAME.format", "model.name", "data.NAME.transforms[].normalize.mean",
        "optimizer.param_groups[].lr_scale", "model.layers[].conv2d.out_channels",
        "data.NAME.batch_transforms[].random_choice", "model.pretrained.key_mapping[].from",
        "model.init.*.normal.std", "model.init.*.constant"})
    EXPECT_TRUE(rows.contains(key)) << key;
}

TEST(ConfigurationPageTest, ShowsErrorsAsReported) {
  const std::string page = text_of("docs/configuration.md");
  const auto wrong = page_blocks(page, "yaml wrong.yaml");
  const auto reported = page_blocks(page, "text wrong.yaml");
  ASSERT_EQ(wrong.size(), 1u);
  ASSERT_EQ(reported.size(), 1u);
  const auto config = parse_config(wrong[0], "wrong.yaml", {"train.max_stepz=10"});
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(
      "$ stokerd --config wrong.yaml --set train.max_stepz=10\n" + config.status().message() + "\n",
      reported[0]);
}

TEST(ConfigurationPageTest, ShowsValidExamples) {
  const auto blocks = page_blocks(text_of("docs/configuration.md"), "yaml");
  EXPECT_FALSE(blocks.empty());
  for (const std::string& block : blocks) valid_config(block);
}

// ---- stoker.yaml(5)

TEST(ConfigManPageTest, ContainsEveryKeyOfTables) {
  std::string page = man_page();
  std::erase(page, '\\');  // escapes
  for (const std::string& key : page_keys(reference_markdown()))
    EXPECT_THAT(page, testing::HasSubstr("\n.TP\nfB" + key + "fR\n"));
}

// ---- Completion of --set

TEST(KeyCompletionsTest, ListKeysOfTables) {
  const std::vector<std::string> all = page_keys(reference_markdown());
  const std::set<std::string> rows(all.begin(), all.end());
  std::set<std::string> completed;
  for (const KeyCompletion& each : key_completions()) completed.insert(each.key);
  for (const std::string& key : completed) {
    const size_t dataset = key.starts_with("data.") ? key.find('.', 5) : std::string::npos;
    EXPECT_TRUE(
        rows.contains(dataset == std::string::npos ? key : "data.NAME" + key.substr(dataset)))
        << key;
  }
  for (const std::string& row : rows) {
    const bool is_mapping = rows.lower_bound(row + '.') != rows.lower_bound(row + '/');
    if (is_mapping || row.find_first_of("[*") != std::string::npos) continue;
    const bool is_data = row.starts_with("data.NAME");
    EXPECT_TRUE(completed.contains(is_data ? "data.val" + row.substr(9) : row)) << row;
  }
}

TEST(KeyCompletionsTest, ListWordsOfChoices) {
  std::map<std::string, std::vector<std::string>> words;
  for (const KeyCompletion& each : key_completions()) words[each.key] = each.words;
  EXPECT_EQ(words["log.level"], (std::vector<std::string>{"debug", "info", "warning", "error"}));
  EXPECT_EQ(words["run.deterministic"], (std::vector<std::string>{"true", "false"}));
  EXPECT_THAT(words["data.val.format"], testing::Contains("image_folder"));
  EXPECT_THAT(words["data.train.cache.type"], testing::Contains("packed"));
  EXPECT_TRUE(words.contains("train.max_steps"));
  EXPECT_TRUE(words["train.max_steps"].empty());
}

// ---- Examples

TEST(ExamplesTest, AreValid) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kSource + "/config")) {
    if (entry.path().extension() != ".yaml" || entry.path().stem() == "stoker") continue;
    ++count;
    const std::string name = entry.path().stem();
    const auto config = load_config(entry.path(), {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->run.dir, "runs/" + name);
    EXPECT_EQ(config->eval.datasets, (std::vector<std::string>{"val"})) << name;
    EXPECT_GE(config->train.max_steps / config->checkpoint.save_every_steps.value_or(1), 5u)
        << name;
  }
  EXPECT_GE(count, 3u);
}

TEST(ExamplesTest, SelectSchemaInFirstLine) {
  const std::string start = "# yaml-language-server: $schema=";
  size_t count = 0;
  for (const char* const folder : {"/config/", "/bench/convergence/"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kSource + folder)) {
      if (entry.path().extension() != ".yaml") continue;
      ++count;
      const std::string text = text_of(folder + entry.path().filename().string());
      ASSERT_TRUE(text.starts_with(start)) << entry.path();
      const std::string schema = text.substr(start.size(), text.find('\n') - start.size());
      EXPECT_TRUE(std::filesystem::equivalent(entry.path().parent_path() / schema,
                                              kSource + "/config/stoker.schema.json"))
          << entry.path();
    }
  }
  EXPECT_GE(count, 6u);
}

}  // namespace
}  // namespace stoker::config::test
