// Warnings about the labels of opened datasets.
#include "shared/data/record/class_warnings.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::pipeline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ClassWarningsTest : public testing::FolderFixture {
 protected:
  // The log of a table with these labels.
  std::string warnings(const std::vector<std::string>& labels, std::vector<double> split = {0, 1},
                       std::vector<std::string> class_names = {}) const {
    std::string text = "x,y\n";
    for (const std::string& label : labels) text += "1," + label + "\n";
    write("data.csv", text);
    config::CsvDataset csv;
    csv.path = path("data.csv");
    csv.record.fields.label = "y";
    csv.record.class_names = std::move(class_names);
    config::DatasetConfigs datasets;
    datasets["train"].source = csv;
    datasets["train"].split = std::move(split);
    const auto data = open_dataset("train", datasets, index_dir(), {});
    EXPECT_TRUE(data.ok()) << data.status().to_string();
    if (!data.ok()) return "";
    ::testing::internal::CaptureStderr();
    record::warn_about_classes("train", datasets, **data);
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(ClassWarningsTest, IsSilentForIndicesAndNamesWithSamples) {
  EXPECT_THAT(warnings({"0", "1", "2"}), IsEmpty());
  EXPECT_THAT(warnings({"cat", "dog"}), IsEmpty());
}

TEST_F(ClassWarningsTest, NamesNumbersThatAreNoIndices) {
  EXPECT_THAT(warnings({"0.5", "1.5", "-1", "other"}),
              AllOf(HasSubstr("labels look numeric"), HasSubstr("-1, 0.5, 1.5"),
                    HasSubstr("num_classes=4")));
  EXPECT_THAT(warnings({"-1", "1"}, {0, 1}, {"-1", "1"}), IsEmpty()) << "they are meant";
}

TEST_F(ClassWarningsTest, NamesGapsAndPhantomClasses) {
  EXPECT_THAT(warnings({"0", "3", "0"}),
              AllOf(HasSubstr("classes without samples"), HasSubstr("empty_classes=2"),
                    HasSubstr("classes=\"1, 2\"")));
  EXPECT_THAT(warnings({"1", "2", "3"}),
              AllOf(HasSubstr("empty_classes=1"), HasSubstr("labels seem to start at 1")));
}

TEST_F(ClassWarningsTest, NamesClassesThatPartLacks) {
  EXPECT_THAT(warnings({"cat", "cat", "dog", "owl"}, {0, 0.5}),
              AllOf(HasSubstr("classes without samples"), HasSubstr("classes=\"dog, owl\"")));
  EXPECT_THAT(warnings({"cat", "dog"}, {0, 1}, {"cat", "cow", "dog"}), HasSubstr("classes=cow"));
}

}  // namespace
}  // namespace stoker::data::pipeline
