#include "daemon/app/check_evaluated_data.h"

#include <cstdio>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/load_config.h"
#include "shared/data/files/scan.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/support/temporary_directory.h"

namespace stoker::app {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// data.train and data.val, read in this process.
class CheckEvaluatedDataTest : public ::testing::Test {
 protected:
  std::string csv(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / (name + ".csv");
    test::write_whole(path, text);
    return "{format: csv, path: " + path + ", fields: {label: kind}}";
  }
  static std::string synthetic(const std::string& input_shape) {
    return "{format: synthetic, num_samples: 20, num_classes: 3, input_shape: " + input_shape + "}";
  }
  void set(const std::string& train, const std::string& val,
           const std::string& model = "{name: mlp, hidden_sizes: [2]}",
           const std::string& task = "classification") {
    const auto parsed =
        config::parse_config("data:\n  train: " + train + "\n  val: " + val + "\nmodel: " + model +
                                 "\ntask: {name: " + task + "}\nfeed: {num_processes: 0}\n",
                             "test.yaml", {});
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    config_ = *parsed;
  }
  Status check(const OnIndexing& on_indexing = [](const std::string&, uint64_t, std::string_view,
                                                  double) {}) const {
    STOKER_ASSIGN_OR_RETURN(const auto train, data::pipeline::open_source("train", config_.data,
                                                                          folder_ / "index", {}));
    return check_evaluated_data(config_, train, folder_ / "eval", on_indexing);
  }
  void expect_error(StatusCode code, const auto& message) const {
    const Status checked = check();
    EXPECT_EQ(checked.code(), code) << checked.to_string();
    EXPECT_THAT(checked.message(), message);
    EXPECT_THAT(checked.message(), ::testing::Not(HasSubstr("\n")));
  }

  const test::TemporaryDirectory folder_;
  config::Config config_;
};

TEST_F(CheckEvaluatedDataTest, LeavesIndexOfEvaluator) {
  set(csv("train", "x,kind\n1,cat\n2,dog\n"), csv("val", "x,kind\n3,dog\n"));
  const Status checked = check();
  EXPECT_TRUE(checked.ok()) << checked.to_string();
  const auto val = data::pipeline::open_indexed("val", config_.data, folder_ / "eval", "");
  ASSERT_TRUE(val.ok()) << val.status().to_string();
  EXPECT_EQ((*val)->size(), 1u);
}

TEST_F(CheckEvaluatedDataTest, ReportsMissingFileWithKey) {
  const std::string val = csv("val", "x,kind\n3,dog\n");
  set(csv("train", "x,kind\n1,cat\n2,dog\n"), val);
  ASSERT_EQ(std::remove((folder_ / "val.csv").c_str()), 0);
  expect_error(StatusCode::kNotFound, AllOf(HasSubstr("data.val"), HasSubstr("val.csv")));
}

TEST_F(CheckEvaluatedDataTest, ReportsClassesAndColumnsThatTrainingLacks) {
  const std::string train = csv("train", "x,kind\n1,cat\n2,dog\n");
  set(train, csv("val", "x,kind\n3,cow\n"));
  expect_error(StatusCode::kMismatch, AllOf(StartsWith("data.val"), HasSubstr("'cow'")));
  set(train, csv("val", "y,kind\n3,dog\n"));
  expect_error(StatusCode::kMismatch, AllOf(StartsWith("data.val"), HasSubstr("x")));
}

// torch.nn.Linear(3, 2).weight is [2, 3].
TEST_F(CheckEvaluatedDataTest, ReportsSamplesOfAnotherModel) {
  set(synthetic("[3]"), synthetic("[4]"));
  expect_error(StatusCode::kMismatch,
               AllOf(StartsWith("data.val"), HasSubstr("0.weight is [2, 4] instead of [2, 3]")));
}

// Global average pooling makes the size of the image free, as in torchvision.
TEST_F(CheckEvaluatedDataTest, AcceptsOtherShapesOfSameModel) {
  set(synthetic("[3, 32, 32]"), synthetic("[3, 48, 48]"), "{name: resnet18}");
  const Status checked = check();
  EXPECT_TRUE(checked.ok()) << checked.to_string();
}

// Only the files of data.train tell the size of the vocabulary.
TEST_F(CheckEvaluatedDataTest, ReportsUnknownVocabulary) {
  test::write_whole(folder_ / "text.txt", std::string(100, 'a'));
  test::write_whole(folder_ / "val.bin", std::string(100, '\1'));
  const std::string model =
      "{name: gpt, num_layers: 1, embed_dim: 4, num_heads: 1, "
      "context_length: 8, vocab_size: ";
  const auto set_vocab_size = [&](const std::string& vocab_size) {
    set("{format: text, path: " + (folder_ / "text.txt") + "}",
        "{format: tokens, path: " + (folder_ / "val.bin") + "}", model + vocab_size + "}",
        "language_modeling");
  };
  set_vocab_size("null");
  expect_error(StatusCode::kMismatch, AllOf(StartsWith("data.val"), HasSubstr("vocab_size")));
  set_vocab_size("256");
  EXPECT_TRUE(check().ok());
}

TEST_F(CheckEvaluatedDataTest, ReportsErrorOfTrainingAsItsOwn) {
  set(synthetic("[3]"), synthetic("[4]"), "{name: lenet5}");
  expect_error(StatusCode::kMismatch,
               AllOf(HasSubstr("lenet5"), HasSubstr("[3]"), ::testing::Not(HasSubstr("data.val"))));
}

TEST_F(CheckEvaluatedDataTest, EndsWhenIndexingIsStopped) {
  set(csv("train", "x,kind\n1,cat\n2,dog\n"), csv("val", "x,kind\n3,dog\n"));
  std::string indexed;
  const Status checked = check([&](const std::string& dataset, uint64_t, std::string_view, double) {
    indexed = dataset;
    throw data::files::ScanStopped();
  });
  EXPECT_EQ(checked.code(), StatusCode::kCancelled) << checked.to_string();
  EXPECT_EQ(indexed, "val");
}

}  // namespace
}  // namespace stoker::app
