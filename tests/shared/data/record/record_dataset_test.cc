// Records of named fields: their index, and the datasets built from them.
#include "shared/data/record/record_dataset.h"

#include <map>
#include <string>
#include <vector>

#include "shared/data/record/record_index.h"
#include "shared/data/record/table_reader.h"
#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_sample;

const std::string kDatasetName = "train";

// Each record has one number per field; -1 denotes a missing field.
using Record = std::vector<int64_t>;

class FakeRecords : public TableReader, public TextSource {
 public:
  FakeRecords(files::FileTable shards, RecordTable table, std::vector<std::string> texts)
      : TableReader(std::move(shards), std::move(table)), texts_(std::move(texts)) {}

  Status read(uint64_t record, RecordValues& values) const override {
    thread_local int64_t number;
    number = static_cast<int64_t>(table().row(record)[0]);
    values.fields[0] = FieldInts(&number, 1);
    return {};
  }
  void prefetch(uint64_t, files::PrefetchedBytes&) const override {}
  const TextSource* maybe_texts() const override { return this; }
  void prefetch_text(uint64_t, uint64_t, uint64_t, files::PrefetchedBytes&) const override {}
  uint64_t text_bytes(uint64_t record) const override { return texts_[record].size(); }
  Status read_text(uint64_t record, uint64_t from, std::span<std::byte> out) const override {
    EXPECT_LE(from + out.size(), texts_[record].size());
    std::memcpy(out.data(), texts_[record].data() + from, out.size());
    return {};
  }

 protected:
  uint64_t offset(uint64_t record) const override { return 100 * table().row(record)[0]; }

 private:
  const std::vector<std::string> texts_;
};

class RecordDatasetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.source = config::TfrecordDataset{};
    path_in(config_) = "shards";
    fields_in(config_).input = {"x"};
    record_in(config_).input_shape = {1};
    fields_in(config_).label = "y";
    shards_.add("a.rec", {.size = 1000, .mtime_ns = 1, .inode = 1});
    shards_.add("b.rec", {.size = 1000, .mtime_ns = 1, .inode = 1});
  }

  Result<files::IndexMetadata> index(const std::vector<std::vector<Record>>& shards) {
    const DatasetRequest set{.name = kDatasetName, .config = config_};
    const SampleSpec spec = *SampleSpec::of(set);
    RecordIndexBuilder index(set, spec, shards_, 1, {});
    for (const auto& shard : shards) {
      for (const Record& record : shard) {
        std::vector<FieldValue> values(record.size());
        for (size_t i = 0; i < record.size(); ++i)
          if (record[i] >= 0) values[i] = FieldInts(&record[i], 1);
        const uint64_t row = static_cast<uint64_t>(record[0]);
        STOKER_RETURN_IF_ERROR(index.add(100 * row, "", values, {&row, 1}));
      }
      index.end_shard();
    }
    return index.finish();
  }
  Result<std::unique_ptr<Dataset>> open(files::IndexMetadata metadata,
                                        std::vector<std::string> texts = {}) {
    const DatasetRequest set{.name = kDatasetName, .config = config_};
    SampleSpec spec = *SampleSpec::of(set);
    STOKER_ASSIGN_OR_RETURN(RecordTable table,
                            RecordTable::of(std::move(metadata), shards_.size(), 1, spec));
    auto records = std::make_unique<FakeRecords>(shards_, std::move(table), std::move(texts));
    return make_record_dataset(set, spec, "fingerprint", std::move(records));
  }
  std::unique_ptr<Dataset> texts(const std::vector<std::string>& texts, int64_t context) {
    config_.source = config::TfrecordDataset{};
    path_in(config_) = "shards";
    fields_in(config_).text = "txt";
    sequence_in(config_).block_size = context;
    std::vector<Record> records;
    for (size_t i = 0; i < texts.size(); ++i) records.push_back({static_cast<int64_t>(i)});
    auto dataset = open(*index({records, {}}), texts);
    EXPECT_TRUE(dataset.ok()) << dataset.status().to_string();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }

  config::DatasetConfig config_;
  files::FileTable shards_;
};

TEST_F(RecordDatasetTest, ReadsRecordsOfAllShardsWithLabels) {
  const auto dataset = open(*index({{{1, 0}, {2, 4}}, {{3, 2}}}));
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  ASSERT_EQ((*dataset)->size(), 3u);
  EXPECT_EQ((*dataset)->classes(), 5u);
  EXPECT_THAT(read_sample(**dataset, 1).values<float>(0), ElementsAre(2));
  EXPECT_EQ(read_sample(**dataset, 1).label(), 4);
  EXPECT_EQ(read_sample(**dataset, 2).label(), 2);
  EXPECT_EQ((*dataset)->source(1).file, "a.rec");
  EXPECT_EQ((*dataset)->source(2).file, "b.rec");
  EXPECT_EQ((*dataset)->source(2).offset, 300u);
}

TEST_F(RecordDatasetTest, SplitsByRecord) {
  config_.split = {0.5, 1};
  const auto dataset = open(*index({{{1, 0}, {2, 1}}, {{3, 2}, {4, 3}}}));
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)->size(), 2u);
  EXPECT_EQ((*dataset)->classes(), 4u);
  EXPECT_THAT(read_sample(**dataset, 0).values<float>(0), ElementsAre(3));
}

TEST_F(RecordDatasetTest, RejectsIncompleteRecordsWithTheirCount) {
  const auto metadata = index({{{1, 0}, {2, -1}}, {{3, -1}}});
  ASSERT_FALSE(metadata.ok());
  EXPECT_EQ(metadata.status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(metadata.status().message(),
            "data.train.path: a.rec: record at offset 200: has no label 'y'; 2 of 3 are "
            "incomplete: complete them, or leave them out with data.train.on_missing_field: drop");
}

TEST_F(RecordDatasetTest, DropsAndLogsIncompleteRecordsOnRequest) {
  record_in(config_).on_missing_field = config::OnMissingField::kDrop;
  ::testing::internal::CaptureStderr();
  const auto dataset = open(*index({{{1, 0}, {2, -1}}, {{3, 1}}}));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("reason=missing_field count=1 total=3"));
  EXPECT_THAT(log, HasSubstr("offset 200"));
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)->size(), 2u);
  EXPECT_THAT(read_sample(**dataset, 1).values<float>(0), ElementsAre(3));
}

TEST_F(RecordDatasetTest, ReportsInvalidNamesWhenNoRecordIsComplete) {
  record_in(config_).on_missing_field = config::OnMissingField::kDrop;
  EXPECT_EQ(index({{{1, -1}}, {{3, -1}}}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(RecordDatasetTest, ReportsNotFoundWithoutRecords) {
  const auto metadata = index({{}, {}});
  EXPECT_EQ(metadata.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(metadata.status().message(), HasSubstr("no record in its 2 files"));
}

TEST_F(RecordDatasetTest, RejectsLabelBeyondNumClasses) {
  record_in(config_).num_classes = 4;
  const auto metadata = index({{{1, 0}, {2, 4}}, {}});
  EXPECT_EQ(metadata.status().message(), "data.train.num_classes: is 4, but a label is 4");
}

TEST_F(RecordDatasetTest, ReportsCorruptIndexMetadata) {
  const files::IndexMetadata good = *index({{{1, 0}, {2, 4}}, {{3, 2}}});
  ASSERT_TRUE(open(good).ok());
  for (size_t length = 0; length < good.numbers.size(); ++length) {
    files::IndexMetadata cut = good;
    cut.numbers.resize(length);
    EXPECT_EQ(open(std::move(cut)).status().code(), StatusCode::kCorrupt) << length;
  }
  for (size_t position = 0; position < good.numbers.size(); ++position) {
    files::IndexMetadata changed = good;
    changed.numbers[position] = ~uint64_t{0};
    const bool is_row = position >= 4 && position < 7;  // the format defines what a row means
    EXPECT_EQ(open(std::move(changed)).ok(), is_row) << position;
  }
}

TEST_F(RecordDatasetTest, ReadsTextsAsOneZeroSeparatedStream) {
  using namespace std::string_literals;
  const auto dataset = texts({"abc", "", "defghi", "j"}, 4);
  ASSERT_TRUE(dataset);
  ASSERT_EQ(dataset->size(), 3u);  // "abc0" "0def" "ghi0" "j0": 14 bytes
  EXPECT_EQ(read_sample(*dataset, 0).text(), "abc\0\0"s);
  EXPECT_EQ(read_sample(*dataset, 1).text(), "\0defg"s);
  EXPECT_EQ(read_sample(*dataset, 2).text(), "ghi\0j"s);
  EXPECT_EQ(dataset->classes(), 256u);
  EXPECT_EQ(dataset->source(1).offset, 100u);
  EXPECT_EQ(dataset->source(2).offset, 200u);
}

TEST_F(RecordDatasetTest, ReadsEveryBlockFromConcatenatedStream) {
  std::vector<std::string> parts;
  std::string stream;
  for (size_t i = 0; i < 40; ++i) {
    parts.push_back(std::string(i * 7 % 11, static_cast<char>('a' + i % 26)));
    stream += parts.back() + '\0';
  }
  for (const int64_t context : {1, 2, 3, 7, 20, 100}) {
    const auto dataset = texts(parts, context);
    ASSERT_TRUE(dataset);
    const auto step = static_cast<size_t>(context);
    EXPECT_EQ(dataset->size(), (stream.size() - 1) / step);
    for (uint64_t i = 0; i < dataset->size(); ++i)
      EXPECT_EQ(read_sample(*dataset, i).text(), stream.substr(i * step, step + 1));
  }
}

TEST_F(RecordDatasetTest, RejectsTextsShorterThanOneBlock) {
  config_.source = config::TfrecordDataset{};
  fields_in(config_).text = "txt";
  sequence_in(config_).block_size = 10;
  const auto dataset = open(*index({{{0}}, {}}), {"abc"});
  EXPECT_EQ(dataset.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(dataset.status().message(), HasSubstr("has 4 bytes"));
}

}  // namespace
}  // namespace stoker::data::record
