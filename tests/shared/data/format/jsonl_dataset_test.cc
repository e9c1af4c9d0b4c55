#include <string>

#include <gtest/gtest.h>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/fake_sandbox.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/support/tokenizer_files.h"

namespace stoker::data::format {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeSandbox;
using ::testing::HasSubstr;
using testing::read_sample;

class JsonlDatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig jsonl() const {
    config::DatasetConfig config;
    config.source = config::JsonlDataset{};
    path_in(config) = path("data.jsonl");
    return config;
  }
  config::DatasetConfig labeled(const std::vector<std::string>& input = {"x"}) const {
    config::DatasetConfig config = jsonl();
    fields_in(config).input = input;
    fields_in(config).label = "y";
    return config;
  }
  config::DatasetConfig text(int64_t context) const {
    config::DatasetConfig config = jsonl();
    fields_in(config).text = "t";
    sequence_in(config).block_size = context;
    return config;
  }
};

TEST_F(JsonlDatasetTest, ReadsNumbersOfNestedFieldsAndLabels) {
  write("data.jsonl",
        "{\"x\": 1, \"m\": {\"z\": 0.5}, \"y\": \"cat\"}\n\n"
        "{\"y\": \"ape\", \"m\": {\"z\": -1}, \"x\": 2}\r\n");
  const auto dataset = opened(labeled({"m.z", "x"}));
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_THAT(dataset->class_names(), ElementsAre("ape", "cat"));
  EXPECT_EQ(dataset->spec()[0].shape, (std::vector<int64_t>{2}));
  EXPECT_THAT(read_sample(*dataset, 0).values<float>(0), ElementsAre(0.5, 1));
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(-1, 2));
  EXPECT_EQ(read_sample(*dataset, 0).label(), 1);
}

TEST_F(JsonlDatasetTest, ReadsNestedListsWithInputShape) {
  write("data.jsonl", "{\"x\": [[1, 2], [3, 4]], \"y\": 3}\n{\"x\": [1, 2, 3], \"y\": 0}\n");
  auto config = labeled();
  record_in(config).input_shape = {1, 2, 2};
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->classes(), 4u);
  EXPECT_THAT(read_sample(*dataset, 0).values<float>(0), ElementsAre(1, 2, 3, 4));
  const auto bad = read_sample(*dataset, 1);
  EXPECT_EQ(bad.status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(bad.status.message(), HasSubstr(path("data.jsonl") + ": line 2 at offset 32"));
  EXPECT_THAT(bad.status.message(), HasSubstr("is too short: 3 of the required 4 numbers"));
}

TEST_F(JsonlDatasetTest, ReadsListsByTheirNames) {
  write("data.jsonl",
        R"({"x": 1, "y": 0, "w": 2, "box": [1, 2.5], "o": {"ids": [7, 8, 9], "at": [[1, 2]]}})"
        "\n"
        R"({"x": 2, "y": 1, "w": 3, "box": [[3], [4]], "o": {"ids": [5], "at": [[1, 2], [3, 4]]}})"
        "\n");
  auto config = labeled();
  fields_in(config).others = {"w"};
  fields_in(config).lists = {{.name = "box", .shape = {2, 1}},
                             {.name = "ids",
                              .field = "o.ids",
                              .dtype = config::NumberList::kInt64,
                              .max_length = 4,
                              .padding_value = -100},
                             {.name = "at", .field = "o.at", .shape = {2}, .max_length = 2}};
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->spec(), (std::vector<TensorSpec>{{"input", DType::kF32, {1}},
                                                      {"label", DType::kI64, {}},
                                                      {"w", DType::kF32, {}},
                                                      {"box", DType::kF32, {2, 1}},
                                                      {"ids", DType::kI64, {4}},
                                                      {"at", DType::kF32, {2, 2}}}));
  const auto first = read_sample(*dataset, 0), second = read_sample(*dataset, 1);
  EXPECT_THAT(first.values<float>(2), ElementsAre(2));
  EXPECT_THAT(first.values<float>(3), ElementsAre(1, 2.5F));
  EXPECT_THAT(first.values<int64_t>(4), ElementsAre(7, 8, 9, -100));
  EXPECT_THAT(first.values<float>(5), ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(second.values<float>(3), ElementsAre(3, 4));
  EXPECT_THAT(second.values<int64_t>(4), ElementsAre(5, -100, -100, -100));
  EXPECT_THAT(second.values<float>(5), ElementsAre(1, 2, 3, 4));
  const std::string fingerprint = dataset->fingerprint();
  fields_in(config).lists[1].padding_value = 0;
  EXPECT_NE(opened(config)->fingerprint(), fingerprint);
  EXPECT_THAT(read_sample(*opened(config), 1).values<int64_t>(4), ElementsAre(5, 0, 0, 0));
}

// An image without objects, which teaches what is none.
TEST_F(JsonlDatasetTest, ReadsEmptyListsWithMaxLength) {
  write("data.jsonl",
        "{\"x\": 1, \"y\": 0, \"ids\": [], \"at\": []}\n{\"x\": 2, \"y\": 1, \"ids\": [7], \"at\": "
        "[[1, 2]]}\n");
  auto config = labeled();
  fields_in(config).lists = {
      {.name = "ids", .dtype = config::NumberList::kInt64, .max_length = 2, .padding_value = -100},
      {.name = "at", .shape = {2}, .max_length = 2}};
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 2u);
  const auto sample = read_sample(*dataset, 0);
  EXPECT_THAT(sample.values<int64_t>(2), ElementsAre(-100, -100));
  EXPECT_THAT(sample.values<float>(3), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(read_sample(*dataset, 1).values<int64_t>(2), ElementsAre(7, -100));
  const auto missing = [&](const std::string& line, const std::string& what) {
    write("data.jsonl", "{\"x\": 2, \"y\": 1, \"ids\": [7], \"at\": [1, 2]}\n" + line + "\n");
    EXPECT_THAT(open(config).status().message(), HasSubstr("line 2 at offset 43: has no " + what));
  };
  missing(R"({"x": 1, "y": 0, "ids": []})", "lists 'at'");
  missing(R"({"x": 1, "y": 0, "ids": [], "at": null})", "lists 'at'");
  missing(R"({"x": [], "y": 0, "ids": [], "at": []})", "input 'x'");
  fields_in(config).lists[1] = {.name = "at", .shape = {2}};
  missing(R"({"x": 1, "y": 0, "ids": [], "at": []})", "lists 'at'");
}

TEST_F(JsonlDatasetTest, ReportsSampleErrorOfInvalidList) {
  const auto error_of = [this](const std::string& list, const config::ListConfig& of) {
    write("data.jsonl", R"({"x": 1, "y": 0, "ids": [1, 2]})"
                        "\n"
                        R"({"x": 1, "y": 0, "ids": )" +
                            list + "}\n");
    auto config = labeled();
    fields_in(config).lists = {of};
    const auto dataset = opened(config);
    EXPECT_TRUE(read_sample(*dataset, 0).status.ok());
    const auto sample = read_sample(*dataset, 1);
    EXPECT_EQ(sample.status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(sample.status.message(), HasSubstr(": line 2 at offset "));
    return sample.status.message();
  };
  const config::ListConfig ids{
      .name = "ids", .dtype = config::NumberList::kInt64, .shape = {2}, .max_length = 2};
  EXPECT_THAT(
      error_of("[1, 2, 3]", ids),
      HasSubstr("lists 'ids' has 3 numbers, which is not a multiple of the 2 of an element"));
  EXPECT_THAT(error_of("[1, 2, 3, 4, 5, 6]", ids),
              HasSubstr("lists 'ids' has 3 elements, more than max_length (2)"));
  EXPECT_THAT(error_of("[1, 2.5]", ids), HasSubstr("lists 'ids' must be a list of integers"));
  EXPECT_THAT(error_of(R"("12")", ids), HasSubstr("lists 'ids' must be a list of numbers"));
  const config::ListConfig fixed{.name = "ids", .shape = {2}};
  EXPECT_THAT(error_of("[1]", fixed), HasSubstr("is too short: 1 of the required 2 numbers"));
  EXPECT_THAT(error_of("[1, 2, 3]", fixed), HasSubstr("lists 'ids' has 3 numbers"));
}

TEST_F(JsonlDatasetTest, RejectsSettingsThatFitNoRecordOnOpen) {
  write("data.jsonl", "{\"x\": [1, 2, 3], \"y\": 1}\n{\"x\": [4, 5, 6], \"y\": 0}\n");
  const auto dataset = open(labeled());
  ASSERT_FALSE(dataset.ok());
  EXPECT_EQ(dataset.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(dataset.status().message(), HasSubstr("none of 2 inspected samples fits"));
  EXPECT_THAT(dataset.status().message(), HasSubstr("input 'x' has 3 numbers"));
  auto config = labeled();
  record_in(config).input_shape = {3};
  EXPECT_TRUE(open(config).ok());
}

TEST_F(JsonlDatasetTest, TreatsFilesAsShards) {
  write("data/a.jsonl", "{\"x\": 1, \"y\": 0}\n{\"x\": 2, \"y\": 1}\n{\"x\": 3, \"y\": 0}\n");
  write("data/b.jsonl", "{\"x\": 4, \"y\": 0}\n");
  write("data/c.jsonl", "{\"x\": 5, \"y\": 0}\n{\"x\": 6, \"y\": 1}\n");
  auto config = labeled();
  path_in(config) = path("data");
  EXPECT_THAT(opened(config)->shard_ends(), ElementsAre(3, 4, 6));
  config.split = {0.5, 1.0};
  EXPECT_THAT(opened(config)->shard_ends(), ElementsAre(1, 3));
}

TEST_F(JsonlDatasetTest, ReadsTargetsByNamesOrByCount) {
  write("data.jsonl", "{\"x\": 1, \"u\": 2, \"v\": 3, \"w\": [4, 5, 6]}\n");
  auto config = jsonl();
  fields_in(config).input = {"x"};
  fields_in(config).target = {"u", "v"};
  EXPECT_THAT(read_sample(*opened(config), 0).values<float>(1), ElementsAre(2, 3));
  fields_in(config).target = {"w"};
  record_in(config).num_targets = 3;
  EXPECT_THAT(read_sample(*opened(config), 0).values<float>(1), ElementsAre(4, 5, 6));
}

TEST_F(JsonlDatasetTest, ReadsTextsAsOneZeroSeparatedStream) {
  write("data.jsonl", "{\"t\": \"ab\\n\"}\n{\"t\": \"\"}\n{\"t\": \"\\u00fcxyz\"}\n");
  const auto dataset = opened(text(4));
  EXPECT_EQ(dataset->classes(), 256u);
  ASSERT_EQ(dataset->size(), 2u);  // "ab\n" 0 0 "üxyz" 0: 11 bytes
  EXPECT_EQ(read_sample(*dataset, 0).text(), std::string("ab\n\0\0", 5));
  EXPECT_EQ(read_sample(*dataset, 1).text(), std::string("\0\xc3\xbcxy", 5));
  EXPECT_EQ(dataset->source(1).offset, 14u);
}

TEST_F(JsonlDatasetTest, EncodesTextsWithTokenizer) {
  write("t.json", test::to_json(test::small_tokenizer()));
  write("data.jsonl", "{\"t\": \"to be\"}\n{\"t\": \"be to be to be\"}\n{\"t\": \"to\"}\n");
  auto config = jsonl();
  fields_in(config).text = "t";
  sequence_in(config).max_length = 4;
  sequence_in(config).on_overflow = config::OnOverflow::kTruncate;
  record_in(config).tokenizer = config::TokenizerConfig{path("t.json")};
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 3u);
  EXPECT_EQ(dataset->classes(), 261u);
  EXPECT_EQ(dataset->spec()[0], (TensorSpec{.name = "tokens", .dtype = DType::kI32, .shape = {4}}));
  EXPECT_THAT(read_sample(*dataset, 0).values<int32_t>(0), ElementsAre(256, 259, 260, 0));
  EXPECT_THAT(read_sample(*dataset, 0).values<int64_t>(1), ElementsAre(3));
  EXPECT_THAT(read_sample(*dataset, 1).values<int32_t>(0), ElementsAre(257, 258, 259, 258));
  EXPECT_EQ(dataset->length(1), 4u);
  const std::string before = dataset->fingerprint();
  write("t.json", test::to_json(test::small_tokenizer()) + " ");
  EXPECT_NE(opened(config)->fingerprint(), before);
  // With a label, a text has no end token.
  write("data.jsonl", "{\"t\": \"to be\", \"y\": 1}\n{\"t\": \"to\", \"y\": 0}\n");
  fields_in(config).label = "y";
  EXPECT_THAT(read_sample(*opened(config), 0).values<int32_t>(0), ElementsAre(256, 259, 0, 0));
  write("t.json", "words\n");
  expect_error(config, StatusCode::kCorrupt, {"data.train.tokenizer.path: ", "is no tokenizer"});
}

// The [SEP] that ends a truncated text has not the label of the token whose place it has.
TEST_F(JsonlDatasetTest, IgnoresTheLabelsOfTokensThatEndATruncatedText) {
  write("t.json", test::to_json(test::small_word_piece()));
  write("data.jsonl",
        "{\"t\": \"to be\", \"y\": [-100, 1, 2, 3]}\n"
        "{\"t\": \"to be, or\", \"y\": [0, 1, 2, 3, 1, 0]}\n");
  auto config = jsonl();
  fields_in(config).text = "t";
  fields_in(config).labels = "y";
  sequence_in(config).max_length = 4;
  sequence_in(config).on_overflow = config::OnOverflow::kTruncate;
  record_in(config).tokenizer = config::TokenizerConfig{path("t.json")};
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_THAT(read_sample(*dataset, 0).values<int32_t>(0), ElementsAre(2, 5, 6, 3));
  EXPECT_THAT(read_sample(*dataset, 0).values<int64_t>(2), ElementsAre(-100, 1, 2, 3));
  EXPECT_THAT(read_sample(*dataset, 1).values<int32_t>(0), ElementsAre(2, 5, 6, 3));
  EXPECT_THAT(read_sample(*dataset, 1).values<int64_t>(2), ElementsAre(0, 1, 2, -100));
}

TEST_F(JsonlDatasetTest, CountsTheEndTokenOfEmptyTexts) {
  std::string file = test::to_json(test::small_word_piece());
  const std::string added = "\"added_tokens\": [";
  file.insert(file.find(added) + added.size(),
              R"({"id": 11, "content": "</s>", "normalized": false, "special": true}, )");
  write("t.json", file);
  write("data.jsonl", "{\"t\": \"to be\"}\n{\"t\": \"\"}\n");
  auto config = jsonl();
  fields_in(config).text = "t";
  sequence_in(config).max_length = 5;
  record_in(config).tokenizer = config::TokenizerConfig{path("t.json")};
  const FakeSandbox sandbox(path("t.json"));
  for (const FakeSandbox* const maybe_sandbox :
       {static_cast<const FakeSandbox*>(nullptr), &sandbox}) {
    const auto opened = pipeline::open_dataset(
        "train", config, path(maybe_sandbox == nullptr ? "a" : "b"), {}, 0, maybe_sandbox);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    ASSERT_EQ((*opened)->size(), 2u);
    EXPECT_THAT(read_sample(**opened, 0).values<int32_t>(0), ElementsAre(2, 5, 6, 3, 11));
    EXPECT_THAT(read_sample(**opened, 1).values<int32_t>(0), ElementsAre(2, 3, 11, 0, 0));
  }
}

// [CLS] and [SEP] surround each text, also one that is empty or truncated.
TEST_F(JsonlDatasetTest, EncodesTextsForBert) {
  write("t.json", test::to_json(test::small_word_piece()));
  write("data.jsonl",
        "{\"t\": \"to be\", \"y\": 1}\n{\"t\": \"be, or to be\", \"y\": 0}\n{\"t\": \"\", \"y\": "
        "1}\n");
  auto config = jsonl();
  fields_in(config).text = "t";
  fields_in(config).label = "y";
  sequence_in(config).max_length = 5;
  sequence_in(config).on_overflow = config::OnOverflow::kTruncate;
  record_in(config).tokenizer = config::TokenizerConfig{path("t.json")};
  const FakeSandbox sandbox(path("t.json"));
  for (const FakeSandbox* const maybe_sandbox :
       {static_cast<const FakeSandbox*>(nullptr), &sandbox}) {
    const auto opened = pipeline::open_dataset(
        "train", config, path(maybe_sandbox == nullptr ? "a" : "b"), {}, 0, maybe_sandbox);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    const Dataset& dataset = **opened;
    ASSERT_EQ(dataset.size(), 3u);
    EXPECT_EQ(dataset.classes(), 2u);
    EXPECT_THAT(read_sample(dataset, 0).values<int32_t>(0), ElementsAre(2, 5, 6, 3, 0));
    EXPECT_THAT(read_sample(dataset, 0).values<int64_t>(1), ElementsAre(4));
    EXPECT_THAT(read_sample(dataset, 1).values<int32_t>(0), ElementsAre(2, 6, 9, 10, 3));
    EXPECT_THAT(read_sample(dataset, 1).values<int64_t>(1), ElementsAre(5));
    EXPECT_THAT(read_sample(dataset, 2).values<int32_t>(0), ElementsAre(2, 3, 0, 0, 0));
  }
  sequence_in(config).max_length = 2;
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.sequence.max_length",
                "must be above 2, the tokens that the tokenizer "
                "adds to each text"});
}

// Their lengths are those that the sandbox returns.
TEST_F(JsonlDatasetTest, CountsTokensInSandbox) {
  write("t.json", test::to_json(test::small_tokenizer()));
  write("data.jsonl", "{\"t\": \"to be\"}\n{\"t\": \"\"}\n{\"t\": \"to be to be\"}\n");
  auto config = jsonl();
  fields_in(config).text = "t";
  sequence_in(config).max_length = 9;
  record_in(config).on_missing_field = config::OnMissingField::kDrop;
  record_in(config).tokenizer = config::TokenizerConfig{path("t.json")};
  const FakeSandbox sandbox(path("t.json"));
  const auto dataset = pipeline::open_dataset("train", config, index_dir(), {}, 0, &sandbox);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ(sandbox.num_texts, 2u) << "an empty text has no tokens";
  ASSERT_EQ((*dataset)->size(), 2u);
  EXPECT_EQ((*dataset)->length(0), 3u);
  EXPECT_EQ((*dataset)->length(1), 5u);
  EXPECT_THAT(read_sample(**dataset, 0).values<int32_t>(0),
              ElementsAre(256, 259, 260, 0, 0, 0, 0, 0, 0));
  const FakeSandbox lying(path("t.json"), [](TextTokenizer::Part& part) { part.bytes = 1; });
  const auto wrong = pipeline::open_dataset("train", config, path("other"), {}, 0, &lying);
  EXPECT_EQ(wrong.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(wrong.status().message(), AllOf(HasSubstr("data.jsonl"), HasSubstr("line 1"),
                                              HasSubstr("sent an impossible result")));
}

TEST_F(JsonlDatasetTest, RejectsMalformedLinesWithLocationOnOpen) {
  write("data.jsonl", "{\"x\": 1, \"y\": 0}\n{\"x\": 1, \"y\": 0\n");
  expect_error(labeled(), StatusCode::kCorrupt,
               {"data.train.path", path("data.jsonl"), "line 2 at offset 17", "invalid JSON"});
  write("data.jsonl", "{\"x\": 1, \"y\": {}}\n");
  expect_error(labeled(), StatusCode::kCorrupt, {"line 1", "'y' is an object"});
  write("data.jsonl", "{\"t\": 5}\n");
  expect_error(text(2), StatusCode::kCorrupt, {"line 1", "text 't' must be text, got 1 integer"});
}

// As json.dumps() of Python writes NaN, and files cut within a character or a surrogate pair.
TEST_F(JsonlDatasetTest, SaysWhyLinesAreBadAndCountsThem) {
  const std::vector<std::pair<std::string, std::string>> bad{
      {R"({"x": NaN, "y": 0})", "NaN is no number of JSON; write null"},
      {R"({"x": -Infinity, "y": 0})", "Infinity is no number of JSON"},
      {R"({"x": 1, "z": "\ud83d here", "y": 0})", "half of a surrogate pair"},
      {"{\"x\": 1, \"z\": \"caf\xe9\", \"y\": 0}", "not UTF-8"},
      {R"({"x": 1, "y": 0)", "invalid JSON (incomplete JSON)"},
      {R"({"x": 1, "y": -1})", "label 'y' must be at least 0, got -1"}};
  std::string good;
  for (int i = 0; i < 97; ++i)
    good += R"({"x": 2, "y": 1})"
            "\n";
  for (const auto& [line, cause] : bad) {
    write("data.jsonl", good + line + "\n" + line + "\n" + line + "\n");
    auto config = labeled();
    expect_error(config, StatusCode::kCorrupt, {"line 98", cause, "3 of 100 are bad"});
    record_in(config).max_bad_record_rate = 0.03;
    EXPECT_EQ(opened(config)->size(), 97u);
  }
}

// As pandas.to_json() and json.dump() write a list.
TEST_F(JsonlDatasetTest, NamesArrayOfObjects) {
  for (const char* const text : {"[{\"x\": 1, \"y\": 0}, {\"x\": 2, \"y\": 1}]",
                                 "[\n  {\"x\": 1, \"y\": 0},\n  {\"x\": 2, \"y\": 1}\n]\n"}) {
    write("data.jsonl", text);
    expect_error(labeled(), StatusCode::kCorrupt, {"line 1", "begins a JSON array", "jq -c '.[]'"});
  }
}

TEST_F(JsonlDatasetTest, RejectsOrDropsLinesWithMissingField) {
  write("data.jsonl", "{\"x\": 1, \"y\": 0}\n{\"x\": null, \"y\": 1}\n{\"x\": 3, \"y\": 1}\n{}\n");
  auto config = labeled();
  expect_error(config, StatusCode::kCorrupt, {"line 2", "no input 'x'", "2 of 4"});
  record_in(config).on_missing_field = config::OnMissingField::kDrop;
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(3));
}

TEST_F(JsonlDatasetTest, ReadsFilesOfFolderAsOneDataset) {
  write("data/a.jsonl", "{\"x\": 1, \"y\": 0}\n");
  write("data/b.jsonl", "{\"x\": 2, \"y\": 1}\n{\"x\": 3, \"y\": 1}");
  auto config = labeled();
  path_in(config) = path("data");
  config.split = {0.5, 1};
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(3));
  const auto again = pipeline::open_indexed("train", config, index_dir(), dataset->fingerprint());
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(read_sample(**again, 0).values<float>(0), ElementsAre(2));
}

TEST_F(JsonlDatasetTest, ReadsTwoDatasetsAlternatelyOnOneThread) {
  write("data.jsonl", "{\"x\": 1, \"z\": 5, \"y\": 0}\n");
  const auto one = opened(labeled());
  const auto two = *open(labeled({"z"}), "val");
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_THAT(read_sample(*one, 0).values<float>(0), ElementsAre(1));
    EXPECT_THAT(read_sample(*two, 0).values<float>(0), ElementsAre(5));
  }
}

}  // namespace
}  // namespace stoker::data::format
