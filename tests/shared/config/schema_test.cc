// The descriptors of all settings, in all variants.
#include "shared/config/schema.h"

#include <set>

#include "tests/shared/config/config_text.h"
#include "tests/shared/config/random_config.h"
#include "tests/shared/config/variant_configs.h"

namespace stoker::config::test {
namespace {

using testing::Not;

// Calls `visit(name, field)` for the fields and their nested fields. `depth` limits the recursion,
// because layers contain layers.
template <typename Visit>
void for_each_field(const std::string& prefix, const std::vector<Field>& fields, const Visit& visit,
                    int depth = 0) {
  for (const Field& field : fields) {
    const std::string name = prefix + '.' + std::string(field.name);
    visit(name, field);
    if (const auto* const mapping = std::get_if<MappingField>(&field.target)) {
      mapping->reset(mapping->target, true);
      for_each_field(name, mapping->fields(mapping->target), visit, depth);
    } else if (const auto* const list = std::get_if<ListField>(&field.target)) {
      list->resize(list->target, 1);
      for_each_field(name, list->fields(list->target, 0), visit, depth);
    } else if (const auto* const tagged = std::get_if<TaggedListField>(&field.target);
               tagged != nullptr && depth < 2) {
      for (size_t i = 0; i < tagged->names.size(); ++i) {
        tagged->clear(tagged->target);
        tagged->add(tagged->target, i);
        for_each_field(name + '.' + std::string(tagged->names[i]),
                       tagged->fields(tagged->target, 0), visit, depth + 1);
      }
    } else if (const auto* const map = std::get_if<TaggedMapField>(&field.target)) {
      const TaggedListField& values = map->values;
      for (size_t i = 0; i < values.names.size(); ++i) {
        values.clear(values.target);
        values.add(values.target, i);
        for_each_field(name + '.' + std::string(values.names[i]), values.fields(values.target, 0),
                       visit, depth + 1);
      }
    }
  }
}

template <typename Visit>
void for_each_field(const Visit& visit) {
  for (const SectionVariant& each : all_section_variants()) {
    Config config = config_with_variant(each);
    for_each_field(each.section + '(' + each.variant + ')', section_of(config, each.section).fields,
                   visit);
  }
}

TEST(SchemaTest, DescribesEveryFieldInOneLineWithoutFullStop) {
  for_each_field([](const std::string& name, const Field& field) {
    EXPECT_GT(field.help.size(), 5u) << name;
    EXPECT_LT(field.help.size(), 100u) << name;
    EXPECT_THAT(field.help, Not(testing::EndsWith("."))) << name;
    EXPECT_THAT(field.help, Not(testing::HasSubstr("\n"))) << name;
    ASSERT_FALSE(field.help.empty()) << name;
    EXPECT_TRUE(field.help[0] >= 'A' && field.help[0] <= 'Z') << name << ": " << field.help;
  });
}

TEST(SchemaTest, EndsDetailsWithFullStop) {
  for_each_field([](const std::string& name, const Field& field) {
    if (!field.details.empty()) {
      EXPECT_THAT(field.details, testing::EndsWith(".")) << name;
    }
  });
  for (const SectionVariant& each : all_section_variants()) {
    Config config = config_with_variant(each);
    const Section section = section_of(config, each.section);
    EXPECT_FALSE(section.help.empty()) << each.section;
    EXPECT_THAT(section.help, Not(testing::EndsWith("."))) << each.section;
    if (!section.variants.details.empty()) {
      EXPECT_THAT(section.variants.details, testing::EndsWith(".")) << each.section;
    }
  }
}

TEST(SchemaTest, GivesExampleForEveryRequiredField) {
  for_each_field([](const std::string& name, const Field& field) {
    if (field.is_required) {
      EXPECT_FALSE(field.example.empty()) << name;
    }
  });
}

TEST(SchemaTest, NamesKeysInSnakeCaseOncePerVariant) {
  for (const SectionVariant& each : all_section_variants()) {
    Config config = config_with_variant(each);
    const Section section = section_of(config, each.section);
    std::set<std::string_view> names{section.variants.discriminator};
    for (const Field& field : section.fields) {
      EXPECT_TRUE(names.insert(field.name).second) << each.section << '.' << field.name;
      EXPECT_THAT(std::string(field.name), testing::MatchesRegex("[a-z][a-z0-9_]*"));
    }
  }
}

TEST(SchemaTest, ListsKeysOfEveryVariant) {
  for (const SectionVariant& each : all_section_variants()) {
    Config config = config_with_variant(each);
    const Section section = section_of(config, each.section);
    if (each.variant.empty()) continue;
    EXPECT_EQ(section.variants.names[section.variants.selected], each.variant);
    std::vector<std::string_view> names;
    for (const Field& field : section.fields) names.push_back(field.name);
    EXPECT_EQ(section.variants.keys(section.variants.selected), names) << each.variant;
  }
}

TEST(SchemaTest, RestoresDefaultsOfEveryVariantFromTheirText) {
  for (const SectionVariant& each : all_section_variants()) {
    const Config config = valid_config(text_with_variant(each.section, each.variant));
    Config copy = config;
    const Section section = section_of(copy, each.section);
    if (!each.variant.empty()) {
      ASSERT_EQ(section.variants.names[section.variants.selected], each.variant);
    }
    EXPECT_EQ(valid_config(to_yaml(config)), config) << each.variant;
  }
}

// Writing a default value explicitly is equivalent to omitting the key.
TEST(SchemaTest, AcceptsDefaultOfEveryFieldAsText) {
  for (const SectionVariant& each : all_section_variants()) {
    const std::string text = text_with_variant(each.section, each.variant);
    Config config = valid_config(text);
    const Config expected = config;
    for (const Field& field : section_of(config, each.section).fields) {
      const std::string key = each.section + '.' + std::string(field.name);
      const std::string yaml = to_yaml(config);
      const size_t indent = each.section == "data.train" ? 4 : 2;
      const bool is_block = std::holds_alternative<MappingField>(field.target) ||
                            std::holds_alternative<TaggedListField>(field.target);
      if (is_block) continue;  // multi-line values; covered by the round trip above
      const std::string start = std::string(indent, ' ') + std::string(field.name) + ": ";
      const size_t section_start =
          yaml.find(each.section == "data.train" ? "  train:\n" : "\n" + each.section + ":\n");
      const size_t at =
          each.section == "run" ? yaml.find(start) : yaml.find("\n" + start, section_start) + 1;
      ASSERT_NE(at, std::string::npos) << key;
      const std::string value =
          yaml.substr(at + start.size(), yaml.find('\n', at) - at - start.size());
      EXPECT_EQ(valid_config(text, {key + "=" + value}), expected) << key << "=" << value;
    }
  }
}

// Changes each field of each variant: the digest must change if and only if the field affects the
// result.
TEST(SchemaTest, ChangesDigestWithEveryFieldThatAffectsResult) {
  std::mt19937_64 random(8);
  for (const SectionVariant& each : all_section_variants()) {
    Config config = config_with_variant(each);
    const size_t count = section_of(config, each.section).fields.size();
    for (size_t i = 0; i < count; ++i) {
      Config changed = config_with_variant(each);
      const std::string before = digest(changed);
      const Section section = section_of(changed, each.section);
      const Field& field = section.fields[i];
      const std::string name = each.section + '(' + each.variant + ")." + std::string(field.name);
      const Config original = changed;
      for (int tries = 0; tries < 100 && changed == original; ++tries) fill_field(field, random);
      ASSERT_FALSE(changed == original) << name;
      EXPECT_EQ(digest(changed) != before, field.affects_result) << name;
      const auto changes = diff_configs(original, changed);
      EXPECT_FALSE(changes.empty()) << name;
    }
  }
}

TEST(SchemaTest, MarksFieldsOfMappingsAsTheirMapping) {
  size_t num_nested = 0;
  for (const SectionVariant& each : all_section_variants()) {
    Config config = config_with_variant(each);
    for (const Field& field : section_of(config, each.section).fields) {
      const auto* const mapping = std::get_if<MappingField>(&field.target);
      if (mapping == nullptr) continue;
      mapping->reset(mapping->target, true);
      for (const Field& nested : mapping->fields(mapping->target)) {
        ++num_nested;
        EXPECT_EQ(nested.affects_result, field.affects_result) << field.name << '.' << nested.name;
        EXPECT_EQ(nested.on_resume, field.on_resume) << field.name << '.' << nested.name;
      }
    }
  }
  EXPECT_GT(num_nested, 0u);
}

TEST(SchemaTest, AllowsOnlyFixedSettingsToDependOnSamples) {
  // A setting that determines samples or tensors must not be freely changeable.
  for_each_field([](const std::string& name, const Field& field) {
    if (field.on_resume == OnResume::kModel || field.on_resume == OnResume::kBatch) {
      EXPECT_TRUE(field.affects_result) << name;
    }
  });
}

}  // namespace
}  // namespace stoker::config::test
