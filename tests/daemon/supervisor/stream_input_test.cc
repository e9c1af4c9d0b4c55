// A worker process that reads a pipe or external producers and is killed: from which record the next
// one continues.
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "feeder/sandbox.h"
#include "shared/config/load_config.h"
#include "shared/feed/make_stream_feed.h"
#include "tests/daemon/supervisor/feed_fixture.h"
#include "tests/shared/data/stream/producer_client.h"

namespace stoker::supervisor {
namespace {

constexpr uint64_t kRecordBytes = 7000;
constexpr uint64_t kHistoryBytes = uint64_t{1} << 20;  // of 149 records

class StreamInputTest : public FeedTest {
 protected:
  void SetUp() override {
    FeedTest::SetUp();
    ::signal(SIGPIPE, SIG_IGN);
    ASSERT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0);
    ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
    configure(path("fifo"), ends_[0]);
    const std::vector<TensorSpec> spec{{.name = "input", .dtype = DType::kF32, .shape = {1}},
                                       {.name = "target", .dtype = DType::kF32, .shape = {1}}};
    auto ring =
        ring::ShmRing::create(ring::BatchLayout(spec, kBatch), {.slots = 2, .end_ticket = 100});
    ASSERT_TRUE(ring.ok()) << ring.status().to_string();
    ring_ = *std::move(ring);
  }
  void configure(const std::string& source_of_stream, int input_fd) {
    std::ofstream(options_.config_path)
        << "data: {train: {format: jsonl, fields: {input: x, target: y}, stream: {source: '"
        << source_of_stream << "', capacity: 300}}}\n"
        << "model: {name: mlp, hidden_sizes: [8]}\ntask: {name: regression}\n"
        << "train: {max_steps: 1000, micro_batch_size: " << kBatch << "}\n";
    const auto config = config::load_config(options_.config_path, {});
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    const auto source = feed::find_stream_source(*config);
    ASSERT_TRUE(source.ok()) << source.status().to_string();
    options_.feed = config->feed;
    options_.feed.worker_timeout_seconds.reset();
    options_.feed_program = FEED_PROGRAM;
    options_.stream =
        StreamSupply{.fingerprint = source->fingerprint(*config->data.at("train").stream),
                     .capacity = 300,
                     .input_fd = input_fd,
                     .input_name = "pipe",
                     .history_bytes = kHistoryBytes};
  }
  void TearDown() override {
    if (supervisor_) supervisor_->stop();
    ::close(ends_[0]);  // ends a write
    if (producer_.joinable()) producer_.join();
    ::close(ends_[1]);
    FeedTest::TearDown();
  }
  // Writes records 0, 1, … until the pipe is closed, in parts that end in a record; record i has x = y = i.
  void produce(int count) {
    producer_ = std::thread([this, count] {
      std::string rest;
      for (int i = 0; i < count; ++i) {
        std::string text = "{\"x\": " + std::to_string(i) + ", \"comment\": \"";
        const std::string end = "\", \"y\": " + std::to_string(i) + "}\n";
        text.append(kRecordBytes - text.size() - end.size(), 'c').append(end);
        const std::string part = rest + text.substr(0, kRecordBytes / 2);
        rest = text.substr(kRecordBytes / 2);
        if (::write(ends_[1], part.data(), part.size()) != static_cast<ssize_t>(part.size()))
          return;
        num_written_ = i;
      }
    });
  }
  // The records of the next batch.
  std::vector<float> pop() {
    std::vector<float> values(kBatch);
    const auto batch = ring_->pop(kTestTimeout);
    EXPECT_TRUE(batch.ok()) << batch.status().to_string() << coordinator_.reason().to_string();
    if (!batch.ok()) return {};
    std::vector<float> targets(kBatch);
    std::memcpy(values.data(), ring_->layout().tensor_bytes(batch->slot, 0).data(),
                kBatch * sizeof(float));
    std::memcpy(targets.data(), ring_->layout().tensor_bytes(batch->slot, 1).data(),
                kBatch * sizeof(float));
    EXPECT_EQ(values, targets) << "a record is made of two";
    ring_->release(batch->ticket);
    return values;
  }

  std::array<int, 2> ends_{};
  std::thread producer_;
  std::atomic<int> num_written_{0};
};

TEST_F(StreamInputTest, FindsNextRecordIfWorkerHasReadMoreThanIsHeld) {
  produce(2000);
  ASSERT_TRUE(start().ok());
  // Two batches are in the ring, and the queue is full.
  ASSERT_TRUE(eventually([&] { return num_written_ >= 2 * 16 + 300; }));
  const auto workers = supervisor_->process_ids();
  ASSERT_EQ(workers.size(), 1u);
  ::testing::internal::CaptureStderr();
  ASSERT_EQ(::kill(workers.front(), SIGKILL), 0);
  std::vector<float> records;
  for (int batch = 0; batch < 10; ++batch)
    for (const float record : pop()) records.push_back(record);
  ASSERT_EQ(records.size(), 10 * kBatch);
  for (size_t i = 1; i < records.size(); ++i) EXPECT_GT(records[i], records[i - 1]) << i;
  EXPECT_EQ(records[2 * kBatch - 1], 2 * kBatch - 1);
  EXPECT_GT(records[2 * kBatch], 2 * kBatch) << "nothing was lost";
  EXPECT_LE(records[2 * kBatch], num_written_);
  supervisor_->stop();  // counts all errors
  // The kill can fall into a read.
  const std::string log = ::testing::internal::GetCapturedStderr();
  const bool is_read_lost = log.find("killed while it read") != std::string::npos;
  EXPECT_LE(supervisor_->sample_errors(), is_read_lost ? 1u : 0u) << log;
}

// As after a stop before the first batch.
TEST_F(StreamInputTest, LogsLossBeforeFirstBatch) {
  options_.stream->history = feed::StreamHistory{.begin = 100, .complete = 100, .is_last = true};
  options_.stream->continues_history = true;
  produce(2 * kBatch);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(start().ok());
  EXPECT_EQ(pop().size(), kBatch);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("stream records lost source=pipe reason="));
}

TEST_F(StreamInputTest, EndsAlthoughWorkerThatWasAskedToIsKilled) {
  namespace producers = data::stream::testing;
  const auto listening = producers::listen_at(path("producers.sock"));
  configure("external", listening.fd.get());
  options_.stream->has_producers = true;
  ASSERT_TRUE(start().ok());
  std::string text;
  for (size_t i = 0; i < 2 * kBatch + 5; ++i)
    text += "{\"x\": " + std::to_string(i) + ", \"y\": " + std::to_string(i) + "}\n";
  producers::ProducerClient client(path("producers.sock"), producers::hello("a"));
  ASSERT_EQ(client.read_offset(), 0u);
  client.send(text);
  client.finish();
  EXPECT_EQ(client.read_offset(), text.size());
  producers::ProducerClient end(path("producers.sock"), producers::kEndOfStream);
  EXPECT_EQ(end.read_line(), "{\"format\":1,\"end\":true}");
  // It waits for a slot of the ring.
  const auto workers = supervisor_->process_ids();
  ASSERT_EQ(workers.size(), 1u);
  ASSERT_EQ(::kill(workers.front(), SIGKILL), 0);
  for (size_t i = 0; i < 2 * kBatch; i += kBatch) EXPECT_EQ(pop().front(), static_cast<float>(i));
  EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed);
  EXPECT_NE(supervisor_->process_ids(), workers);
}

// The worker crashes between a read and the copy of its bytes.
class LostReadTest : public StreamInputTest {
 protected:
  void SetUp() override {
    if (feeder::kSanitized) GTEST_SKIP() << "the sanitizer runtime must be loaded first";
    StreamInputTest::SetUp();
  }
  void TearDown() override {
    if (!IsSkipped()) StreamInputTest::TearDown();
  }
  void start_and_produce() {
    ::setenv("CRASH_AFTER_READS", "5", 1);
    ::setenv("LD_PRELOAD", FAILING_READS, 1);
    ASSERT_TRUE(start().ok());
    ::unsetenv("LD_PRELOAD");
    produce(2000);
  }
};

TEST_F(LostReadTest, MakesNoRecordOfTwoParts) {
  start_and_produce();
  float last = -1;
  for (int batch = 0; batch < 10; ++batch)
    for (const float record : pop()) EXPECT_GT(record, std::exchange(last, record));
  EXPECT_EQ(supervisor_->crashes(), 1u);
  supervisor_->stop();
  EXPECT_LE(supervisor_->sample_errors(), 1u) << list_of_sample_errors();
}

TEST_F(LostReadTest, EndsRunIfNextRecordCannotBeFound) {
  options_.stream->finds_records = false;
  start_and_produce();
  ASSERT_TRUE(eventually([&] { return coordinator_.should_stop(); }));
  const Status reason = coordinator_.reason();
  EXPECT_EQ(reason.code(), StatusCode::kIoError);
  EXPECT_NE(reason.message().find("the next record cannot be found"), std::string::npos)
      << reason.to_string();
  supervisor_->stop();
  const auto history = supervisor_->history_of(feed::StreamState());
  ASSERT_TRUE(history.has_value());
  EXPECT_EQ(history->begin + history->bytes.size(), history->complete);
}

}  // namespace
}  // namespace stoker::supervisor
