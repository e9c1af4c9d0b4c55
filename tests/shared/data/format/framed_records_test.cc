// A container that the product does not have: records "INPUT,LABEL", each behind its length as u32. A
// framing and fields are all it takes to index, open and stream it.
#include "shared/data/format/framed_records.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/stream/record_decoder.h"
#include "shared/data/stream/record_stream.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/stream/memory_input.h"

namespace stoker::data::format {
namespace {

using ::testing::HasSubstr;
using testing::Sample;

using Bytes = std::span<const std::byte>;
constexpr uint64_t kPrefix = sizeof(uint32_t);

class PrefixFramer final : public Framer {
 public:
  using Framer::Framer;

 private:
  Result<bool> find_next(Frame& frame) override {
    STOKER_ASSIGN_OR_RETURN(const auto head, source_.peek(at_, kPrefix));
    if (head.empty()) return false;
    if (head.size() < kPrefix) return cut_off();
    uint32_t length = 0;
    std::memcpy(&length, head.data(), kPrefix);
    if (length > framing_.max_bytes) return too_large(length);
    frame = {.offset = at_, .bytes = kPrefix + length};
    if (frame.bytes > source_.size() - at_) return cut_off();
    at_ += frame.bytes;
    return true;
  }
};

Result<Bytes> without_prefix(Bytes bytes) {
  uint32_t length = 0;
  std::memcpy(&length, bytes.data(), kPrefix);
  if (length > bytes.size() - kPrefix) return corrupt_record("longer than it was");
  return bytes.subspan(kPrefix, length);
}

class PairFields final : public RecordFields {
 public:
  using RecordFields::RecordFields;
  Status read(Bytes record, std::span<record::FieldValue> values,
              std::optional<size_t> /*maybe_known*/) override {
    const size_t comma = record::to_string_view(record).find(',');
    if (comma == std::string_view::npos) return corrupt_record("has no comma");
    number_ = std::strtof(std::string(record::to_string_view(record)).c_str(), nullptr);
    values[0] = comma == 0 ? record::FieldValue() : record::FieldFloats(&number_, 1);
    values[1] = record.subspan(comma + 1);
    return {};
  }

 private:
  float number_ = 0;
};

const FramedFormat& pairs() {
  static const FramedFormat kFormat{
      .name = "pairs",
      .framing = {.make_framer = make_framer<PrefixFramer>,
                  .unwrap = without_prefix,
                  .wrapper_bytes = kPrefix,
                  .max_bytes = 100},
      .make_fields = [](const record::SampleSpec& spec) -> std::unique_ptr<RecordFields> {
        return std::make_unique<PairFields>(spec);
      }};
  return kFormat;
}

std::string prefixed(const std::string& record) {
  const auto length = static_cast<uint32_t>(record.size());
  return std::string(reinterpret_cast<const char*>(&length), kPrefix) + record;
}

class FramedRecordsTest : public testing::FolderFixture {
 protected:
  FramedRecordsTest() {
    config_.source = config::JsonlDataset{};  // has the settings of fields
    path_in(config_) = path("data");
    glob_in(config_) = "*";
    fields_in(config_).input = {"x"};
    fields_in(config_).label = "y";
    record_in(config_).input_shape = {1};
    record_in(config_).num_classes = 3;
    std::filesystem::create_directories(index_dir_);  // for the list of bad records
  }
  // Input and label of each sample, or its error.
  using Samples = std::vector<std::string>;
  static std::string text_of(const Sample& sample) {
    if (!sample.status.ok()) return sample.status.message();
    return std::to_string(sample.values<float>(0)[0]) + ',' + std::to_string(sample.label());
  }
  Result<Samples> indexed(const std::string& content) {
    write("data", content);
    const DatasetFormatOps ops = framed_format_ops<pairs>("pairs");
    files::Index index;
    STOKER_ASSIGN_OR_RETURN(index.files, ops.scan(request_, {}));
    STOKER_ASSIGN_OR_RETURN(index.metadata, ops.build_metadata(request_, index.files, {}));
    STOKER_ASSIGN_OR_RETURN(const auto dataset, ops.open(request_, std::move(index)));
    Samples samples;
    for (uint64_t i = 0; i < dataset->size(); ++i)
      samples.push_back(text_of(testing::read_sample(*dataset, i)));
    return samples;
  }
  Result<Samples> streamed(const std::string& content) {
    stream::RecordStream records(pairs().framing,
                                 std::make_unique<stream::testing::MemoryInput>(content, 3));
    STOKER_ASSIGN_OR_RETURN(const auto decoder, stream::RecordDecoder::make(request_, pairs()));
    Samples samples;
    for (stream::StreamRecord record;;) {
      STOKER_ASSIGN_OR_RETURN(const bool more, records.next(record, {}));
      if (!more) return samples;
      STOKER_ASSIGN_OR_RETURN(const bool is_kept, decoder->read(record.bytes));
      if (!is_kept) continue;
      Sample sample;
      std::vector<std::span<std::byte>> outputs;
      for (const TensorSpec& spec : decoder->spec(0)) sample.tensors.emplace_back(spec.bytes());
      for (auto& tensor : sample.tensors) outputs.emplace_back(tensor);
      sample.status = decoder->write({}, outputs);
      samples.push_back(text_of(sample));
    }
  }
  void expect_both(const std::string& content, const Samples& samples) {
    for (const auto& read : {indexed(content), streamed(content)}) {
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      EXPECT_EQ(*read, samples);
    }
  }
  void expect_error_of_both(const std::string& content, const std::string& message) {
    for (const auto& read : {indexed(content), streamed(content)}) {
      EXPECT_EQ(read.status().code(), StatusCode::kCorrupt);
      EXPECT_THAT(read.status().message(), HasSubstr(message));
    }
  }

  const std::string name_ = "train";
  const std::string index_dir_ = path(".index");
  config::DatasetConfig config_;
  const DatasetRequest request_{.name = name_, .config = config_, .index_dir = index_dir_};
};

TEST_F(FramedRecordsTest, ReadsSameSamplesIndexedAndStreamed) {
  expect_both(prefixed("1.5,0") + prefixed("-2,2") + prefixed("7,1"),
              {"1.500000,0", "-2.000000,2", "7.000000,1"});
  record_in(config_).on_missing_field = config::OnMissingField::kDrop;
  expect_both(prefixed(",0") + prefixed("3,1"), {"3.000000,1"});
}

TEST_F(FramedRecordsTest, ReportsSameErrorsIndexedAndStreamed) {
  const std::string good = prefixed("1,0");
  expect_error_of_both(good + "\x09", "at offset 7: is cut off by the end of the file or stream");
  expect_error_of_both(good + prefixed("2,1").substr(0, 6), "at offset 7: is cut off by the end");
  expect_error_of_both(good + "\xff\xff\xff\xff", "at offset 7: has 4294967295 bytes, more than");
  expect_error_of_both(prefixed("none"), "has no comma");
  expect_error_of_both(good + prefixed(",0"), "has no input 'x'");
}

}  // namespace
}  // namespace stoker::data::format
