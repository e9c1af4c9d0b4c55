#include <algorithm>
#include <string>

#include "shared/data/format/tar_index.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/tar_writer.h"

namespace stoker::data::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kTarEnd;
using testing::read_sample;
using testing::Sample;
using testing::tar_member;

const std::string kGolden = std::string(STOKER_SOURCE_DIR) + "/tests/shared/data/format/golden";

class WebdatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig tar() const {
    config::DatasetConfig config;
    config.source = config::WebdatasetDataset{};
    path_in(config) = path("data.tar");
    fields_in(config).input = {"bin"};
    record_in(config).input_shape = {3};
    fields_in(config).label = "cls";
    return config;
  }
  static config::DatasetConfig golden(const std::string& glob) {
    config::DatasetConfig config;
    config.source = config::WebdatasetDataset{};
    path_in(config) = kGolden;
    glob_in(config) = glob;
    fields_in(config).image = "jpg;PNG";
    transforms_in(config) = {config::Resize{{3, 4}}};
    fields_in(config).label = "cls";
    return config;
  }
  using FolderFixture::opened;
  std::unique_ptr<Dataset> opened(const std::string& file) const {
    write("data.tar", file);
    return opened(tar());
  }
  static std::string sample(const std::string& key, const std::string& bin,
                            const std::string& cls) {
    return tar_member(key + ".bin", bin) + tar_member(key + ".cls", cls);
  }
  void expect_rejected(const std::string& file, const std::vector<std::string>& words) const {
    write("data.tar", file);
    expect_error(tar(), StatusCode::kCorrupt, words);
  }
};

// ---- Files written by other programs

// The channels of sample i contain i, 10 * i and the pixel index.
void expect_golden(const Dataset& dataset, std::vector<uint8_t> samples) {
  ASSERT_EQ(dataset.size(), samples.size());
  std::vector<uint8_t> found;
  for (uint64_t s = 0; s < dataset.size(); ++s) {
    const Sample sample = read_sample(dataset, s);
    ASSERT_TRUE(sample.status.ok()) << sample.status.to_string();
    const auto pixels = sample.values<uint8_t>(0);
    found.push_back(pixels[0]);
    EXPECT_EQ(sample.label(), pixels[0] % 3);
    for (uint8_t p = 0; p < 12; ++p) {
      EXPECT_EQ(pixels[p], pixels[0]);
      EXPECT_EQ(pixels[12 + p], 10 * pixels[0]);
      EXPECT_EQ(pixels[24 + p], p);
    }
  }
  std::ranges::sort(found);
  EXPECT_EQ(found, samples);
}

TEST_F(WebdatasetTest, ReadsArchivesOfOtherPrograms) {
  expect_golden(*opened(golden("webdataset-{000..001}.tar")), {0, 1, 2, 3, 4});
  expect_golden(*opened(golden("python-ustar.tar")), {0, 1, 2});
  expect_golden(*opened(golden("python-gnu.tar")), {0, 1, 2, 3, 4});
  expect_golden(*opened(golden("python-pax.tar")), {0, 1, 2, 3, 4});
  expect_golden(*opened(golden("gnutar-v7.tar")), {0, 1});
  expect_golden(*opened(golden("gnutar-gnu.tar")), {0, 1, 2, 3, 4});
  expect_golden(*opened(golden("gnutar-posix.tar")), {0, 1, 2, 3, 4});
}

TEST_F(WebdatasetTest, ReadsLabelsAndTargetsFromJson) {
  auto config = golden("webdataset-{000..001}.tar");
  fields_in(config).label = "json:name";
  EXPECT_THAT(opened(config)->class_names(), ElementsAre("cat", "dog", "eel"));
  EXPECT_EQ(read_sample(*opened(config), 4).label(), 1);
  fields_in(config).label = "json:deep.class";
  EXPECT_EQ(opened(config)->classes(), 2u);
  EXPECT_EQ(read_sample(*opened(config), 3).label(), 1);
  fields_in(config).label = "";
  fields_in(config).target = {"json:score", "cls"};
  record_in(config).num_targets = 3;
  EXPECT_THAT(read_sample(*opened(config), 3).values<float>(1), ElementsAre(3, 0.75, 0));
  fields_in(config).image = "";
  fields_in(config).input = {"json:score"};
  transforms_in(config).clear();
  record_in(config).input_shape = {2};
  EXPECT_THAT(read_sample(*opened(config), 1).values<float>(0), ElementsAre(1, 0.25));
}

TEST_F(WebdatasetTest, ReadsTextsAsOneStream) {
  using namespace std::string_literals;
  config::DatasetConfig config;
  config.source = config::WebdatasetDataset{};
  path_in(config) = kGolden;
  glob_in(config) = "webdataset-{000..001}.tar";
  fields_in(config).text = "txt";
  sequence_in(config).block_size = 8;
  const auto dataset = opened(config);
  ASSERT_TRUE(dataset);
  EXPECT_EQ(dataset->size(), (55u - 1) / 8);  // texts of 0, 5, … 20 bytes, each with an end token
  EXPECT_EQ(read_sample(*dataset, 0).text(), "\0word \0wo"s);
  EXPECT_EQ(read_sample(*dataset, 5).text(), "ord word "s);
}

TEST_F(WebdatasetTest, RejectsCompressedShardsWithHint) {
  auto config = golden("gnutar-gzip.tar.gz");
  expect_error(config, StatusCode::kCorrupt, {"gnutar-gzip.tar.gz", "gunzip"});
}

// ---- Samples

TEST_F(WebdatasetTest, SplitsKeyAtFirstDotAfterLastSlash) {
  const auto key = [](std::string_view name) {
    const auto split = split_tar_name(name);
    return split ? std::string(split->key) + '|' + std::string(split->extension) : "none";
  };
  EXPECT_EQ(key("a.jpg"), "a|jpg");
  EXPECT_EQ(key("a.b/c.seg.png"), "a.b/c|seg.png");
  EXPECT_EQ(key("./a.jpg"), "./a|jpg");
  for (const std::string_view name : {"", "a", "a/b", "a.b/c", ".hidden", "a/._b.jpg", "a."})
    EXPECT_EQ(key(name), "none") << name;
}

TEST_F(WebdatasetTest, ReportsSourceOfSamples) {
  const auto dataset = opened(sample("a", "123", "0") + sample("b", "456", "2\n") + kTarEnd);
  ASSERT_TRUE(dataset);
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_EQ(dataset->classes(), 3u);
  EXPECT_EQ(read_sample(*dataset, 1).text(), "456");
  EXPECT_EQ(read_sample(*dataset, 1).label(), 2);
  EXPECT_EQ(dataset->source(1).file, path("data.tar"));
  EXPECT_EQ(dataset->source(1).offset, 2048u);
}

TEST_F(WebdatasetTest, UsesFirstAvailableExtension) {
  write("data.tar", tar_member("a.x", "xxx") + tar_member("a.y", "yyy") + tar_member("a.cls", "0") +
                        tar_member("b.cls", "1") + tar_member("b.X", "XXX") + kTarEnd);
  auto config = tar();
  fields_in(config).input = {"y;x"};
  const auto dataset = opened(config);
  EXPECT_EQ(read_sample(*dataset, 0).text(), "yyy");
  EXPECT_EQ(read_sample(*dataset, 1).text(), "XXX");
}

TEST_F(WebdatasetTest, RejectsSamplesWithMissingMember) {
  expect_rejected(sample("a", "123", "0") + tar_member("b/c.bin", "456") +
                      tar_member("b/c.txt", "t") + tar_member("d.cls", "1") + kTarEnd,
                  {"data.train.path: " + path("data.tar") +
                       ": sample 'b/c' ('bin' 'txt') at offset 2048: has no label 'cls'",
                   "2 of 3 are incomplete", "data.train.on_missing_field: drop"});
  auto config = tar();
  record_in(config).on_missing_field = config::OnMissingField::kDrop;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(opened(config)->size(), 1u);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("reason=missing_field count=2 total=3"));
}

// GNU tar stores all but the first of several hard links as type 1, without content.
TEST_F(WebdatasetTest, RejectsFieldThatIsLink) {
  for (const char type : {'1', '2'})
    expect_rejected(sample("a", "123", "0") + tar_member("b.cls", "", type) +
                        tar_member("b.bin", "456") + kTarEnd,
                    {"sample 'b' ('cls' 'bin') at offset 2048: member 'cls' is a link",
                     "--hard-dereference --dereference", "1 of 2"});
}

TEST_F(WebdatasetTest, IgnoresLinksThatAreNoFields) {
  const auto dataset =
      opened(sample("a", "123", "0") + tar_member("a.txt", "", '1') +
             tar_member("latest.png", "", '2') + sample("b", "456", "1") + kTarEnd);
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_EQ(read_sample(*dataset, 1).text(), "456");
}

TEST_F(WebdatasetTest, TreatsSeparatedMembersAsTwoSamples) {
  expect_rejected(tar_member("a.bin", "123") + sample("b", "456", "1") + tar_member("a.cls", "0"),
                  {"sample 'a' ('bin') at offset 0", "2 of 3"});
}

TEST_F(WebdatasetTest, RejectsDuplicateMember) {
  expect_rejected(sample("a", "123", "0") + tar_member("a.BIN", "456") + kTarEnd,
                  {"sample 'a' at offset 0: has two members 'bin'"});
}

TEST_F(WebdatasetTest, LogsIgnoredMembersAndMissingEndMarker) {
  write("data.tar",
        tar_member("README", "x") + tar_member("a/._b.bin", "x") + sample("a/b", "123", "0"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(opened(tar())->size(), 1u);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("members ignored dataset=train count=2"));
  EXPECT_THAT(log, HasSubstr("without end marker dataset=train count=1 first=" + path("data.tar")));
}

TEST_F(WebdatasetTest, RejectsInvalidLabelsDuringIndexing) {
  expect_rejected(sample("a", "123", " ") + kTarEnd,
                  {"sample 'a' ('bin' 'cls')", "label 'cls' is empty"});
  expect_rejected(sample("a", "123", std::string(70000, '1')) + kTarEnd, {"sample 'a'", "70000"});
  auto config = tar();
  fields_in(config).label = "cls:name";
  write("data.tar", sample("a", "123", "{") + kTarEnd);
  expect_error(config, StatusCode::kCorrupt, {"sample 'a'", "cls: invalid JSON"});
  write("data.tar", sample("a", "123", "{\"other\": 1}") + kTarEnd);
  expect_error(config, StatusCode::kInvalidArgument, {"has no label 'cls:name'", "1 of 1"});
}

TEST_F(WebdatasetTest, ReportsSampleErrorOnValueOfWrongSize) {
  const auto dataset = opened(sample("a", "1234", "0") + sample("b", "456", "1") + kTarEnd);
  EXPECT_EQ(read_sample(*dataset, 0).status.message(),
            path("data.tar") + ": record at offset 0: input 'bin' must be 3 bytes, got 4 bytes");
  EXPECT_TRUE(read_sample(*dataset, 1).status.ok());
}

TEST_F(WebdatasetTest, ReportsOrLogsTruncationAtAnyByte) {
  const std::string whole = sample("a", "123", "0") + sample("b", "456", "1") + kTarEnd;
  for (size_t length = 0; length + 512 < whole.size(); length += 73) {
    write("data.tar", whole.substr(0, length));
    ::testing::internal::CaptureStderr();
    const auto dataset = open(tar());
    const std::string log = ::testing::internal::GetCapturedStderr();
    if (dataset.ok()) {
      EXPECT_THAT(log, HasSubstr("without end marker"));
    } else {
      EXPECT_THAT(dataset.status().message(), HasSubstr(path("data.tar")));
    }
  }
}

TEST_F(WebdatasetTest, RejectsInvalidFilesAndSettings) {
  expect_rejected(std::string(2000, 'x'), {"offset 0: not a tar header", "narrow the glob"});
  expect_rejected("x", {"offset 0: the file ends in a header"});
  auto config = tar();
  for (const std::string input : {"json:", ";", ":x"}) {
    fields_in(config).input = {input};
    expect_error(config, StatusCode::kInvalidArgument,
                 {"data.train.fields.input", "'" + input + "'"});
  }
  config = {};
  config.source = config::WebdatasetDataset{};
  path_in(config) = path("data.tar");
  fields_in(config).text = "json:caption";
  sequence_in(config).block_size = 4;
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.fields.text"});
}

}  // namespace
}  // namespace stoker::data::format
