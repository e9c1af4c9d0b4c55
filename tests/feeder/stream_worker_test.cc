// The worker process of a stream, with real processes.
#include "feeder/stream_worker.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/load_config.h"
#include "shared/data/stream/record_decoder.h"
#include "shared/feed/make_stream_feed.h"
#include "tests/daemon/supervisor/feed_fixture.h"

namespace stoker::feeder {

using namespace supervisor;  // its fixture starts the worker
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kStreamRecords = 1200;  // in three files

class StreamWorkerTest : public FeedTest {
 protected:
  void SetUp() override {
    FeedTest::SetUp();
    options_.feed_program = FEED_PROGRAM;
    for (int64_t file = 0; file < 3; ++file) {
      std::ofstream out(path("part-" + std::to_string(file) + ".jsonl"));
      for (int64_t i = 0; i < kStreamRecords / 3; ++i)
        out << "{\"x\": " << i << ".25, \"y\": " << file * (kStreamRecords / 3) + i << "}\n";
    }
    use_stream("source: '" + path("part-*.jsonl") +
               "', queue: random_shuffle, capacity: 100, num_threads: 1, num_epochs: 1");
  }

  void use_stream(const std::string& stream) {
    std::ofstream(options_.config_path)
        << "run: {seed: 9}\ndata:\n  train: {format: jsonl, fields: {input: x, label: y}, "
        << "num_classes: 2000, stream: {" << stream << "}}\n"
        << "model: {name: mlp, hidden_sizes: [8]}\ntask: {name: classification}\n"
        << "train: {micro_batch_size: " << kBatch << ", max_steps: 1000}\n";
    const auto config = config::load_config(options_.config_path, {});
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    const auto source = feed::find_stream_source(*config);
    ASSERT_TRUE(source.ok()) << source.status().to_string();
    options_.stream =
        StreamSupply{.fingerprint = source->fingerprint(*config::training_stream(*config)),
                     .capacity = static_cast<uint64_t>(config->data.at("train").stream->capacity)};
    const std::string name = "train";
    const auto decoder =
        data::stream::RecordDecoder::make({.name = name, .config = config->data.at("train")});
    ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
    spec_ = (*decoder)->spec(0);
  }
  void open_stream_ring(uint64_t first_ticket = 0) {
    auto ring = ring::ShmRing::create(ring::BatchLayout(spec_, kBatch),
                                      {.slots = 4, .first_ticket = first_ticket});
    ASSERT_TRUE(ring.ok()) << ring.status().to_string();
    ring_ = *std::move(ring);
    options_.stream->first_ticket = first_ticket;
  }
  void stop() {
    supervisor_->stop();
    coordinator_.request_stop();
    EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
    supervisor_.reset();
    ring_.reset();
    EXPECT_TRUE(coordinator_.clear_stop().ok());
  }
  // The bytes of the batches until the stream ends or `limit` have come. Kills the worker after each
  // `kill_after` batches, if above 0.
  std::vector<std::string> receive(uint64_t limit, uint64_t kill_after = 0) {
    std::vector<std::string> batches;
    while (batches.size() < limit) {
      const auto batch = ring_->pop(kTestTimeout);
      if (!batch) {
        EXPECT_EQ(batch.status().code(), StatusCode::kClosed) << batch.status().to_string();
        break;
      }
      std::string& bytes = batches.emplace_back();
      for (size_t i = 0; i < spec_.size(); ++i) {
        const auto tensor = ring_->layout().tensor_bytes(batch->slot, i);
        bytes.append(reinterpret_cast<const char*>(tensor.data()), tensor.size());
      }
      last_state_ = *supervisor_->stream_state(batch->ticket);
      ring_->release(batch->ticket);
      if (kill_after > 0 && batches.size() % kill_after == 0)
        for (const int pid : supervisor_->process_ids()) ::kill(pid, SIGKILL);
    }
    return batches;
  }
  std::vector<std::string> run(uint64_t limit = 1000, uint64_t kill_after = 0) {
    open_stream_ring();
    const Status started = start();
    EXPECT_TRUE(started.ok()) << started.to_string();
    std::vector<std::string> batches = receive(limit, kill_after);
    crashes_ = supervisor_->crashes();
    stop();
    return batches;
  }

  // The labels of the samples, sorted.
  std::vector<int64_t> labels_of(const std::vector<std::string>& batches) const {
    size_t offset = 0;
    for (size_t i = 0; spec_.at(i).name != "label"; ++i) offset += kBatch * spec_[i].bytes();
    std::vector<int64_t> labels;
    for (const std::string& batch : batches)
      for (uint64_t row = 0; row < kBatch; ++row)
        std::memcpy(&labels.emplace_back(), batch.data() + offset + row * sizeof(int64_t),
                    sizeof(int64_t));
    std::ranges::sort(labels);
    return labels;
  }

  std::vector<TensorSpec> spec_;
  feed::StreamState last_state_;
  uint64_t crashes_ = 0;
};

TEST_F(StreamWorkerTest, DeliversStreamToItsEnd) {
  EXPECT_THAT(run(), SizeIs(kStreamRecords / kBatch));
  EXPECT_EQ(crashes_, 0u);
  EXPECT_TRUE(no_children_left());
}

TEST_F(StreamWorkerTest, DeliversSameBatchesWhenKilled) {
  const auto undisturbed = run();
  EXPECT_EQ(run(1000, 7), undisturbed);
  EXPECT_GE(crashes_, 1u);
}

TEST_F(StreamWorkerTest, ContinuesFromState) {
  const auto whole = run();
  const auto begin = run(20);
  ASSERT_THAT(begin, SizeIs(20));
  options_.stream->state = last_state_;
  open_stream_ring(20);
  ASSERT_TRUE(start().ok());
  EXPECT_EQ(receive(1000), std::vector<std::string>(whole.begin() + 20, whole.end()));
  stop();
}

TEST_F(StreamWorkerTest, DeliversEachRecordOnceWithSeveralThreads) {
  use_stream("source: '" + path("part-*.jsonl") +
             "', queue: random_shuffle, capacity: 100, num_threads: 3, num_epochs: 1");
  std::vector<std::string> batches = run(20, 9);
  ASSERT_THAT(batches, SizeIs(20));
  options_.stream->state = last_state_;
  open_stream_ring(20);
  ASSERT_TRUE(start().ok());
  for (std::string& batch : receive(1000, 9)) batches.push_back(std::move(batch));
  stop();
  std::vector<int64_t> all(kStreamRecords);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(labels_of(batches), all);
}

TEST_F(StreamWorkerTest, EndsRunWithErrorOfRecord) {
  std::ofstream(path("part-1.jsonl"), std::ios::app) << "{\"x\": 1, \"y\": 99999}\n";
  std::ofstream(options_.config_path, std::ios::app) << "feed: {on_sample_error: fail}\n";
  open_stream_ring();
  ASSERT_TRUE(start().ok());
  const std::stop_callback failed(coordinator_.token(), [this] { ring_->close(); });
  (void)receive(1000);
  EXPECT_TRUE(coordinator_.wait_for_stop(kTestTimeout));
  supervisor_->stop();
  EXPECT_EQ(supervisor_->crashes(), 0u);
  const Status reason = coordinator_.join(kTestTimeout);
  EXPECT_EQ(reason.code(), StatusCode::kCorrupt);
  EXPECT_THAT(reason.message(), AllOf(HasSubstr("part-1.jsonl"), HasSubstr("record 400")));
}

TEST_F(StreamWorkerTest, SaysWhatItWaitsFor) {
  use_stream("source: stdin, capacity: 50");
  std::array<int, 2> fds{};
  ASSERT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
  const UniqueFd reader(fds[0]);
  UniqueFd writer(fds[1]);
  options_.stream->input_fd = reader.get();
  options_.stream->input_name = "stdin";
  open_stream_ring();
  ASSERT_TRUE(start().ok());
  EXPECT_TRUE(eventually([&] { return supervisor_->waits_for() == "stdin"; }));
  // Of the queues of names and examples: enqueue and close threads, and the consumer.
  const auto threads = [this] {
    std::map<std::string, std::string> found;
    for (const ThreadInfo& thread : supervisor_->stream_threads().threads)
      found[thread.name] = thread.queue + ' ' + std::string(to_string(thread.state));
    return found;
  };
  EXPECT_TRUE(eventually([&] {
    auto found = threads();
    return found["examples/enqueue-0"] == "examples sleeping" &&
           found["examples/close"] == "examples waiting" &&
           found["stream-batches"] == "examples waiting";
  }));
  writer.reset();
  EXPECT_THAT(receive(1), SizeIs(0));
  EXPECT_EQ(supervisor_->waits_for(), "");
  EXPECT_TRUE(eventually([&] { return threads().empty(); }));
  stop();
}

TEST_F(StreamWorkerTest, ReadsDescriptorOfDaemon) {
  use_stream("source: stdin, capacity: 50");
  std::array<int, 2> fds{};
  ASSERT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
  const UniqueFd reader(fds[0]);
  UniqueFd writer(fds[1]);
  options_.stream->input_fd = reader.get();
  options_.stream->input_name = "stdin";
  std::jthread producer([&writer] {
    std::string text;
    for (int i = 0; i < 160; ++i) text += "{\"x\": 0, \"y\": " + std::to_string(i) + "}\n";
    EXPECT_EQ(::write(writer.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    writer.reset();
  });
  EXPECT_THAT(run(), SizeIs(10));
  EXPECT_EQ(crashes_, 0u);
}

}  // namespace
}  // namespace stoker::feeder
