// Settings whose values only the owner and operators see.
#include <sys/stat.h>

#include <regex>

#include "shared/config/schema.h"
#include "tests/shared/config/config_text.h"
#include "tests/shared/config/variant_configs.h"
#include "tests/support/temporary_directory.h"

namespace stoker::config::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Two commands with a token, in the form of a resolved configuration.
const std::string kSecrets =
    kTextData +
    "run:\n  on_event_command: [{events: [daemon started], command: [/bin/n, TOKEN-1]}]\n"
    "eval:\n  on_best_command: [/bin/b, \"-H\", \"Bearer TOKEN-2\"]\n";

std::vector<std::string> secret_settings() {
  std::vector<std::string> keys;
  for (const Setting& setting : all_settings(Config()))
    if (setting.is_secret) keys.push_back(setting.key);
  return keys;
}

// Every setting with such a name is secret, also a field of a list or of a mapping.
void expect_secret_names(const std::vector<Field>& fields, const std::string& above, bool is_secret,
                         std::set<std::string>& found) {
  static const std::regex kNames(
      "(.*_)?(command|url|uri|webhook|password|secret|credentials?|api_key|auth)");
  for (const Field& field : fields) {
    const std::string key = above + "." + std::string(field.name);
    const bool covered = is_secret || field.is_secret;
    if (std::regex_match(std::string(field.name), kNames)) {
      EXPECT_TRUE(covered) << key;
      found.insert(key);
    }
    if (const auto* const list = std::get_if<ListField>(&field.target)) {
      list->resize(list->target, 1);
      expect_secret_names(list->fields(list->target, 0), key, covered, found);
      list->resize(list->target, 0);
    } else if (const auto* const mapping = std::get_if<MappingField>(&field.target)) {
      if (!mapping->is_set(mapping->target)) mapping->reset(mapping->target, true);
      expect_secret_names(mapping->fields(mapping->target), key, covered, found);
    }
  }
}

TEST(SecretSettingsTest, AreCommands) {
  EXPECT_THAT(secret_settings(), ElementsAre("run.on_event_command", "eval.on_best_command"));
  std::set<std::string> found;
  for (const SectionVariant& each : all_section_variants()) {
    Config config = config_with_variant(each);
    expect_secret_names(section_of(config, each.section).fields, each.section, false, found);
  }
  EXPECT_THAT(found, ElementsAre("eval.on_best_command", "run.on_event_command",
                                 "run.on_event_command.command"));
}

// A change of them would be in the log, in setting_changes.jsonl and on the page.
TEST(SecretSettingsTest, CannotChangeDuringRun) {
  size_t num_live = 0;
  for (const Setting& setting : all_settings(Config()))
    num_live += setting.is_secret && setting.is_live;
  EXPECT_EQ(num_live, 0u);
}

TEST(SecretSettingsTest, AreHiddenInTextOfConfiguration) {
  const Config config = valid_config(kSecrets);
  const std::string shown = hide_secrets(to_yaml(config));
  EXPECT_THAT(shown, HasSubstr("\n  on_event_command: (hidden)\n"));
  EXPECT_THAT(shown, HasSubstr("\n  on_best_command: (hidden)\n"));
  EXPECT_THAT(shown, Not(HasSubstr("TOKEN")));
  EXPECT_THAT(shown, HasSubstr("\n  max_steps: "));
  const std::string without = to_yaml(valid_config(kTextData));
  EXPECT_EQ(hide_secrets(without), without) << "no command is not a secret";
}

// Of a config.yaml that stokerd has not written.
TEST(SecretSettingsTest, AreHiddenInOtherForms) {
  for (const std::string text :
       {"run: {on_event_command: [{command: [TOKEN]}]}\n",
        "eval:\n  \"on_best_command\": [TOKEN]\n", "eval:\n  on_best_command:\n    - TOKEN\n",
        "eval:\n  on_best_command: [a,\n    TOKEN]\n", "eval:\n  on_best_command: |\n    TOKEN\n",
        "eval: {x: 1, on_best_command: [TOKEN", "eval:\n\ton_best_command : [TOKEN]\n",
        "# on_best_command: [TOKEN]\n"}) {
    EXPECT_THAT(hide_secrets(text), Not(HasSubstr("TOKEN"))) << text;
    EXPECT_THAT(hide_secrets("train:\n  max_steps: 5\n" + text), Not(HasSubstr("TOKEN"))) << text;
  }
}

TEST(SecretSettingsTest, AreHiddenInDifferences) {
  const Config before = valid_config(kTextData), after = valid_config(kSecrets);
  std::vector<std::string> lines;
  for (const SettingChange& change : diff_configs(before, after)) lines.push_back(change.text());
  EXPECT_THAT(lines, ElementsAre("run.on_event_command: (hidden) -> (hidden)",
                                 "eval.on_best_command: (hidden) -> (hidden)"));
  EXPECT_TRUE(diff_configs(after, after).empty());
}

TEST(SecretSettingsTest, AreHiddenInErrors) {
  const Flags flags{"run.on_event_command=TOKEN-0",
                    "run.on_event_command=[{events: [daemon started], command: TOKEN-1}]",
                    "run.on_event_command=[{events: [], command: [[TOKEN-2]]}]",
                    "run.on_event_command=[TOKEN-3]",
                    "eval.on_best_command=TOKEN-4",
                    "eval.on_best_command=[{a: TOKEN-5}]",
                    "eval.on_best_comand=[TOKEN-6]",
                    "eval.onbest_command=[TOKEN-7",
                    "run={on_event_command: TOKEN-8}",
                    "run.on_event_command.0=TOKEN-9"};
  for (const std::string& flag : flags) {
    const auto as_flag = errors_of(kTextData, {flag});
    EXPECT_FALSE(as_flag.empty()) << flag;
    for (const std::string& line : as_flag) EXPECT_THAT(line, Not(HasSubstr("TOKEN")));
  }
  for (const std::string text :
       {"run: {on_event_command: TOKEN}\n", "eval: {on_best_command: TOKEN}\n",
        "run: {on_event_command: [{events: [daemon started], command: \"TOKEN\"}]}\n",
        "eval: {on_best_command: [\"a\", {TOKEN: b}]}\n"}) {
    const auto lines = errors_of(kTextData + text);
    EXPECT_FALSE(lines.empty()) << text;
    for (const std::string& line : lines) EXPECT_THAT(line, Not(HasSubstr("TOKEN"))) << text;
  }
  EXPECT_THAT(errors_of(kTextData, {"train.max_steps=many"}), ElementsAre(HasSubstr("'many'")));
}

TEST(SecretSettingsTest, AreReadableByOwnerOnlyInFile) {
  const stoker::test::TemporaryDirectory directory;
  const std::string path = directory / "config.yaml";
  const auto mode_of_written = [&](const std::string& text) {
    EXPECT_TRUE(write_config(default_file_system(), path, valid_config(text)).ok());
    EXPECT_EQ(valid_config(*read_file(path, 1 << 20)), valid_config(text));
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return info.st_mode & 0777;
  };
  EXPECT_EQ(mode_of_written(kSecrets), 0600u);
  EXPECT_EQ(mode_of_written(kTextData), 0640u) << "after a change of the configuration";
}

}  // namespace
}  // namespace stoker::config::test
