#include "shared/data/record/class_mapping.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluator/load_class_mapping.h"
#include "shared/base/file.h"
#include "shared/config/load_config.h"
#include "shared/data/dataset_decorator.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/support/numpy_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

using data::record::ClassMapping;
using data::record::with_class_mapping;
using data::record::with_training_columns;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// CSV files with one number and a label per row, next to each other in a folder.
class ClassMappingTest : public ::testing::Test {
 protected:
  void write(const std::string& dataset, const std::vector<std::string>& labels) {
    std::string text = "x,kind\n";
    for (const std::string& label : labels) text += "1," + label + "\n";
    ASSERT_TRUE(
        write_file_atomically(default_file_system(), folder_ / (dataset + ".csv"), text).ok());
  }
  config::Config config(const std::string& more = "") const {
    const auto dataset = [this](const std::string& name) {
      return "  " + name +
             ": {format: csv, fields: {label: kind}, path: " + (folder_ / (name + ".csv")) + "}\n";
    };
    const auto parsed = config::parse_config("data:\n" + dataset("train") + dataset("val") +
                                                 "model: {name: mlp, hidden_sizes: []" + more +
                                                 "}\ntask: {name: classification}\n",
                                             "test.yaml", {});
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return *parsed;
  }
  // Builds the index that stokerd leaves in the run directory.
  void index_train() const {
    const auto train = data::pipeline::open_dataset("train", config().data, folder_ / "index", {});
    EXPECT_TRUE(train.ok()) << train.status().to_string();
  }
  Result<std::unique_ptr<data::Dataset>> val(const std::string& more = "") const {
    STOKER_ASSIGN_OR_RETURN(
        auto data, data::pipeline::open_dataset("val", config(more).data, folder_ / "eval", {}));
    return with_class_mapping(load_class_mapping(config(more), folder_ / "index"), "val",
                              std::move(data));
  }
  static std::vector<int64_t> labels_of(const data::Dataset& data) {
    std::vector<int64_t> labels;
    for (uint64_t sample = 0; sample < data.size(); ++sample) {
      float x = 0;
      int64_t label = -1;
      const std::vector<std::span<std::byte>> out{std::as_writable_bytes(std::span(&x, 1)),
                                                  std::as_writable_bytes(std::span(&label, 1))};
      EXPECT_TRUE(data.read(sample, {}, out).ok());
      labels.push_back(label);
    }
    return labels;
  }

  const test::TemporaryDirectory folder_;
};

TEST_F(ClassMappingTest, UsesTrainingClassIndicesWhenClassIsMissing) {
  write("train", {"cat", "cow", "dog"});
  write("val", {"dog", "cat", "dog"});
  index_train();
  const auto data = val();
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_THAT(labels_of(**data), ElementsAre(2, 0, 2));
  std::vector<int64_t> all(3);
  ASSERT_TRUE((*data)->read_labels(0, all).ok());
  EXPECT_THAT(all, ElementsAre(2, 0, 2));
  EXPECT_EQ((*data)->classes(), 3u);
  EXPECT_THAT((*data)->class_names(), ElementsAre("cat", "cow", "dog"));
}

TEST_F(ClassMappingTest, RejectsUntrainedClassByName) {
  write("train", {"cat", "cow", "dog"});
  write("val", {"dog", "cat", "owl"});
  index_train();
  const auto rejected = val();
  EXPECT_EQ(rejected.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(rejected.status().message(), HasSubstr("data.val: there is a class 'owl'"));
}

TEST_F(ClassMappingTest, UsesTrainingClassCountForNumericLabels) {
  write("train", {"0", "1", "2"});
  write("val", {"1", "0"});
  index_train();
  const auto data = val();
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_EQ((*data)->classes(), 3u);
  EXPECT_THAT(labels_of(**data), ElementsAre(1, 0));
}

TEST_F(ClassMappingTest, RejectsLargerLabelUnlessModelHasOutput) {
  write("train", {"0", "1", "2"});
  write("val", {"1", "5"});
  index_train();
  EXPECT_THAT(val().status().message(), HasSubstr("data.val: there is a label 5"));
  EXPECT_TRUE(val(", num_classes: 10").ok());
}

// As of a worker process that does not respect the classes of its dataset.
class WrongLabels final : public data::DatasetDecorator {
 public:
  WrongLabels(std::unique_ptr<data::Dataset> data, int64_t label)
      : DatasetDecorator(*data), data_(std::move(data)), label_(label) {}
  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    STOKER_RETURN_IF_ERROR(data_->read(sample, random_key, outputs));
    if (sample == 1) std::memcpy(outputs[1].data(), &label_, sizeof label_);
    return {};
  }

 private:
  const std::unique_ptr<data::Dataset> data_;
  const int64_t label_;
};

TEST_F(ClassMappingTest, ReportsLabelThatDatasetDoesNotHave) {
  write("train", {"cat", "cow", "dog"});
  write("val", {"dog", "cat", "dog"});
  index_train();
  for (const int64_t label : {int64_t{-1}, int64_t{2}, int64_t{1} << 40}) {
    auto wrong = std::make_unique<WrongLabels>(
        *data::pipeline::open_dataset("val", config().data, folder_ / "eval", {}), label);
    const auto data = with_class_mapping(load_class_mapping(config(), folder_ / "index"), "val",
                                         std::move(wrong));
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    std::vector<float> inputs(3);
    std::vector<int64_t> labels(3);
    const std::vector<std::span<std::byte>> rows{std::as_writable_bytes(std::span(inputs)),
                                                 std::as_writable_bytes(std::span(labels))};
    const std::vector<data::SampleReadRequest> samples{{0, {}}, {1, {}}, {2, {}}};
    const auto read = (*data)->read_batch(samples, rows);
    EXPECT_EQ(read.good, 1u);
    EXPECT_EQ(read.status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(read.status.message(), HasSubstr("val.csv: the sample at offset"));
    EXPECT_EQ(labels[0], 2);
  }
}

// Several labels per sample, such as the words of captions.
class SeveralLabels final : public data::DatasetDecorator {
 public:
  explicit SeveralLabels(std::unique_ptr<data::Dataset> data)
      : DatasetDecorator(*data), data_(std::move(data)), info_(data_->info()) {
    info_.spec[1] = {"labels", DType::kI64, {1}};
  }
  const data::DatasetInfo& info() const override { return info_; }
  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    return data_->read(sample, random_key, outputs);
  }

 private:
  const std::unique_ptr<data::Dataset> data_;
  data::DatasetInfo info_;
};

TEST_F(ClassMappingTest, RejectsOtherOrderOfClassesWithSeveralLabels) {
  write("train", {"cat", "cow", "dog"});
  index_train();
  const auto mapped = [this] {
    return with_class_mapping(load_class_mapping(config(), folder_ / "index"), "val",
                              std::make_unique<SeveralLabels>(*data::pipeline::open_dataset(
                                  "val", config().data, folder_ / "eval", {})));
  };
  write("val", {"cow", "cat"});
  EXPECT_TRUE(mapped().ok()) << mapped().status().to_string();
  write("val", {"dog", "cat", "dog"});
  EXPECT_EQ(mapped().status().code(), StatusCode::kMismatch);
  EXPECT_THAT(mapped().status().message(), HasSubstr("data.val: its classes have another order"));
}

TEST_F(ClassMappingTest, PreservesLabelsWithEqualClasses) {
  write("train", {"cat", "dog"});
  write("val", {"dog", "cat"});
  index_train();
  const auto data = val();
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_THAT(labels_of(**data), ElementsAre(1, 0));
}

TEST_F(ClassMappingTest, UsesOwnClassesWithoutTrainingIndex) {
  write("train", {"cat", "cow", "dog"});
  write("val", {"dog", "cat"});
  const auto data = val();
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_THAT(labels_of(**data), ElementsAre(1, 0));
  EXPECT_EQ((*data)->classes(), 2u);
}

// Its source is gone.
TEST_F(ClassMappingTest, CountsClassesOfMixtureWithStream) {
  write("old", {"0", "4", "2"});
  const auto parsed = config::parse_config(
      "data:\n  train: {mixture: {live: 1, old: 1}}\n"
      "  live: {format: jsonl, fields: {input: x, label: y}, num_classes: 3, stream: {source: '" +
          (folder_ / "gone") +
          "'}}\n  old: {format: csv, fields: {label: kind}, path: " + (folder_ / "old.csv") +
          "}\nmodel: {name: mlp}\ntask: {name: classification}\ntrain: {max_steps: 5}\n",
      "test.yaml", {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(load_class_mapping(*parsed, folder_ / "index").count, 0u);  // not indexed yet
  ASSERT_TRUE(data::pipeline::open_dataset("old", parsed->data, folder_ / "index", {}).ok());
  const ClassMapping classes = load_class_mapping(*parsed, folder_ / "index");
  EXPECT_EQ(classes.count, 5u);
  EXPECT_TRUE(classes.names.empty());
}

// pandas writes 0.0 for 0 in a column that had a missing value.
TEST_F(ClassMappingTest, MatchesIndicesThatAreWrittenAsFloats) {
  write("train", {"0.0", "2.0", "1.0", "10.0"});
  write("val", {"10", "2"});
  index_train();
  const auto data = val();
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_THAT(labels_of(**data), ElementsAre(10, 2));
}

TEST_F(ClassMappingTest, MatchesIndicesWithNamesThatAreTheseIndices) {
  write("train", {"-1", "0", "1"});
  write("val", {"1", "0", "1"});
  index_train();
  const auto named = val();
  ASSERT_TRUE(named.ok()) << named.status().to_string();
  EXPECT_THAT(labels_of(**named), ElementsAre(2, 1, 2));
  EXPECT_THAT((*named)->class_names(), ElementsAre("-1", "0", "1"));
}

TEST_F(ClassMappingTest, RejectsIndicesForNamesAndNamesForIndices) {
  write("train", {"cat", "dog"});
  write("val", {"1", "0"});
  index_train();
  EXPECT_EQ(val().status().code(), StatusCode::kMismatch);
  EXPECT_THAT(val().status().message(),
              HasSubstr("data.val has class indices up to 1, but data.train has the class names "
                        "cat, dog"));
  write("train", {"1", "0"});
  write("val", {"cat", "dog"});
  index_train();
  EXPECT_THAT(val().status().message(), HasSubstr("class 'cat' is none of them"));
}

// As torch.save of the indices of a folder's classes, which are sorted by name.
TEST_F(ClassMappingTest, MatchesNamesWithIndicesThatHaveNames) {
  write("train", {"cat", "dog", "cow"});
  index_train();
  using test::bytes_of;
  test::write_whole(folder_ / "x.npy", test::npy("<f4", "(3, 1)", bytes_of<float>({1, 2, 3})));
  test::write_whole(folder_ / "y.npy", test::npy("<i8", "(3,)", bytes_of<int64_t>({0, 1, 0})));
  config::DatasetConfig arrays;
  config::NumpyDataset numpy{.path = folder_ / "x.npy"};
  numpy.labels_path = folder_ / "y.npy";
  arrays.source = numpy;
  const auto mapped = [&]() -> Result<std::unique_ptr<data::Dataset>> {
    STOKER_ASSIGN_OR_RETURN(auto data,
                            data::pipeline::open_dataset("val", arrays, folder_ / "eval", {}));
    return with_class_mapping(load_class_mapping(config(), folder_ / "index"), "val",
                              std::move(data));
  };
  EXPECT_THAT(mapped().status().message(), HasSubstr("or set data.val.class_names"));
  numpy.class_names = {"dog", "cat"};
  arrays.source = numpy;
  const auto data = mapped();
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_THAT(labels_of(**data), ElementsAre(2, 0, 2));  // cat 0, cow 1, dog 2
  numpy.class_names = {"dog"};
  arrays.source = numpy;
  EXPECT_THAT(mapped().status().message(), HasSubstr("class_names: has 1 names, but a label is 1"));
}

TEST_F(ClassMappingTest, PrefersSchemaOfRunToIndex) {
  write("train", {"cat", "dog"});
  write("val", {"dog"});
  index_train();
  const DatasetSchema schema{
      .num_classes = 3, .class_names = {"cat", "cow", "dog"}, .num_samples = 7};
  ASSERT_TRUE(
      write_file_atomically(default_file_system(), folder_ / "data_schema.json", to_json(schema))
          .ok());
  EXPECT_THAT(labels_of(**val()), ElementsAre(2));
  const auto parsed = parse_dataset_schema(to_json(schema), "data_schema.json");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, schema);
}

TEST_F(ClassMappingTest, MatchesColumnsOfTrainingByName) {
  const auto write_table = [&](const std::string& dataset, const std::string& text) {
    ASSERT_TRUE(
        write_file_atomically(default_file_system(), folder_ / (dataset + ".csv"), text).ok());
  };
  write_table("train", "x,y,kind\n1,2,a\n3,4,b\n");
  write_table("val", "y,kind,x\n6,b,5\n");
  index_train();
  const auto open_val = [this]() -> Result<std::unique_ptr<data::Dataset>> {
    STOKER_ASSIGN_OR_RETURN(
        auto data, data::pipeline::open_dataset("val", config().data, folder_ / "eval", {}));
    return with_training_columns(load_class_mapping(config(), folder_ / "index"), "val",
                                 config().data.at("val"), std::move(data));
  };
  const auto data = open_val();
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  std::vector<float> input(2);
  int64_t label = 0;
  const std::vector<std::span<std::byte>> out{std::as_writable_bytes(std::span(input)),
                                              std::as_writable_bytes(std::span(&label, 1))};
  ASSERT_TRUE((*data)->read(0, {}, out).ok());
  EXPECT_THAT(input, ElementsAre(5, 6));
  write_table("val", "y,kind,z\n6,b,5\n");
  EXPECT_EQ(open_val().status().code(), StatusCode::kMismatch);
}

}  // namespace
}  // namespace stoker::evaluator
