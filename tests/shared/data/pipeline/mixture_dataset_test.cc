// Datasets that combine several datasets, or select a part of one.
#include "shared/data/pipeline/mixture_dataset.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_sample;

// A dataset whose samples contain the arguments of read().
class EchoDataset final : public Dataset, public SampleFiles {
 public:
  EchoDataset(std::string name, uint64_t size, std::vector<std::string> classes = {})
      : info_{.size = size,
              .fingerprint = std::move(name),
              .spec = {{.name = "input", .dtype = DType::kI64, .shape = {4}}},
              .classes = classes.size(),
              .class_names = std::move(classes),
              .maybe_files = this} {}
  explicit EchoDataset(DatasetInfo info) : info_(std::move(info)) {}
  const DatasetInfo& info() const override { return info_; }
  SampleSource source(uint64_t sample) const override {
    return {.file = fingerprint(), .offset = sample};
  }
  void prefetch(uint64_t, files::PrefetchedBytes&) const override {}
  std::string describe_transforms(uint64_t sample, const RandomKey& random_key) const override {
    return fingerprint() + ' ' + std::to_string(sample) + ' ' + std::to_string(random_key.seed) +
           ' ' + std::to_string(random_key.epoch) + ' ' + std::to_string(random_key.sample);
  }
  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    const uint64_t values[] = {sample, random_key.seed, random_key.epoch, random_key.sample};
    std::memcpy(outputs[0].data(), values, sizeof values);
    return {};
  }

 private:
  const DatasetInfo info_;
};

Result<std::unique_ptr<Dataset>> make_indexed(std::vector<NamedSource> components) {
  STOKER_ASSIGN_OR_RETURN(auto mixture, make_mixture("train", std::move(components)));
  return std::get<std::unique_ptr<Dataset>>(std::move(mixture));
}

Result<std::unique_ptr<Dataset>> mixture_of_echoes(std::vector<std::string> first_classes = {},
                                                   std::vector<std::string> other_classes = {}) {
  std::vector<NamedSource> datasets;
  datasets.push_back({"code", std::make_unique<EchoDataset>("c", 5, std::move(first_classes))});
  datasets.push_back({"prose", std::make_unique<EchoDataset>("p", 3, std::move(other_classes))});
  return make_indexed(std::move(datasets));
}

TEST(MixtureDatasetTest, ConcatenatesSamplesOfComponents) {
  const auto mixture = mixture_of_echoes();
  ASSERT_TRUE(mixture.ok());
  EXPECT_EQ((*mixture)->size(), 8u);
  EXPECT_THAT((*mixture)->component_sizes(), ElementsAre(5, 3));
  EXPECT_THAT((*mixture)->shard_ends(), ElementsAre(5, 8));
  const SampleSource source = (*mixture)->source(6);
  EXPECT_EQ(source.file, "p");
  EXPECT_EQ(source.offset, 1u);
  EXPECT_EQ(source.dataset, "prose");
  EXPECT_EQ((*mixture)->source(4).dataset, "code");
}

TEST(MixtureDatasetTest, ReadsAndTransformsSampleAsItsComponent) {
  const auto mixture = mixture_of_echoes();
  uint64_t values[4];
  const std::span<std::byte> output = std::as_writable_bytes(std::span(values));
  const RandomKey random_key{.seed = 7, .epoch = 9, .sample = 6};
  ASSERT_TRUE((*mixture)->read(6, random_key, std::span(&output, 1)).ok());
  EXPECT_THAT(values, ElementsAre(1, 7, 9, 1));
  EXPECT_EQ((*mixture)->info().maybe_files->describe_transforms(6, random_key), "p 1 7 9 1");
}

TEST(MixtureDatasetTest, RequiresSameClassesInAllComponents) {
  EXPECT_TRUE(mixture_of_echoes({"cat", "dog"}, {"cat", "dog"}).ok());
  const auto mixture = mixture_of_echoes({"cat", "dog"}, {"dog", "cat"});
  EXPECT_EQ(mixture.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(mixture.status().message(),
              HasSubstr("data.train: data.code and data.prose have different classes"));
}

// The tensors of a sample are equal, but one dataset has a label per time step.
TEST(MixtureDatasetTest, RequiresSamePaddingInAllComponents) {
  const auto open_mixture = [](std::vector<size_t> length_tensors) {
    const DatasetInfo info{.size = 2,
                           .fingerprint = "s",
                           .spec = {{.name = "tokens", .dtype = DType::kI32, .shape = {4}},
                                    {.name = "length", .dtype = DType::kI64, .shape = {}},
                                    {.name = "labels", .dtype = DType::kI64, .shape = {4}}},
                           .max_length = 4,
                           .length_tensors = {0}};
    DatasetInfo other = info;
    other.length_tensors = std::move(length_tensors);
    std::vector<NamedSource> datasets;
    datasets.push_back({"words", std::make_unique<EchoDataset>(info)});
    datasets.push_back({"tags", std::make_unique<EchoDataset>(std::move(other))});
    return make_mixture("train", std::move(datasets));
  };
  EXPECT_TRUE(open_mixture({0}).ok());
  const auto mixture = open_mixture({0, 2});
  EXPECT_EQ(mixture.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(mixture.status().message(),
              HasSubstr("data.train: data.words and data.tags pad different tensors"));
}

class NamedDatasetsTest : public testing::FolderFixture {
 protected:
  void SetUp() override {
    write("code/1.h", std::string(41, 'c'));
    write("code/2.h", std::string(30, 'd'));
    write("prose.txt", std::string(51, 'p'));
    datasets_["code"] = text("code");
    datasets_["prose"] = text("prose.txt");
    datasets_["train"].source = config::Concat{{"code", "prose"}};
  }
  config::DatasetConfig text(const std::string& name) const {
    config::DatasetConfig config;
    path_in(config) = path(name);
    sequence_in(config).block_size = 10;
    return config;
  }
  Result<std::unique_ptr<Dataset>> open_train() const {
    return open_dataset("train", datasets_, index_dir(), {});
  }

  config::DatasetConfigs datasets_;
};

TEST_F(NamedDatasetsTest, OpensMixtureFromIndexesOfComponents) {
  const auto scanned = open_train();
  ASSERT_TRUE(scanned.ok()) << scanned.status().to_string();
  EXPECT_THAT((*scanned)->component_sizes(), ElementsAre(7, 5));
  std::filesystem::remove(path("prose.txt"));
  const auto indexed = open_indexed("train", datasets_, index_dir(), (*scanned)->fingerprint());
  ASSERT_TRUE(indexed.ok()) << indexed.status().to_string();
  EXPECT_EQ((*indexed)->size(), 12u);
  EXPECT_TRUE(open_indexed("train", datasets_, index_dir(), "").ok());
}

TEST_F(NamedDatasetsTest, ChangesMixtureFingerprintOnNewFile) {
  const std::string before = (*open_train())->fingerprint();
  write("code/3.h", std::string(20, 'e'));
  EXPECT_NE((*open_train())->fingerprint(), before);
  EXPECT_EQ(open_indexed("train", datasets_, index_dir(), before).status().code(),
            StatusCode::kMismatch);
}

TEST_F(NamedDatasetsTest, TreatsFilesOfMixtureAsShards) {
  const auto mixture = open_train();
  EXPECT_THAT((*mixture)->shard_ends(), ElementsAre(5, 7, 12));
}

TEST_F(NamedDatasetsTest, RejectsComponentsWithDifferentTensors) {
  sequence_in(datasets_["prose"]).block_size = 5;
  const auto mixture = open_train();
  EXPECT_EQ(mixture.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(mixture.status().message(), HasSubstr("data.code and data.prose"));
  EXPECT_THAT(mixture.status().message(), HasSubstr("tokens U8 [11]; tokens U8 [6]"));
}

TEST_F(NamedDatasetsTest, ReportsMissingIndexOrComponent) {
  EXPECT_EQ(open_indexed("train", datasets_, index_dir(), "").status().code(),
            StatusCode::kNotFound);
  datasets_["train"].source = config::Concat{{"code", "nothing"}};
  EXPECT_THAT(open_train().status().message(), HasSubstr("data.nothing"));
  EXPECT_EQ(open(datasets_["train"]).status().code(), StatusCode::kInvalidArgument);
}

// ---- skip_samples and max_samples

TEST_F(NamedDatasetsTest, SelectsRangeWithSkipSamplesAndMaxSamples) {
  write("abc", "abcdefghijklmnop");
  config::DatasetConfig config = text("abc");
  sequence_in(config).block_size = 1;  // sample i consists of the letters i and i + 1
  config.skip_samples = 3;
  config.max_samples = 5;
  const auto range = open(config, "part");
  ASSERT_TRUE(range.ok()) << range.status().to_string();
  EXPECT_EQ((*range)->size(), 5u);
  EXPECT_EQ(read_sample(**range, 0).text(), "de");
  EXPECT_EQ(read_sample(**range, 4).text(), "hi");
  EXPECT_EQ((*range)->source(4).offset, 7u);
  config.max_samples.reset();
  EXPECT_EQ((*open(config, "rest"))->size(), 12u);
}

TEST_F(NamedDatasetsTest, ChangesFingerprintWithSelectedRange) {
  config::DatasetConfig config = text("code");
  const std::string whole = (*open(config))->fingerprint();
  config.max_samples = 7;
  EXPECT_EQ((*open(config))->fingerprint(), whole) << "all of it is no part";
  config.max_samples = 6;
  const std::string six = (*open(config))->fingerprint();
  EXPECT_NE(six, whole);
  EXPECT_TRUE(open_indexed("train", config, index_dir(), six).ok());
  config.skip_samples = 1;
  EXPECT_NE((*open(config))->fingerprint(), six);
  EXPECT_EQ(open_indexed("train", config, index_dir(), six).status().code(), StatusCode::kMismatch);
}

TEST_F(NamedDatasetsTest, TruncatesShardsAtEndsOfSelectedRange) {
  config::DatasetConfig config = text("code");
  config.skip_samples = 2;
  config.max_samples = 4;
  EXPECT_THAT((*open(config))->shard_ends(), ElementsAre(3, 4));
  config.skip_samples = 5;
  config.max_samples = 2;
  EXPECT_THAT((*open(config))->shard_ends(), ElementsAre(2));
}

TEST_F(NamedDatasetsTest, RejectsSkipBeyondEndAndClampsTake) {
  config::DatasetConfig config = text("code");
  config.skip_samples = 7;
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.skip_samples: leaves none of the 7 samples"});
  config.skip_samples = 3;
  const std::string rest = (*open(config))->fingerprint();
  config.max_samples = 5;
  EXPECT_EQ((*open(config))->size(), 4u);
  EXPECT_EQ((*open(config))->fingerprint(), rest);
  config.skip_samples = 0;
  config.max_samples = ~uint64_t{0};
  EXPECT_EQ((*open(config))->size(), 7u);
}

// ---- Shards

TEST_F(NamedDatasetsTest, ExcludesFileWithoutSampleStartFromShards) {
  write("many/1", std::string(25, 'a'));
  write("many/2", "");
  write("many/3", "bbb");
  write("many/4", std::string(30, 'c'));
  config::DatasetConfig config = text("many");  // 58 bytes: samples start at 0, 10, … 40
  EXPECT_EQ((*open(config))->size(), 5u);
  EXPECT_THAT((*open(config))->shard_ends(), ElementsAre(3, 5));
  config.split = {0.5, 1.0};  // from byte 29: samples start at 29 and 39
  EXPECT_THAT((*open(config))->shard_ends(), ElementsAre(2));
}

TEST_F(NamedDatasetsTest, TreatsTokenAndRecordFilesAsShards) {
  write("tokens/1.bin", std::string(2 * 12, '\0'));
  write("tokens/2.bin", std::string(2 * 20, '\0'));
  const config::DatasetConfig tokens{
      // samples start at the tokens 0, 10, 20
      .source = config::TokensDataset{.path = path("tokens"), .sequence = {.block_size = 10}}};
  EXPECT_THAT((*open(tokens))->shard_ends(), ElementsAre(2, 3));
  for (const char* const name : {"data_batch_1.bin", "data_batch_2.bin"})
    write(std::string("cifar/") + name, std::string(4 * 3073, '\0'));
  config::DatasetConfig cifar;
  cifar.source = config::CifarDataset{.path = path("cifar"), .transforms = {}};
  EXPECT_THAT((*open(cifar))->shard_ends(), ElementsAre(4, 8));
  cifar.split = {0.25, 1.0};
  EXPECT_THAT((*open(cifar))->shard_ends(), ElementsAre(2, 6));
}

// Tables with the same columns in another order, of which the input is all but the label.
class ColumnsTest : public testing::FolderFixture {
 protected:
  Result<std::unique_ptr<Dataset>> concat(const std::string& first, const std::string& other,
                                          std::vector<std::string> other_input = {}) const {
    write("a.csv", first);
    write("b.csv", other);
    config::DatasetConfigs datasets;
    for (const std::string name : {"a", "b"}) {
      config::CsvDataset csv;
      csv.path = path(name + ".csv");
      csv.record.fields.label = "y";
      if (name == "b") csv.record.fields.input = other_input;
      datasets[name].source = csv;
    }
    datasets["train"].source = config::Concat{{"a", "b"}};
    return open_dataset("train", datasets, index_dir(), {});
  }
};

TEST_F(ColumnsTest, MatchesColumnsByName) {
  const auto data = concat("p,q,r,y\n1,2,3,0\n", "r,y,p,q\n6,1,4,5\n9,0,7,8\n");
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_THAT((*data)->info().input_columns, ElementsAre("p", "q", "r"));
  EXPECT_THAT(read_sample(**data, 0).values<float>(0), ElementsAre(1, 2, 3));
  EXPECT_THAT(read_sample(**data, 1).values<float>(0), ElementsAre(4, 5, 6));
  std::vector<float> inputs(9);
  std::vector<int64_t> labels(3);
  const std::vector<std::span<std::byte>> rows{std::as_writable_bytes(std::span(inputs)),
                                               std::as_writable_bytes(std::span(labels))};
  const std::vector<SampleReadRequest> samples{{2, {}}, {1, {}}, {0, {}}};
  EXPECT_EQ((*data)->info().size, 3u);
  EXPECT_EQ((*data)->read_batch(samples, rows).good, 3u);
  EXPECT_THAT(inputs, ElementsAre(7, 8, 9, 4, 5, 6, 1, 2, 3));
}

TEST_F(ColumnsTest, MatchesTargetsByName) {
  write("a.csv", "x,price,area\n1,2,3\n");
  write("b.csv", "area,x,price\n6,4,5\n");
  config::DatasetConfigs datasets;
  for (const std::string name : {"a", "b"}) {
    config::CsvDataset csv;
    csv.path = path(name + ".csv");
    csv.record.fields.input = {"x"};
    csv.record.fields.target = {"price", "area"};
    if (name == "b") csv.record.fields.target = {"area", "price"};
    datasets[name].source = csv;
  }
  datasets["train"].source = config::Concat{{"a", "b"}};
  const auto data = open_dataset("train", datasets, index_dir(), {});
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_THAT((*data)->info().target_columns, ElementsAre("price", "area"));
  EXPECT_THAT(read_sample(**data, 0).values<float>(1), ElementsAre(2, 3));
  EXPECT_THAT(read_sample(**data, 1).values<float>(1), ElementsAre(5, 6));
}

TEST_F(ColumnsTest, RejectsOtherColumnsUnlessTheyAreGiven) {
  const auto data = concat("p,q,y\n1,2,0\n", "p,s,y\n4,5,1\n");
  EXPECT_EQ(data.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(data.status().message(),
              ::testing::AllOf(HasSubstr("data.b has the input columns p, s"),
                               HasSubstr("data.a has p, q"), HasSubstr("data.b.fields.input")));
  EXPECT_THAT(concat("p,q,y\n1,2,0\n", "r,s,y\n4,5,1\n").status().message(),
              HasSubstr("list them in data.b.fields.input in the order of data.a"));
  EXPECT_TRUE(concat("p,q,y\n1,2,0\n", "r,s,y\n4,5,1\n", {"r", "s"}).ok());
}

// As scikit-learn 1.7 does: "The feature names should match those that were passed during fit".
TEST_F(ColumnsTest, RejectsColumnsOfWhichSomeHaveOtherNames) {
  for (const std::vector<std::string>& given :
       std::vector<std::vector<std::string>>{{}, {"p", "s"}, {"s", "p"}}) {
    const auto data = concat("p,q,y\n1,2,0\n", "s,p,y\n4,5,1\n", given);
    EXPECT_EQ(data.status().code(), StatusCode::kMismatch);
    EXPECT_THAT(
        data.status().message(),
        ::testing::AllOf(HasSubstr("of which only data.b has s, of which only data.a has q"),
                         HasSubstr("data.b.fields.input")));
  }
  EXPECT_EQ(concat("p,q,y\n1,2,0\n", "p,q,r,y\n4,5,6,1\n", {"p", "q", "r"}).status().code(),
            StatusCode::kMismatch);
}

TEST_F(ColumnsTest, ComparesSingleColumnByName) {
  EXPECT_TRUE(concat("p,y\n1,0\n", "y,p\n1,4\n").ok());
  const auto data = concat("p,y\n1,0\n", "y,q\n1,4\n");
  EXPECT_EQ(data.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(data.status().message(),
              HasSubstr("data.b has the input columns q, but data.a has p"));
  EXPECT_TRUE(concat("p,y\n1,0\n", "y,q\n1,4\n", {"q"}).ok());
}

}  // namespace
}  // namespace stoker::data::pipeline
