// data.NAME.split_by: which samples are in which part. Expected samples are computed by an independent
// implementation in Python of the hash that docs/datasets.md describes.
#include "shared/data/sample_split.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/pipeline/dataset_overlap.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/small_datasets.h"

namespace stoker::data::pipeline {
namespace {

using config::DatasetConfig;
using config::SplitBy;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_sample;
using testing::SmallDataset;

// By file and offset, as the identity of samples in messages.
using Sources = std::vector<std::pair<std::string, uint64_t>>;

Sources sources_of(const Dataset& data) {
  Sources sources;
  for (uint64_t sample = 0; sample < data.size(); ++sample) {
    const SampleSource source = data.source(sample);
    sources.emplace_back(source.file, source.offset);
  }
  return sources;
}

DatasetConfig part(DatasetConfig config, SplitBy by, double from, double to, uint64_t seed = 0) {
  config.split = {from, to};
  config.split_by = by;
  config.split_seed = seed;
  return config;
}

class SampleSplitTest : public testing::FolderFixture {
 protected:
  // "x,y" with rows "0,0", "1,1", "2,2", "3,0", …
  DatasetConfig table(int rows, const std::string& name = "data.csv") const {
    std::string text = "x,y\n";
    for (int i = 0; i < rows; ++i) text += std::to_string(i) + ',' + std::to_string(i % 3) + '\n';
    write(name, text);
    config::CsvDataset csv;
    csv.path = path(name);
    csv.record.fields.label = "y";
    return {.source = csv};
  }
  // The input of each sample of a table.
  std::vector<int> rows_of(const DatasetConfig& config) const {
    const auto data = opened(config);
    std::vector<int> rows;
    for (uint64_t sample = 0; data != nullptr && sample < data->size(); ++sample)
      rows.push_back(static_cast<int>(read_sample(*data, sample).values<float>(0)[0]));
    return rows;
  }
};

TEST_F(SampleSplitTest, ChoosesSamplesByHashOfSeedFileAndOffset) {
  const DatasetConfig config = table(40);
  EXPECT_THAT(rows_of(part(config, SplitBy::kRandom, 0.7, 1)),
              ElementsAre(0, 2, 3, 5, 17, 25, 27, 29, 33, 35, 37));
  EXPECT_THAT(rows_of(part(config, SplitBy::kRandom, 0.7, 1, 7)),
              ElementsAre(0, 2, 6, 7, 8, 11, 16, 18, 19, 20, 23, 27, 29, 31, 34, 36, 37, 39));
  EXPECT_THAT(rows_of(part(config, SplitBy::kStratified, 0.7, 1)),
              ElementsAre(0, 1, 2, 3, 17, 22, 25, 27, 33, 35, 37));
  DatasetConfig folder = table(40, "more/a.csv");
  path_in(folder) = path("more");
  for (const char* const slash : {"", "/"}) {
    path_in(folder) = path("more") + slash;
    EXPECT_THAT(rows_of(part(folder, SplitBy::kRandom, 0.7, 1)),
                ElementsAre(2, 8, 9, 11, 12, 15, 16, 21, 23, 28, 30, 31, 32, 36, 37));
  }
}

TEST_F(SampleSplitTest, KeepsPartOfEachSampleWhenDataIsAddedOrMoved) {
  DatasetConfig config = table(200, "data/m.csv");
  path_in(config) = path("data");
  const auto whole_names = [&](const DatasetConfig& of) {
    std::set<std::pair<std::string, uint64_t>> names;
    for (auto [file, offset] : sources_of(*opened(of)))
      names.emplace(std::filesystem::path(file).filename(), offset);
    return names;
  };
  const auto train = whole_names(part(config, SplitBy::kRandom, 0, 0.8));
  table(300, "data/m.csv");  // more rows
  table(50, "data/a.csv");   // a file before
  table(50, "data/z.csv");
  std::filesystem::rename(path("data"), path("moved"));
  path_in(config) = path("moved");
  const auto later = whole_names(part(config, SplitBy::kRandom, 0, 0.8));
  EXPECT_TRUE(std::ranges::includes(later, train));
  for (const auto& sample : whole_names(part(config, SplitBy::kRandom, 0.8, 1)))
    EXPECT_FALSE(train.contains(sample)) << sample.first << ' ' << sample.second;
}

TEST_F(SampleSplitTest, HasAboutFractionOfSamples) {
  const DatasetConfig config = table(20'000);
  for (const double fraction : {0.1, 0.5, 0.9}) {
    const auto data = opened(part(config, SplitBy::kRandom, 0, fraction));
    const double expected = 20'000 * fraction;
    const double deviation = std::sqrt(expected * (1 - fraction));
    EXPECT_NEAR(static_cast<double>(data->size()), expected, 4 * deviation) << fraction;
  }
}

// scikit-learn's train_test_split(stratify=labels, test_size=0.2) has 2, 4 and 15 of 7, 20 and 73.
TEST_F(SampleSplitTest, HasFractionOfEachClassWithinOneSample) {
  std::string text = "x,y\n";
  const std::vector<std::pair<std::string, int>> classes{{"a", 7}, {"b", 20}, {"c", 73}};
  for (const auto& [name, count] : classes)
    for (int i = 0; i < count; ++i) text += std::to_string(i) + ',' + name + '\n';
  write("data.csv", text);
  DatasetConfig config = table(1, "other.csv");
  path_in(config) = path("data.csv");
  for (const uint64_t seed : {0, 1, 2, 3, 4}) {
    for (const auto& [from, to] : {std::pair(0.0, 0.8), {0.8, 1.0}, {0.25, 0.5}}) {
      const auto data = opened(part(config, SplitBy::kStratified, from, to, seed));
      std::vector<int64_t> labels(data->size());
      ASSERT_TRUE(data->read_labels(0, labels).ok());
      for (size_t of = 0; of < classes.size(); ++of)
        EXPECT_LT(
            std::abs(static_cast<double>(std::ranges::count(labels, static_cast<int64_t>(of))) -
                     classes[of].second * (to - from)),
            1)
            << classes[of].first << ' ' << from << " seed " << seed;
    }
  }
}

// 100 classes of 5: a fifth of a sample of each is half of the classes' samples.
TEST_F(SampleSplitTest, HasFractionOfManySmallClassesTogether) {
  std::string text = "x,y\n";
  for (int i = 0; i < 500; ++i) text += std::to_string(i) + ',' + std::to_string(i / 5) + '\n';
  write("data.csv", text);
  DatasetConfig config = table(1, "other.csv");
  path_in(config) = path("data.csv");
  const auto data = opened(part(config, SplitBy::kStratified, 0.9, 1));
  EXPECT_NEAR(static_cast<double>(data->size()), 50, 20);  // 4 standard deviations
}

TEST_F(SampleSplitTest, ChoosesWholeGroupsByHashOfName) {
  const std::vector<std::string> people{"anna", "bert",  "carl", "dora",
                                        "emil", "fritz", "gina", "hugo"};
  std::string text = "x,patient,y\n";
  for (int i = 0; i < 80; ++i)
    text += std::to_string(i) + ',' + people[static_cast<size_t>(i) % 8] + ',' +
            std::to_string(i % 3) + '\n';
  write("data.csv", text);
  config::CsvDataset csv;
  csv.path = path("data.csv");
  csv.record.fields.label = "y";
  csv.record.fields.group = "patient";
  const DatasetConfig config{.source = csv};
  const auto data = opened(part(config, SplitBy::kGroup, 0.7, 1));
  EXPECT_THAT(data->info().input_columns, ElementsAre("x")) << "the group is no input";
  EXPECT_THAT(rows_of(part(config, SplitBy::kGroup, 0.7, 1)),
              ElementsAre(0, 8, 16, 24, 32, 40, 48, 56, 64, 72));
  EXPECT_EQ(opened(part(config, SplitBy::kGroup, 0, 0.7))->size(), 70u);
}

TEST_F(SampleSplitTest, ChoosesWholeFilesOfTokens) {
  for (int i = 0; i < 12; ++i)
    write("text/" + std::to_string(i) + ".txt", std::string(50, static_cast<char>('a' + i)));
  config::TextDataset text;
  text.path = path("text");
  text.sequence.block_size = 10;
  const auto letters = [&](double from, double to) {
    const auto data = opened(part({.source = text}, SplitBy::kGroup, from, to));
    std::string found;
    for (uint64_t sample = 0; sample < data->size(); ++sample)
      for (const char c : read_sample(*data, sample).text())
        if (found.find(c) == std::string::npos) found += c;
    std::ranges::sort(found);
    return found;
  };
  EXPECT_EQ(letters(0.7, 1), "acghik");  // 0, 2, 6, 7, 8 and 10
  EXPECT_EQ(letters(0, 0.7), "bdefjl");
}

TEST_F(SampleSplitTest, HasGroupsInEachFormatWithFields) {
  const auto group_of = [](int i) { return i % 20; };
  std::string lines, records, archive, list = "path,label,patient\n";
  std::vector<int64_t> groups;
  std::vector<uint8_t> labels;
  for (int i = 0; i < 60; ++i) {
    const std::string number = std::to_string(i), group = std::to_string(group_of(i));
    lines += "{\"x\": [" + number + "], \"y\": 1, \"p\": " + group + "}\n";
    records += testing::framed(testing::example({{"x", testing::floats_feature({float(i)})},
                                                 {"y", testing::ints_feature({1})},
                                                 {"p", testing::ints_feature({group_of(i)})}}));
    archive += testing::tar_member(number + ".x.npy",
                                   test::npy("<f4", "(1,)", test::bytes_of<float>({float(i)}))) +
               testing::tar_member(number + ".cls", "1") +
               testing::tar_member(number + ".json", "{\"p\": \"" + group + "\"}");
    groups.push_back(group_of(i));
    labels.push_back(1);
  }
  write("a.jsonl", lines);
  write("a.tfrecord", records);
  write("a.tar", archive + testing::kTarEnd);
  std::vector<float> inputs(60);
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<float>(i);
  for (const bool deflated : {false, true})
    write(deflated ? "b.npz" : "a.npz",
          test::zip({{"x.npy", test::npy("<f4", "(60, 1)", test::bytes_of(inputs))},
                     {"y.npy", test::npy("|u1", "(60,)", test::bytes_of(labels))},
                     {"p.npy", test::npy("<i8", "(60,)", test::bytes_of(groups))}},
                    deflated));
  config::JsonlDataset jsonl{.path = path("a.jsonl")};
  config::TfrecordDataset tfrecord;
  tfrecord.path = path("a.tfrecord");
  config::WebdatasetDataset tar;
  tar.path = path("a.tar");
  for (config::RecordConfig* const record : {&jsonl.record, &tfrecord.record, &tar.record}) {
    record->fields = {.input = {"x"}, .label = "y", .group = "p"};
    record->input_shape = {1};
  }
  tar.record.fields = {.input = {"x.npy"}, .label = "cls", .group = "json:p"};
  config::NumpyDataset npz{.path = path("a.npz"), .fields = {.group = "p"}};
  config::NumpyDataset compressed = npz;
  compressed.path = path("b.npz");
  // The groups whose place is at least 0.7.
  std::vector<int> expected;
  for (int i = 0; i < 60; ++i)
    if (std::set{4, 6, 9, 10, 15}.contains(group_of(i))) expected.push_back(i);
  const config::DatasetSource all[] = {jsonl, tfrecord, tar, npz, compressed};
  for (const config::DatasetSource& source : all) {
    const DatasetConfig config{.source = source};
    EXPECT_THAT(rows_of(part(config, SplitBy::kGroup, 0.7, 1)), ElementsAreArray(expected))
        << config.path();
    EXPECT_EQ(rows_of(part(config, SplitBy::kGroup, 0, 0.7)).size(), 60 - expected.size())
        << config.path();
  }
}

TEST_F(SampleSplitTest, HasGroupsOfImagesInFoldersAndLists) {
  DatasetConfig images = testing::small::images(path("unused"));
  std::string list = "path,label,patient\n";
  for (int i = 0; i < 40; ++i) {
    const std::string group = std::to_string(i % 20);
    const std::string name = (i % 2 == 0 ? "cat/" : "dog/") + group + "/" + std::to_string(i);
    write("images/" + name, testing::small::encoded_image(i));
    list += name + (i % 2 == 0 ? ",cat," : ",dog,") + group + "\n";
  }
  path_in(images) = path("images");
  write("images.csv", list);
  config::ImageListDataset listed;
  listed.path = path("images.csv");
  listed.root = path("images");
  listed.fields.group = "patient";
  listed.transforms = {config::Resize{{32, 32}}};
  const config::DatasetSource all[] = {images.source, listed};
  for (const config::DatasetSource& source : all) {
    std::set<std::string> groups;
    for (const auto& [file, offset] :
         sources_of(*opened(part({.source = source}, SplitBy::kGroup, 0.7, 1))))
      groups.insert(std::filesystem::path(file).parent_path().filename());
    EXPECT_EQ(groups, (std::set<std::string>{"4", "6", "9", "10", "15"}));
  }
  write("images/cat/alone.png", testing::small::encoded_image(1));
  expect_error(part(images, SplitBy::kGroup, 0.7, 1), StatusCode::kInvalidArgument,
               {"data.train.split_by: group requires a folder", "cat/alone.png"});
}

TEST_F(SampleSplitTest, NamesWhatIsMissing) {
  DatasetConfig texts = testing::small::tar_text(path("texts"));
  expect_error(part(texts, SplitBy::kStratified, 0, 0.5), StatusCode::kInvalidArgument,
               {"data.train.split_by: stratified requires one class per sample"});
  write("a.jsonl", "{\"t\": \"abcdefghij\", \"g\": 1}\n{\"t\": \"klmnopqrstu\", \"g\": 2}\n");
  config::JsonlDataset jsonl{.path = path("a.jsonl")};
  jsonl.record.fields = {.text = "t", .group = "g"};
  jsonl.record.sequence.block_size = 8;
  expect_error(part({.source = jsonl}, SplitBy::kGroup, 0, 0.5), StatusCode::kInvalidArgument,
               {"data.train.split_by: group requires samples that are records"});
  DatasetConfig csv = table(3);
  fields_in(csv).group = "patient";
  expect_error(part(csv, SplitBy::kGroup, 0, 0.5), StatusCode::kInvalidArgument,
               {"data.train.fields.group: there is no column 'patient'"});
  expect_error(part(table(3), SplitBy::kRandom, 0.5, 0.5000001), StatusCode::kInvalidArgument,
               {"data.train.split: takes none of the 3 samples; set another split_seed"});
  write("rows.csv", "x,p,y\n1,a,0\n2,,1\n");
  config::CsvDataset rows;
  rows.path = path("rows.csv");
  rows.record.fields = {.label = "y", .group = "p"};
  expect_error(part({.source = rows}, SplitBy::kGroup, 0, 0.99), StatusCode::kCorrupt,
               {"has no group 'p'", "line 3"});
}

TEST_F(SampleSplitTest, RejectsIndexWithOtherSamples) {
  const DatasetConfig config = part(table(40), SplitBy::kRandom, 0.7, 1);
  ASSERT_NE(opened(config), nullptr);
  const std::string file = index_dir() + "/train.index";
  auto index = files::load_index(file);
  ASSERT_TRUE(index.ok());
  ASSERT_EQ(index->metadata.selected.size(), 11u);
  for (const std::vector<uint64_t>& selected :
       {std::vector<uint64_t>{3, 3}, {4, 2}, {39, 40}, {}}) {
    index->metadata.selected = selected;
    ASSERT_TRUE(files::save_index(*index, file).ok());
    EXPECT_EQ(open_indexed("train", config, index_dir(), "").status().code(), StatusCode::kCorrupt);
  }
}

TEST_F(SampleSplitTest, FindsSamplesThatTwoDatasetsShare) {
  const DatasetConfig config = table(400);
  const auto shared = [&](const DatasetConfig& train, const DatasetConfig& val) {
    const config::DatasetConfigs datasets{{"train", train}, {"val", val}};
    const auto first = open_dataset("train", datasets, index_dir(), {});
    const auto second = open_dataset("val", datasets, path(".val"), {});
    EXPECT_TRUE(first.ok() && second.ok());
    const auto overlap = find_overlap(datasets, "val", **second, "train", **first);
    EXPECT_TRUE(overlap.has_value());
    return overlap ? overlap->samples : 0;
  };
  for (const SplitBy by : {SplitBy::kPosition, SplitBy::kRandom, SplitBy::kStratified}) {
    EXPECT_EQ(shared(part(config, by, 0, 0.8), part(config, by, 0.8, 1)), 0u);
    EXPECT_GT(shared(part(config, by, 0, 0.8), part(config, by, 0.7, 1)), 0u);
    EXPECT_EQ(shared(part(config, by, 0, 0.8), config), opened(part(config, by, 0, 0.8))->size())
        << "val is the whole";
  }
  EXPECT_GT(
      shared(part(config, SplitBy::kRandom, 0, 0.8), part(config, SplitBy::kRandom, 0.8, 1, 1)), 0u)
      << "other seeds";
  EXPECT_GT(
      shared(part(config, SplitBy::kRandom, 0, 0.8), part(config, SplitBy::kPosition, 0.8, 1)), 0u);
  DatasetConfig copy = table(400, "copy.csv");
  EXPECT_EQ(shared(config, copy), 0u) << "other files";
  std::filesystem::create_symlink(path("data.csv"), path("link.csv"));
  path_in(copy) = path("link.csv");
  EXPECT_EQ(shared(config, copy), 400u);
  DatasetConfig folder = config;
  path_in(folder) = path("");
  glob_in(folder) = "data.csv";
  EXPECT_EQ(shared(folder, config), 400u);
}

// Of each format: all parts together are the whole, and no sample is in two.
class SplitOfFormatTest : public SampleSplitTest,
                          public ::testing::WithParamInterface<SmallDataset> {
 protected:
  using Tensors = std::vector<std::vector<std::byte>>;

  void expect_partition(const DatasetConfig& config, SplitBy by) const {
    const auto whole = opened(config);
    ASSERT_NE(whole, nullptr);
    std::map<std::pair<std::string, uint64_t>, std::vector<Tensors>> wanted;
    std::vector<std::pair<SampleSource, Tensors>> found;
    for (const auto& [from, to] : {std::pair(0.0, 0.55), {0.55, 0.7}, {0.7, 1.0}}) {
      const DatasetConfig of_part = part(config, by, from, to);
      const auto data = open(of_part, "part", 1 << 20);
      ASSERT_TRUE(data.ok()) << data.status().to_string();
      const auto again = open_indexed("part", of_part, index_dir(), (*data)->fingerprint());
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      std::vector<int64_t> labels((*data)->size());
      const bool has_labels = (*data)->read_labels(0, labels).ok();
      for (uint64_t sample = 0; sample < (*data)->size(); ++sample) {
        auto read = read_sample(**data, sample);
        ASSERT_TRUE(read.status.ok()) << read.status.to_string();
        EXPECT_EQ(read_sample(**again, sample).tensors, read.tensors);
        EXPECT_EQ((*again)->length(sample), (*data)->length(sample));
        if (has_labels) {
          EXPECT_EQ(labels[sample], read.label());
        }
        found.emplace_back((*data)->source(sample), std::move(read.tensors));
      }
      EXPECT_EQ((*data)->shard_ends().back(), (*data)->size());
    }
    std::vector<Tensors> expected, got;
    for (uint64_t sample = 0; sample < whole->size(); ++sample)
      expected.push_back(read_sample(*whole, sample).tensors);
    for (auto& [source, tensors] : found) got.push_back(std::move(tensors));
    std::ranges::sort(expected);
    std::ranges::sort(got);
    EXPECT_EQ(got, expected);
  }
};

TEST_P(SplitOfFormatTest, PartsAreDisjointAndComplete) {
  expect_partition(GetParam().write(path("data")), SplitBy::kRandom);
}

TEST_P(SplitOfFormatTest, StratifiedPartsAreDisjointAndCompleteIfThereAreLabels) {
  const DatasetConfig config = GetParam().write(path("data"));
  const auto whole = opened(config);
  std::vector<int64_t> label(1);
  if (whole->read_labels(0, label).ok())
    expect_partition(config, SplitBy::kStratified);
  else
    expect_error(part(config, SplitBy::kStratified, 0, 0.5), StatusCode::kInvalidArgument,
                 {"stratified requires one class per sample"});
}

INSTANTIATE_TEST_SUITE_P(Formats, SplitOfFormatTest, ::testing::ValuesIn(testing::small_datasets()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace stoker::data::pipeline
