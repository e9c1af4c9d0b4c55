// Files of each format that are empty, all zeros, or truncated within or after the header. Opening
// the dataset or reading a sample reports an error with the path; it never crashes, hangs or
// allocates memory for missing data.
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/small_datasets.h"

namespace stoker::data::pipeline {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::read_sample;
using testing::SmallDataset;

class CorruptFilesTest : public testing::FolderFixture,
                         public ::testing::WithParamInterface<SmallDataset> {
 protected:
  // The number of samples that can be read after `damage` has replaced the content of each file.
  // Every error must contain its location.
  uint64_t readable(const std::function<std::string(const std::string&)>& damage) const {
    const config::DatasetConfig config = GetParam().write(path("set"));
    if (!std::filesystem::exists(path("set"))) return 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path("set"))) {
      if (!entry.is_regular_file() || entry.path().extension() == ".csv") continue;  // list file
      const auto bytes = read_file(entry.path().string(), 1 << 20);
      EXPECT_TRUE(bytes.ok());
      std::ofstream(entry.path(), std::ios::binary) << damage(*bytes);
    }
    const auto data = open(config);
    if (!data.ok()) {
      EXPECT_THAT(data.status().message(), AnyOf(HasSubstr(path("set")), HasSubstr("data.train")));
      return 0;
    }
    uint64_t good = 0;
    for (uint64_t sample = 0; sample < (*data)->size(); ++sample) {
      const Status read = read_sample(**data, sample).status;
      good += read.ok();
      if (read.ok()) continue;
      EXPECT_THAT(read.message(), HasSubstr(path("set")));
    }
    return good;
  }
  // Formats for which zeros are valid data.
  static bool takes_zeros() {
    const std::string name = GetParam().name;
    return name == "tokens" || name == "cifar";
  }
};

TEST_P(CorruptFilesTest, ReportsErrorOnEmptyFiles) {
  EXPECT_EQ(readable([](const std::string&) { return std::string(); }), 0u);
}

TEST_P(CorruptFilesTest, RejectsZeroedFilesUnlessFormatAllowsThem) {
  const uint64_t good =
      readable([](const std::string& bytes) { return std::string(bytes.size(), '\0'); });
  EXPECT_EQ(good > 0, takes_zeros());
}

TEST_P(CorruptFilesTest, ReportsErrorOnTruncatedFiles) {
  for (const size_t kept : {1, 4, 16, 80})
    EXPECT_LT(readable([&](const std::string& bytes) { return bytes.substr(0, kept); }), 10u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CorruptFilesTest, ::testing::ValuesIn(testing::small_datasets()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace stoker::data::pipeline
