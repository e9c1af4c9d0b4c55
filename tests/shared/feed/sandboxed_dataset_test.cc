// The client with real processes: stoker-feed, and request_worker_test_program.cc for faults.
#include "shared/feed/sandboxed_dataset.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "feeder/sandbox.h"
#include "shared/config/load_config.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/record/label_range_check.h"
#include "tests/shared/data/small_datasets.h"
#include "tests/shared/feed/faulty_sample.h"
#include "tests/support/machine_slowness.h"
#include "tests/support/temporary_directory.h"

namespace stoker::feed {
namespace {

using data::testing::SmallDataset;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The tensors of several samples.
class Rows {
 public:
  Rows(const std::vector<TensorSpec>& specs, size_t count) : specs_(specs) {
    for (const TensorSpec& spec : specs)
      tensors_.emplace_back(spec.bytes() * count, std::byte{0xee});
    for (auto& tensor : tensors_) spans_.emplace_back(tensor);
  }
  std::span<const std::span<std::byte>> spans() const { return spans_; }
  std::span<const std::span<std::byte>> row(size_t row) {
    row_.clear();
    for (size_t t = 0; t < specs_.size(); ++t)
      row_.push_back(spans_[t].subspan(row * specs_[t].bytes(), specs_[t].bytes()));
    return row_;
  }
  const std::vector<std::vector<std::byte>>& tensors() const { return tensors_; }

 private:
  const std::vector<TensorSpec> specs_;
  std::vector<std::vector<std::byte>> tensors_;
  std::vector<std::span<std::byte>> spans_, row_;
};

std::vector<data::SampleReadRequest> requests_for(uint64_t first, uint64_t count) {
  std::vector<data::SampleReadRequest> samples;
  for (uint64_t sample = first; sample < first + count; ++sample)
    samples.push_back({.sample = sample, .random_key = {.sample = sample}});
  return samples;
}

class SandboxedDatasetTest : public ::testing::Test {
 protected:
  ~SandboxedDatasetTest() override {
    reader_.reset();
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
  }

  // Opens data.NAME in this process and with the program.
  Status open(const std::string& name, const std::string& yaml, const std::string& program,
              const std::string& feed = "{}", bool is_sequence = false) {
    const auto config = config::parse_config(
        "data:\n  train: " + yaml + "\n  " + name + ": " + yaml + "\nfeed: " + feed +
            (is_sequence ? "\nmodel: {name: gpt, vocab_size: 65536}\n"
                         : "\nmodel: {name: mlp, hidden_sizes: [8]}\n"
                           "task: {name: classification}\n"),
        "test.yaml", {});
    STOKER_RETURN_IF_ERROR(config.status());
    config_ = *config;
    STOKER_ASSIGN_OR_RETURN(data_, data::pipeline::open_dataset(name, config_.data, index(), {}));
    STOKER_ASSIGN_OR_RETURN(auto inner,
                            data::pipeline::open_dataset(name, config_.data, index(), {}));
    STOKER_ASSIGN_OR_RETURN(
        reader_, SandboxedDataset::open(
                     config_, {.dataset = name, .index_dir = index(), .feed_program = program},
                     std::move(inner)));
    return {};
  }
  static std::string timeout_of(double seconds) {
    return "{worker_timeout_seconds: " + std::to_string(test::scaled_seconds(seconds)) + "}";
  }
  Status open_faulty(const std::string& mode, const std::string& feed = "{}") {
    return open(mode, "{format: synthetic, num_samples: 60, input_shape: [3, 10], num_classes: 4}",
                REQUEST_WORKER_TEST_PROGRAM, feed);
  }
  std::string index() const { return folder_ / "index"; }

  // The samples as this process reads them.
  std::vector<std::vector<std::byte>> expected(const std::vector<TensorSpec>& specs,
                                               std::span<const data::SampleReadRequest> samples) {
    Rows rows(specs, samples.size());
    for (size_t i = 0; i < samples.size(); ++i)
      EXPECT_TRUE(data_->read(samples[i].sample, samples[i].random_key, rows.row(i)).ok());
    return rows.tensors();
  }
  void expect_same(const std::vector<TensorSpec>& specs, uint64_t first, uint64_t count) {
    const auto samples = requests_for(first, count);
    Rows rows(specs, count);
    const auto read = reader_->read_batch(samples, rows.spans());
    ASSERT_TRUE(read.status.ok()) << read.status.to_string();
    EXPECT_EQ(rows.tensors(), expected(specs, samples));
  }
  Status read_one(uint64_t sample) {
    Rows row(data_->spec(), 1);
    return reader_->read(sample, {.sample = sample}, row.spans());
  }

  const test::TemporaryDirectory folder_;
  config::Config config_;
  std::unique_ptr<data::Dataset> data_;
  std::unique_ptr<SandboxedDataset> reader_;
};

// ---- The same samples

class SandboxedDatasetFormatTest : public SandboxedDatasetTest,
                                   public ::testing::WithParamInterface<SmallDataset> {};

TEST_P(SandboxedDatasetFormatTest, MatchesReadsOfThisProcess) {
  GetParam().write(folder_ / "set");
  const std::string name = GetParam().name;
  const bool is_sequence = name.find("text") != std::string::npos || name == "tokens";
  const Status opened =
      open("val", GetParam().yaml_in(folder_ / "set"), FEED_PROGRAM, "{}", is_sequence);
  ASSERT_TRUE(opened.ok()) << opened.to_string();
  std::ifstream file("/proc/" + std::to_string(reader_->process_id()) + "/status");
  const std::string status{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(status.find("Seccomp:\t2") != std::string::npos, !feeder::kSanitized);
  expect_same(data_->spec(), 0, std::min<uint64_t>(data_->size(), 300));
  EXPECT_EQ(data_->max_length() > 0, name.ends_with("_sequences"));
  if (data_->max_length() > 0)
    for (uint64_t sample = 0; sample < std::min<uint64_t>(data_->size(), 5); ++sample)
      expect_same(data_->spec_of_length(data_->length(sample)), sample, 1);
}

INSTANTIATE_TEST_SUITE_P(Formats, SandboxedDatasetFormatTest,
                         ::testing::ValuesIn(data::testing::small_datasets()),
                         [](const auto& test) { return std::string(test.param.name); });

// As the evaluator reads: neither a crash nor samples of other bytes.
TEST_P(SandboxedDatasetFormatTest, ReportsFilesThatWereReplaced) {
  const std::string name = GetParam().name;
  const bool reads_files = name != "synthetic" && name != "packed";
  GetParam().write(folder_ / "set");
  std::filesystem::create_directories(folder_ / "set");
  ASSERT_TRUE(open("val", GetParam().yaml_in(folder_ / "set"), FEED_PROGRAM, "{}",
                   name.find("text") != std::string::npos || name == "tokens")
                  .ok());
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "set"))
    if (entry.is_regular_file()) files.push_back(entry.path());
  for (const std::filesystem::path& file : files) {
    const std::string copy = file.string() + ".copy";
    std::filesystem::copy_file(file, copy);
    std::filesystem::last_write_time(copy, std::filesystem::last_write_time(file));
    std::filesystem::rename(copy, file);  // neither size nor time tell
  }
  const auto samples = requests_for(0, 10);
  Rows rows(reader_->spec(), samples.size());
  const data::BatchReadResult read = reader_->read_batch(samples, rows.spans());
  EXPECT_EQ(read.good, reads_files ? 0u : samples.size()) << read.status.to_string();
  EXPECT_EQ(read.status.code(), reads_files ? StatusCode::kCorrupt : StatusCode::kOk);
  EXPECT_THAT(read.status.message(),
              HasSubstr(reads_files ? "replaced by another file since it was indexed" : ""));
  EXPECT_FALSE(reader_->is_quarantined(0));
}

TEST_F(SandboxedDatasetTest, ReadsSamplesLargerThanRequestMemory) {
  const Status opened = open("val",
                             "{format: synthetic, num_samples: 4, input_shape: [1100, 1000], "
                             "num_classes: 4}",
                             FEED_PROGRAM);
  ASSERT_TRUE(opened.ok()) << opened.to_string();
  expect_same(data_->spec(), 0, 4);
}

// ---- Faults of samples

struct FaultCase {
  const char* mode;
  const char* cause;
  bool needs_filter = false;
};

class FaultySampleTest : public SandboxedDatasetTest,
                         public ::testing::WithParamInterface<FaultCase> {};

TEST_P(FaultySampleTest, IsQuarantinedAndOthersAreRead) {
  if (GetParam().needs_filter && feeder::kSanitized) GTEST_SKIP() << "there is no sandbox";
  ASSERT_TRUE(open_faulty(GetParam().mode, timeout_of(0.02)).ok());
  Rows rows(data_->spec(), 60);
  const auto read = reader_->read_batch(requests_for(0, 60), rows.spans());
  EXPECT_EQ(read.good, kFaultySample);
  EXPECT_EQ(read.status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(read.status.message(), AllOf(HasSubstr("quarantined"), HasSubstr(GetParam().cause)));
  for (uint64_t sample = 0; sample < 60; ++sample)
    EXPECT_EQ(reader_->is_quarantined(sample), sample == kFaultySample) << sample;
  expect_same(data_->spec(), 0, kFaultySample);
  expect_same(data_->spec(), kFaultySample + 1, 60 - kFaultySample - 1);
  const pid_t process = reader_->process_id();
  EXPECT_EQ(read_one(kFaultySample).code(), StatusCode::kCorrupt);
  EXPECT_EQ(reader_->process_id(), process) << "it was read again";
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultySampleTest,
                         ::testing::Values(FaultCase{"crashes", "signal 11"},
                                           FaultCase{"makes_call", "system call", true},
                                           FaultCase{"needs_memory", "needs more memory", true},
                                           FaultCase{"spins", "timeout, computing"}),
                         [](const auto& test) { return std::string(test.param.mode); });

TEST_F(SandboxedDatasetTest, ReportsTimeoutOfStoppedProcessWithoutQuarantine) {
  ASSERT_TRUE(open_faulty("stops", timeout_of(0.1)).ok());
  ::testing::internal::CaptureStderr();
  const Status status = read_one(kFaultySample);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("worker process killed"), Not(HasSubstr("crashed"))));
  EXPECT_EQ(status.code(), StatusCode::kTimedOut);
  EXPECT_THAT(status.message(), HasSubstr("stopped"));
  EXPECT_FALSE(reader_->is_quarantined(kFaultySample));
  expect_same(data_->spec(), 20, 5);
}

TEST_F(SandboxedDatasetTest, DoesNotKillProcessWithLittleCpuTime) {
  ASSERT_TRUE(open_faulty("naps", timeout_of(0.5)).ok());
  const pid_t process = reader_->process_id();
  expect_same(data_->spec(), kFaultySample, 1);
  EXPECT_EQ(reader_->process_id(), process);
}

TEST_F(SandboxedDatasetTest, LimitsTimeOfEachSampleOfRequest) {
  ASSERT_TRUE(open_faulty("pauses", timeout_of(0.1)).ok());
  const pid_t process = reader_->process_id();
  expect_same(data_->spec(), 0, 60);
  EXPECT_EQ(reader_->process_id(), process);
}

TEST_F(SandboxedDatasetTest, DoesNotApplyMemoryLimitOfThisProcessToWorker) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_DATA, &before), 0);
  const rlimit lower{.rlim_cur = std::min<rlim_t>(before.rlim_max, rlim_t{1} << 60),
                     .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_DATA, &lower), 0);
  const Status opened =
      open("val", "{format: synthetic, num_samples: 60, input_shape: [3], num_classes: 4}",
           FEED_PROGRAM);
  ASSERT_EQ(::setrlimit(RLIMIT_DATA, &before), 0);
  ASSERT_TRUE(opened.ok()) << opened.to_string();
  rlimit of_worker{};
  ASSERT_EQ(::prlimit(reader_->process_id(), RLIMIT_DATA, nullptr, &of_worker), 0);
  EXPECT_EQ(of_worker.rlim_cur, before.rlim_max);
}

TEST_F(SandboxedDatasetTest, ReadsEverySampleAfterProcessIsKilled) {
  ASSERT_TRUE(open_faulty("crashes_once").ok());
  std::ofstream(index() + "/armed") << "";
  ::kill(reader_->process_id(), SIGKILL);  // the next process is armed
  expect_same(data_->spec(), 0, 60);
  EXPECT_FALSE(std::filesystem::exists(index() + "/armed"));
  ::kill(reader_->process_id(), SIGKILL);
  expect_same(data_->spec(), 0, 60);
  EXPECT_FALSE(reader_->is_quarantined(kFaultySample));
}

// ---- Hostile processes

class WrongReplyTest : public SandboxedDatasetTest,
                       public ::testing::WithParamInterface<const char*> {};

TEST_P(WrongReplyTest, IsTreatedAsCrash) {
  ASSERT_TRUE(open_faulty(GetParam()).ok());
  EXPECT_EQ(read_one(3).code(), StatusCode::kCorrupt);
  EXPECT_TRUE(reader_->is_quarantined(3));
}

INSTANTIATE_TEST_SUITE_P(Replies, WrongReplyTest,
                         ::testing::Values("wrong_serial", "wrong_count", "wrong_code", "long_text",
                                           "short_reply", "noise", "closes"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(SandboxedDatasetTest, ReplacesProcessThatRepliedBeforeItsRequest) {
  ASSERT_TRUE(open_faulty("two_replies").ok());
  EXPECT_TRUE(read_one(3).ok());
  const pid_t process = reader_->process_id();
  EXPECT_TRUE(read_one(4).ok());
  EXPECT_NE(reader_->process_id(), process);
}

TEST_F(SandboxedDatasetTest, ReportsLabelOutOfRange) {
  ASSERT_TRUE(open_faulty("wrong_label").ok());
  const auto checked = data::record::with_range_check(config_, std::move(reader_));
  Rows rows(data_->spec(), 10);
  const auto read = checked->read_batch(requests_for(0, 10), rows.spans());
  EXPECT_EQ(read.good, 0u);
  EXPECT_EQ(read.status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(read.status.message(), HasSubstr("label 6510615555426900570"));
}

// ---- Starting

TEST_F(SandboxedDatasetTest, ReportsWhyDatasetCannotBeOpened) {
  ASSERT_TRUE(open_faulty("good").ok());
  expect_same(data_->spec(), 0, 60);
  std::filesystem::remove_all(index());
  ::kill(reader_->process_id(), SIGKILL);
  const Status status = read_one(0);
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.to_string();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("data.good"), HasSubstr("no index yet")));
  EXPECT_FALSE(reader_->is_quarantined(0));
}

TEST_F(SandboxedDatasetTest, ReportsDeniedSandbox) {
  const Status status = open_faulty("rejected");
  EXPECT_EQ(status.code(), StatusCode::kPermission);
  EXPECT_THAT(status.message(), HasSubstr("add SystemCallFilter=seccomp"));
}

TEST_F(SandboxedDatasetTest, FailsIfProcessEndsRepeatedlyBeforeItIsReady) {
  const Status status = open_faulty("fails");
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("data.fails"), HasSubstr("exit code 70")));
  EXPECT_EQ(open("val", "{format: synthetic, num_samples: 60, input_shape: [3], num_classes: 4}",
                 "/does/not/exist")
                .code(),
            StatusCode::kNotFound);
}

// ---- Messages

TEST(ReadProtocolTest, ReturnsStatusOfReplyWithPrintableText) {
  const Status error(StatusCode::kCorrupt, std::string(2000, 'x') + "\n");
  const auto parsed = parse_reply(make_reply(4, {.good = 2, .status = error}), 4, 3);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->good, 2u);
  EXPECT_EQ(parsed->status.code(), StatusCode::kCorrupt);
  EXPECT_EQ(parsed->status.message(), std::string(ReadReply::kMaxTextBytes, 'x'));
  const Status lines(StatusCode::kIoError, "a\nb\x1b");
  EXPECT_EQ(parse_reply(make_reply(4, {.good = 0, .status = lines}), 4, 3)->status.message(),
            "a?b?");
  const Status half(StatusCode::kIoError, "a\xc3");
  EXPECT_EQ(parse_reply(make_reply(4, {.good = 0, .status = half}), 4, 3)->status.message(),
            "a\xEF\xBF\xBD");
  EXPECT_TRUE(parse_reply(make_reply(4, {.good = 3, .status = {}}), 4, 3)->status.ok());
}

TEST(ReadProtocolTest, RejectsImpossibleReplies) {
  const ReadReply good = make_reply(4, {.good = 3, .status = {}});
  const ReadReply bad = make_reply(4, {.good = 2, .status = Status(StatusCode::kIoError, "x")});
  const auto is_rejected = [](ReadReply reply, const auto& change) {
    change(reply);
    return !parse_reply(reply, 4, 3).has_value();
  };
  EXPECT_FALSE(is_rejected(good, [](ReadReply&) {}));
  EXPECT_FALSE(is_rejected(bad, [](ReadReply&) {}));
  EXPECT_TRUE(is_rejected(good, [](ReadReply& reply) { reply.serial = 5; }));
  EXPECT_TRUE(is_rejected(good, [](ReadReply& reply) { reply.good = 2; }));
  EXPECT_TRUE(is_rejected(good, [](ReadReply& reply) { reply.good = 4; }));
  EXPECT_TRUE(is_rejected(bad, [](ReadReply& reply) { reply.good = 3; }));
  EXPECT_TRUE(is_rejected(bad, [](ReadReply& reply) { reply.text_bytes = 1001; }));
  EXPECT_TRUE(is_rejected(bad, [](ReadReply& reply) { reply.code = 17; }));
  for (const StatusCode code : {StatusCode::kCancelled, StatusCode::kClosed}) {
    EXPECT_TRUE(is_rejected(bad, [code](ReadReply& reply) {
      reply.code = static_cast<uint32_t>(code);
    })) << "a worker process can neither stop a run nor end its data";
  }
}

TEST(ReadProtocolTest, ReturnsSizeOfRewrittenFileUpToMaximum) {
  const RewriteRequest request{.serial = 4, .file_bytes = 90, .max_bytes = 100};
  const auto parse = [&](uint64_t bytes) {
    return parse_reply(make_reply(4, {.good = bytes, .status = {}}), request);
  };
  EXPECT_EQ(**parse(0), 0u);
  EXPECT_EQ(**parse(100), 100u);
  EXPECT_FALSE(parse(101).has_value());
  EXPECT_FALSE(parse_reply(make_reply(5, {.good = 9, .status = {}}), request).has_value());
  const Status error(StatusCode::kOutOfMemory, "x");
  EXPECT_EQ(parse_reply(make_reply(4, {.good = 0, .status = error}), request)->status().message(),
            "x");
  EXPECT_FALSE(parse_reply(make_reply(4, {.good = 1, .status = error}), request).has_value());
}

TEST(ReadProtocolTest, LocatesNoFileThatDoesNotFit) {
  const RewriteRequest request{.serial = 4, .file_bytes = 90, .max_bytes = 100};
  std::vector<std::byte> memory(shared_bytes(request));
  const auto spans = locate_rewrite(memory, request);
  ASSERT_TRUE(spans.has_value());
  EXPECT_EQ(spans->file.data(), memory.data() + sizeof(SharedHeader));
  EXPECT_EQ(spans->file.size(), 90u);
  EXPECT_EQ(spans->rewritten.data(), spans->file.data() + 90);
  EXPECT_EQ(spans->rewritten.size(), 100u);
  for (const uint64_t bytes : {uint64_t{91}, ~uint64_t{0}, ~uint64_t{0} - 99}) {
    EXPECT_FALSE(locate_rewrite(memory, {.file_bytes = bytes, .max_bytes = 100}).has_value());
    EXPECT_FALSE(locate_rewrite(memory, {.file_bytes = 100, .max_bytes = bytes}).has_value());
  }
  EXPECT_FALSE(locate_rewrite(std::span(memory).first(10), {}).has_value());
}

TEST(ReadProtocolTest, LocatesNoSamplesThatDoNotFit) {
  const std::vector<TensorSpec> specs{{.name = "a", .dtype = DType::kU8, .shape = {70}},
                                      {.name = "b", .dtype = DType::kI64, .shape = {}}};
  std::vector<std::byte> memory(shared_bytes(specs, 3));
  EXPECT_EQ(memory.size(), sizeof(SharedHeader) + 256 + 64);
  const auto rows = locate_samples(memory, specs, 3);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].size(), 210u);
  EXPECT_EQ(rows[1].data() - memory.data(),
            static_cast<std::ptrdiff_t>(sizeof(SharedHeader)) + 256);
  EXPECT_TRUE(locate_samples(std::span(memory).first(memory.size() - 1), specs, 3).empty());
}

}  // namespace
}  // namespace stoker::feed
