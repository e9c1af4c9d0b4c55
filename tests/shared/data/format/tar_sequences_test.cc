// Variable-length sequences in tar files: arrays, JSON lists, texts.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/shared/data/sequence_fixture.h"
#include "tests/shared/data/tar_writer.h"
#include "tests/support/numpy_files.h"

namespace stoker::data::format {
namespace {

using test::bytes_of;
using test::npy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kTarEnd;
using testing::read_sample;
using testing::Sample;
using testing::tar_member;

using Members = std::vector<std::pair<std::string, std::string>>;  // extension, content

class WebdatasetSequencesTest : public testing::SequenceFixture {
 protected:
  config::DatasetConfig tar(int64_t max_length) const {
    config::DatasetConfig config;
    config.source = config::WebdatasetDataset{};
    path_in(config) = path("data.tar");
    if (max_length > 0) sequence_in(config).max_length = max_length;
    return config;
  }
  // Sequences of pairs of numbers, with a class label.
  config::DatasetConfig frames(int64_t max_length) const {
    config::DatasetConfig config = tar(max_length);
    fields_in(config).input = {"npy"};
    record_in(config).input_shape = {2};
    fields_in(config).label = "cls";
    return config;
  }
  void write_samples(const std::vector<Members>& samples) const {
    std::string file;
    for (size_t i = 0; i < samples.size(); ++i)
      for (const auto& [extension, content] : samples[i])
        file += tar_member(std::to_string(i) + '.' + extension, content);
    write("data.tar", file + kTarEnd);
  }
  std::string error_text(const Members& sample, const config::DatasetConfig& config) const {
    write_samples({sample});
    const auto dataset = open(config);
    return dataset.ok() ? "nothing" : dataset.status().message();
  }
};

std::string floats(const std::string& shape, const std::vector<float>& numbers) {
  return npy("<f4", shape, bytes_of(numbers));
}

TEST_F(WebdatasetSequencesTest, PadsArraysAndReturnsLength) {
  write_samples({{{"npy", floats("(3, 2)", {1, 2, 3, 4, 5, 6})}, {"cls", "1"}},
                 {{"cls", "0"}, {"npy", npy("|u1", "(1, 2)", {7, 8})}}});
  const auto dataset = opened(frames(4));
  EXPECT_EQ(dataset->spec()[0], (TensorSpec{"input", DType::kF32, {4, 2}}));
  EXPECT_EQ(dataset->length(0), 3u);
  EXPECT_EQ(dataset->length(1), 1u);
  const Sample first = read_sample(*dataset, 0);
  EXPECT_THAT(first.values<float>(0), ElementsAre(1, 2, 3, 4, 5, 6, 0, 0));
  EXPECT_THAT(first.values<int64_t>(1), ElementsAre(3));
  EXPECT_THAT(first.values<int64_t>(2), ElementsAre(1));
  EXPECT_THAT(read_in_batch(*dataset, 1, 2).values<float>(0), ElementsAre(7, 8, 0, 0));
}

TEST_F(WebdatasetSequencesTest, ReadsInputIdsAndLabelsFromArraysOrJson) {
  write_samples({{{"ids.npy", npy("<i8", "(2,)", bytes_of(std::vector<int64_t>{70000, 1}))},
                  {"tags.npy", npy("<i4", "(2,)", bytes_of(std::vector<int32_t>{0, -100}))}},
                 {{"tags.npy", npy("|u1", "(1,)", {4})}, {"ids.npy", npy("<u2", "(1,)", {9, 1})}}});
  auto config = tar(3);
  fields_in(config).input_ids = "ids.npy";
  fields_in(config).labels = "tags.npy";
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->classes(), 5u);
  EXPECT_THAT(read_sample(*dataset, 0).values<int32_t>(0), ElementsAre(70000, 1, 0));
  EXPECT_THAT(read_sample(*dataset, 0).values<int64_t>(2), ElementsAre(0, -100, -100));
  EXPECT_THAT(read_sample(*dataset, 1).values<int32_t>(0), ElementsAre(265, 0, 0));

  write_samples({{{"json", R"({"ids": [5, 6], "tags": [2, 1]})"}}});
  fields_in(config).input_ids = "json:ids";
  fields_in(config).labels = "json:tags";
  const auto listed = opened(config);
  EXPECT_THAT(read_sample(*listed, 0).values<int32_t>(0), ElementsAre(5, 6, 0));
  EXPECT_THAT(read_sample(*listed, 0).values<int64_t>(2), ElementsAre(2, 1, -100));
}

TEST_F(WebdatasetSequencesTest, ReadsLongListFromJson) {
  std::string list = "{\"x\": [0";
  for (int i = 1; i < 40'000; ++i) list += ", " + std::to_string(i);
  write_samples({{{"json", list + "]}"}, {"cls", "0"}}});
  auto config = tar(40'000);
  fields_in(config).input = {"json:x"};
  fields_in(config).label = "cls";
  EXPECT_EQ(opened(config)->length(0), 40'000u);
}

TEST_F(WebdatasetSequencesTest, ReportsSampleErrorOnMismatchedShape) {
  EXPECT_THAT(error_text({{"npy", floats("(2, 3)", {1, 2, 3, 4, 5, 6})}, {"cls", "0"}}, frames(4)),
              HasSubstr("is an array of [2, 3], whose rows have 3 numbers, but 2 are needed for "
                        "each time step"));
  EXPECT_THAT(error_text({{"npy", floats("(3,)", {1, 2, 3})}, {"cls", "0"}}, frames(4)),
              HasSubstr("has 3 numbers, which is not a multiple of the 2 of a time step"));
  EXPECT_THAT(
      error_text({{"npy", floats("(3, 2)", {1, 2, 3, 4, 5, 6})}, {"cls", "0"}}, frames(2)),
      HasSubstr("has 3 time steps; 1 of 1 are longer than data.train.sequence.max_length (2)"));
  EXPECT_THAT(error_text({{"npy", "no array"}, {"cls", "0"}}, frames(2)), HasSubstr("sample '0'"));
  auto text = tar(4);
  fields_in(text).text = "npy";
  EXPECT_THAT(error_text({{"npy", floats("(2,)", {1, 2})}}, text),
              HasSubstr("data.train.fields.text: 'npy' is an array, and no text"));
  auto config = tar(4);
  fields_in(config).input = {"json:x"};
  record_in(config).input_shape = {2};
  fields_in(config).label = "cls";
  EXPECT_THAT(error_text({{"json", R"({"x": [[1, 2, 3], [4, 5, 6]]})"}, {"cls", "0"}}, config),
              HasSubstr("json"));
  fields_in(config).input = {"json:y"};
  EXPECT_THAT(error_text({{"json", R"({"x": [1, 2]})"}, {"cls", "0"}}, config),
              HasSubstr("has no input 'json:y'"));
}

TEST_F(WebdatasetSequencesTest, ReportsSampleErrorWhenMemberChangesAfterIndexing) {
  write_samples({{{"npy", floats("(2, 2)", {1, 2, 3, 4})}, {"cls", "1"}}});
  const auto dataset = opened(frames(4));
  // The same size, but a different shape.
  write_samples({{{"npy", floats("(1, 4)", {1, 2, 3, 4})}, {"cls", "1"}}});
  EXPECT_THAT(read_sample(*dataset, 0).status.message(), HasSubstr("data.tar"));
}

}  // namespace
}  // namespace stoker::data::format
