// config/stoker.yaml, the examples beside it, and docs/configuration.md say what the code does.
#include <map>
#include <optional>
#include <set>

#include "shared/base/file.h"
#include "shared/config/schema.h"
#include "tests/shared/config/config_text.h"
#include "tests/shared/config/manual_text.h"

namespace stoker::config::test {
namespace {

const std::string kSource = STOKER_SOURCE_DIR;

std::string text_of(const std::string& name) {
  auto text = read_file(kSource + '/' + name, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : std::string();
}

// A good text in which a section has a kind that reads a certain key.
std::string text_with(const std::string& section, const std::string& kind, const std::string& key) {
  const std::string task = "task: {kind: classification}\n";
  const std::string mlp = task + "model: {kind: mlp}\n";
  if (section == "data.train") {
    // Lists of labels are of records that are sequences.
    const bool is_list = key.ends_with(".labels");
    const auto record = [&](const char* fields) {
      return std::string("path: a, input: x, ") + (is_list ? "longest: 9" : fields);
    };
    const std::map<std::string, std::string> sets{{"text", "path: a"},
                                                  {"tokens", "path: a"},
                                                  {"images", "path: a, size: [8, 8]"},
                                                  {"idx", "path: a, labels: b"},
                                                  {"cifar", "path: a, classes: 10"},
                                                  {"tfrecord", record("size: [8, 8], label: y")},
                                                  {"tar", record("size: [8, 8], label: cls")},
                                                  {"npy", "path: a"},
                                                  {"csv", "path: a, label: y"},
                                                  {"jsonl", record("label: y")},
                                                  {"synthetic", "samples: 5, features: [3]"},
                                                  {"mixture", "of: [code, prose]"}};
    const bool is_sequence = kind == "text" || kind == "tokens" || kind == "mixture";
    const std::string others = kind == "mixture" ? ", code: {path: a}, prose: {path: b}" : "";
    // Columns, which only a list has.
    const bool of_list = kind == "images" && (key.ends_with(".input") || key.ends_with(".label") ||
                                              key.ends_with(".classes"));
    return "data: {train: {kind: " + kind + ", " + sets.at(kind) +
           (of_list ? ", list: a.csv" : "") + '}' + others + "}\n" + (is_sequence ? "" : mlp);
  }
  const bool is_bare_stack = kind == "layers" && key != "model.stack";
  if (section == "model" && is_bare_stack)
    return kPictures + "model: {kind: layers, stack: [{kind: linear}]}\n";
  if (section == "model" && (kind == "plugin" || kind == "torchscript"))
    return kPictures + "model: {kind: " + kind + ", path: a}\n";
  if (section == "model")
    return (kind == "gpt" || kind == "lstm" ? kData : kPictures) + "model: {kind: " + kind + "}\n";
  const bool asks_about_steps = kind == "tagging" || kind == "ctc";
  if (section == "task" && kind != "language_model")
    return "data: {train: {kind: cifar, path: a, classes: 10}}\nmodel: {kind: " +
           std::string(asks_about_steps ? "blstm" : "mlp") + "}\ntask: {kind: " + kind + "}\n";
  if (kind.empty()) return kData;
  if (section == "feed") return kData + "feed: {shuffle: " + kind + "}\n";
  return kData + section + ": {kind: " + kind + "}\n";
}

struct Known {
  std::vector<std::string> kinds;  // that read it; one empty word: there are no kinds
};

// Every key that the code knows, "data.train.path" among them.
std::map<std::string, Known> known_keys() {
  Config config = good(kData);
  std::map<std::string, Known> keys;
  for (const Section& section : sections_of(config)) {
    for (const Field& field : section.fields) {
      std::istringstream kinds{std::string(field.kinds)};
      Known known;
      for (std::string kind; kinds >> kind;) known.kinds.push_back(kind);
      if (known.kinds.empty()) known.kinds.emplace_back(section.kind());
      keys[section.key + '.' + std::string(field.name)] = known;
    }
  }
  return keys;
}

// The default that is shown is the code's for at least one of the kinds, and allowed for the others.
void expect_default(const std::string& key, const std::string& value) {
  const std::string section = key.substr(0, key.rfind('.'));
  bool is_default = false;
  const Known known = known_keys().at(key);
  for (const std::string& kind : known.kinds) {
    const std::string text = text_with(section, kind, key);
    const auto shown = parsed(text, {key + "=" + value});
    is_default = is_default || (shown.ok() && *shown == good(text));
  }
  EXPECT_TRUE(is_default) << key << ": " << value << " is not the default";
}

bool is_required(const std::string& comment) {
  return comment.find("required") != std::string::npos;
}

// ---- config/stoker.yaml

TEST(Manual, ComesToTheDefaultsOfTheCode) {
  Config expected;
  DatasetConfig headers;
  headers.path = "/usr/include/c++";
  headers.context = expected.model.context;
  expected.data = {{"train", headers}, {"valid", headers}};
  expected.data["train"].split = {0.0, 0.9};
  expected.data["valid"].split = {0.9, 1.0};
  const auto manual = load_config(kSource + "/config/stoker.yaml", {});
  ASSERT_TRUE(manual.ok()) << manual.status().message();
  EXPECT_EQ(*manual, expected) << testing::PrintToString(differences(expected, *manual));
}

TEST(Manual, ShowsEveryKeyOnceAndNoOther) {
  std::multiset<std::string> shown;
  for (const ManualKey& key : manual_keys(text_of("config/stoker.yaml")))
    if (key.section != "data.valid") shown.insert(key.full_name());
  std::multiset<std::string> known;
  for (const auto& [key, each] : known_keys()) known.insert(key);
  EXPECT_EQ(shown, known);
}

TEST(Manual, SaysAboutEachKeyWhatItIsAndWhichKindsReadIt) {
  const auto known = known_keys();
  for (const ManualKey& key : manual_keys(text_of("config/stoker.yaml"))) {
    if (key.section == "data.valid") continue;
    EXPECT_GT(key.comment.size(), 20u) << key.full_name();
    for (const std::string& kind : known.at(key.full_name()).kinds) {
      if (kind.empty() || known.at(key.full_name()).kinds.size() == 1) continue;
      EXPECT_THAT(key.comment, testing::HasSubstr(kind)) << key.full_name();
    }
  }
}

TEST(Manual, CommentsOutExactlyTheKeysThatItsKindsDoNotRead) {
  Config config = good(kData);
  std::set<std::string> not_read;
  for (const Section& section : sections_of(config))
    for (const Field& field : section.fields)
      if (!section.reads(field)) not_read.insert(section.key + '.' + std::string(field.name));
  std::set<std::string> commented_out;
  for (const ManualKey& key : manual_keys(text_of("config/stoker.yaml")))
    if (key.is_commented_out) commented_out.insert(key.full_name());
  EXPECT_EQ(commented_out, not_read);
}

TEST(Manual, ShowsTheDefaultAlsoOfKeysThatOtherKindsRead) {
  for (const ManualKey& key : manual_keys(text_of("config/stoker.yaml"))) {
    if (!key.is_commented_out) continue;
    if (!is_required(key.comment)) expect_default(key.full_name(), key.value);
    const Known known = known_keys().at(key.full_name());
    for (const std::string& kind : known.kinds)
      good(text_with(key.section, kind, key.full_name()), {key.full_name() + "=" + key.value});
  }
}

TEST(Manual, SaysWhichKeysAreRequired) {
  for (const ManualKey& key : manual_keys(text_of("config/stoker.yaml"))) {
    if (key.section != "data.train" || !is_required(key.comment)) continue;
    const std::string kind = known_keys().at(key.full_name()).kinds.front();
    EXPECT_THAT(mistakes(text_with(key.section, kind, key.full_name()), {key.full_name() + "="}),
                testing::ElementsAre(testing::HasSubstr(key.full_name())));
  }
}

// ---- The examples

TEST(Examples, AreGood) {
  for (const char* const name : {"cpp-gpt", "mnist-lenet", "cifar-resnet"}) {
    const auto config = load_config(kSource + "/config/" + name + ".yaml", {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->run.dir, std::string("runs/") + name);
    EXPECT_EQ(config->eval.sets, (std::vector<std::string>{"valid"}));
    EXPECT_GE(config->train.steps / config->checkpoint.every_steps, 5u) << name;
  }
}

// ---- docs/configuration.md

TEST(ConfigurationPage, HasARowForEveryKeyAndNoOther) {
  std::multiset<std::string> rows;
  for (const PageRow& row : page_rows(text_of("docs/configuration.md"))) rows.insert(row.key);
  std::multiset<std::string> known;
  for (std::string key : [] {
         std::vector<std::string> keys;
         for (const auto& [key, each] : known_keys()) keys.push_back(key);
         return keys;
       }()) {
    if (key.starts_with("data.train.")) key = "data.NAME." + key.substr(11);
    known.insert(key);
  }
  EXPECT_EQ(rows, known);
}

TEST(ConfigurationPage, ShowsTheDefaults) {
  for (const PageRow& row : page_rows(text_of("docs/configuration.md"))) {
    if (row.value == "required") continue;
    std::string key = row.key;
    if (key.starts_with("data.NAME.")) key = "data.train." + key.substr(10);
    if (key == "eval.sets") continue;  // depends on the data
    expect_default(key, row.value);
  }
}

TEST(ConfigurationPage, ShowsMistakesAsTheyAreTold) {
  const std::string page = text_of("docs/configuration.md");
  const auto wrong = page_blocks(page, "yaml wrong.yaml");
  const auto told = page_blocks(page, "text wrong.yaml");
  ASSERT_EQ(wrong.size(), 1u);
  ASSERT_EQ(told.size(), 1u);
  const auto config = parse_config(wrong[0], "wrong.yaml", {"train.stepz=10"});
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(
      "$ stokerd --config wrong.yaml --set train.stepz=10\n" + config.status().message() + "\n",
      told[0]);
}

TEST(ConfigurationPage, ItsOtherExamplesAreGood) {
  for (const std::string& block : page_blocks(text_of("docs/configuration.md"), "yaml"))
    good(block);
}

}  // namespace
}  // namespace stoker::config::test
