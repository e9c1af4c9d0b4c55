// Images with captions: image lists, tar files, TFRecord files.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/example_writer.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/tar_writer.h"
#include "tests/shared/image/image_files.h"

namespace stoker::data::format {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Token ids of the vocabulary below.
constexpr int64_t kEnd = 1, kUnknown = 2, kA = 3, kRed = 4, kDog = 5, kPad = -100;

class CaptionsTest : public FolderFixture {
 protected:
  void SetUp() override {
    write("words.txt", "a 9\nred 4\ndog 2\n<S> 9\n");
    png_ = image::testing::encode_png_file(image::testing::plain(2, 2, {7, 7, 7}));
    write("set/1.png", png_);
  }
  template <typename Source>
  config::DatasetConfig captioned(const std::string& data, const std::string& image,
                                  const std::string& caption) const {
    config::DatasetConfig config;
    config.source = Source{};
    path_in(config) = path(data);
    transforms_in(config) = {config::Resize{{2, 2}}};
    fields_in(config).image = image;
    fields_in(config).caption = caption;
    sequence_in(config).max_label_length = 4;
    sequence_in(config).max_captions = 2;
    *config.tokenizer() = config::TokenizerConfig{path("words.txt")};
    return config;
  }
  config::DatasetConfig listed(const std::string& rows,
                               const std::string& name = "list.jsonl") const {
    write("set/" + name, rows);
    return captioned<config::ImageListDataset>("set/" + name, "path", "captions");
  }
  static std::string references(const Sample& sample) {
    return sample.text(2).substr(0, sample.text(2).find('\0'));
  }
  Sample only_sample(const config::DatasetConfig& config) const {
    const auto dataset = open(config);
    EXPECT_TRUE(dataset.ok()) << dataset.status().to_string();
    return dataset.ok() ? read_sample(**dataset, 0) : Sample{.status = dataset.status()};
  }

  std::string png_;
};

TEST_F(CaptionsTest, RejectsTokenizerOfText) {
  write("words.txt", " {\"version\": \"1.0\", \"model\": {}}");
  expect_error(listed("{\"path\": \"1.png\", \"captions\": [\"a dog\"]}\n"), StatusCode::kMismatch,
               {"data.train.tokenizer.path", "is JSON", "a word per line"});
}

TEST_F(CaptionsTest, ReadsListOfCaptionsPerImage) {
  const auto config =
      listed("{\"path\": \"1.png\", \"captions\": [\"A red dog.\", \"Big dog\", \"a\"]}\n");
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->spec()[1], (TensorSpec{"labels", DType::kI64, {2, 4}}));
  EXPECT_EQ((*dataset)->spec()[2].name, "references");
  EXPECT_THAT((*dataset)->class_names(), ElementsAre("<s>", "</s>", "<unk>", "a", "red", "dog"));
  EXPECT_EQ((*dataset)->classes(), 6U);
  const auto again =
      pipeline::open_indexed("train", config, index_dir(), (*dataset)->fingerprint());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  const Sample sample = read_sample(**again, 0);
  ASSERT_TRUE(sample.status.ok()) << sample.status.to_string();
  EXPECT_EQ(std::to_integer<int>(sample.tensors[0][0]), 7);
  EXPECT_THAT(sample.values<int64_t>(1),
              ElementsAre(kA, kRed, kDog, kEnd, kUnknown, kDog, kEnd, kPad));
  EXPECT_EQ(references(sample), "A red dog.\nBig dog\na");
}

TEST_F(CaptionsTest, ReadsOneCaption) {
  const Sample json = only_sample(listed("{\"path\": \"1.png\", \"captions\": \"a dog\"}\n"));
  EXPECT_THAT(json.values<int64_t>(1), ElementsAre(kA, kDog, kEnd, kPad, kPad, kPad, kPad, kPad));
  const Sample csv = only_sample(listed("path,captions\n1.png,\"a, dog\"\n", "list.csv"));
  EXPECT_EQ(csv.values<int64_t>(1), json.values<int64_t>(1));
  EXPECT_EQ(references(csv), "a, dog");
}

TEST_F(CaptionsTest, ReadsMembersOfTarFiles) {
  write("a.tar", tar_member("1.png", png_) + tar_member("1.txt", "a dog\n\n red dog \n") +
                     tar_member("1.json", "{\"c\": {\"all\": [\"a dog\", \"red dog\"]}}") +
                     kTarEnd);
  for (const std::string field : {"txt", "json:c.all"}) {
    const Sample sample = only_sample(captioned<config::WebdatasetDataset>("a.tar", "png", field));
    ASSERT_TRUE(sample.status.ok()) << sample.status.to_string();
    EXPECT_THAT(sample.values<int64_t>(1),
                ElementsAre(kA, kDog, kEnd, kPad, kRed, kDog, kEnd, kPad));
    EXPECT_EQ(references(sample), "a dog\nred dog");
  }
}

TEST_F(CaptionsTest, ReadsListsAndStepsOfTfrecords) {
  const std::string two = message(1, message(1, "a dog") + message(1, "red dog"));
  const std::vector<std::string> steps{bytes_feature("<S>"), bytes_feature("red"),
                                       bytes_feature("dog"), bytes_feature("."),
                                       bytes_feature("</S>")};
  write("list.tfrecord", framed(example({{"image/data", bytes_feature(png_)}, {"c", two}})));
  write("steps.tfrecord",
        framed(sequence_example({{"image/data", bytes_feature(png_)}}, {{"c", steps}})));
  const Sample list =
      only_sample(captioned<config::TfrecordDataset>("list.tfrecord", "image/data", "c"));
  ASSERT_TRUE(list.status.ok()) << list.status.to_string();
  EXPECT_THAT(list.values<int64_t>(1), ElementsAre(kA, kDog, kEnd, kPad, kRed, kDog, kEnd, kPad));
  const Sample words =
      only_sample(captioned<config::TfrecordDataset>("steps.tfrecord", "image/data", "c"));
  ASSERT_TRUE(words.status.ok()) << words.status.to_string();
  EXPECT_THAT(words.values<int64_t>(1),
              ElementsAre(kRed, kDog, kEnd, kPad, kPad, kPad, kPad, kPad));
  EXPECT_EQ(references(words), "red dog .");
}

TEST_F(CaptionsTest, RejectsOrTruncatesLongCaptions) {
  auto config = listed("{\"path\": \"1.png\", \"captions\": \"a red red dog\"}\n");
  EXPECT_THAT(only_sample(config).status.message(),
              HasSubstr("has a caption of 4 words, more than sequence.max_label_length (4)"));
  sequence_in(config).on_overflow = config::OnOverflow::kTruncate;
  EXPECT_THAT(only_sample(config).values<int64_t>(1),
              ElementsAre(kA, kRed, kRed, kEnd, kPad, kPad, kPad, kPad));
}

TEST_F(CaptionsTest, ReportsCaptionsThatAreNoText) {
  expect_error(listed("{\"path\": \"1.png\", \"captions\": 3}\n"), StatusCode::kCorrupt,
               {"line 1", "has no 'captions'"});
  expect_error(listed("{\"path\": \"1.png\", \"captions\": [\"a\", 3]}\n"), StatusCode::kCorrupt,
               {"line 1", "has texts and numbers"});
  EXPECT_THAT(only_sample(listed("{\"path\": \"1.png\", \"captions\": \" \"}\n")).status.message(),
              HasSubstr("has no text"));
  for (const std::string captions : {"\"a dog\\u0000red\"", "[\"a dog\", \"\\u0000\"]"})
    EXPECT_THAT(only_sample(listed("{\"path\": \"1.png\", \"captions\": " + captions + "}\n"))
                    .status.message(),
                HasSubstr("contains a zero byte"));
  const std::string large(5000, 'a');
  EXPECT_THAT(only_sample(listed("{\"path\": \"1.png\", \"captions\": \"" + large + "\"}\n"))
                  .status.message(),
              HasSubstr("has captions of 5000 bytes, more than the limit of 4096"));
}

TEST_F(CaptionsTest, ReportsUnusableVocabulary) {
  const auto config = listed("{\"path\": \"1.png\", \"captions\": \"a\"}\n");
  write("words.txt", "a\ndog\na\n");
  expect_error(config, StatusCode::kCorrupt,
               {"data.train.tokenizer.path", "words.txt", "line 3", "word 'a' occurs twice"});
  write("words.txt", "<unk>\n\n");
  expect_error(config, StatusCode::kCorrupt, {"has no words"});
  std::filesystem::remove(path("words.txt"));
  expect_error(config, StatusCode::kNotFound, {"words.txt"});
}

TEST_F(CaptionsTest, IsAnotherDatasetWithAnotherVocabulary) {
  const auto config = listed("{\"path\": \"1.png\", \"captions\": \"a dog\"}\n");
  const std::string before = (*open(config))->fingerprint();
  write("words.txt", "dog\na\n");
  const auto dataset = open(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_THAT((*dataset)->fingerprint(), Not(before));
  EXPECT_EQ((*dataset)->classes(), 5U);
}

}  // namespace
}  // namespace stoker::data::format
