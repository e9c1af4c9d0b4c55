#include "shared/feed/stream_feed.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/stream/producer_history.h"
#include "shared/data/stream/producer_inputs.h"
#include "shared/feed/make_stream_feed.h"
#include "tests/shared/data/example_writer.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/stream/producer_client.h"
#include "tests/shared/data/stream/stream_fixture.h"
#include "tests/support/machine_slowness.h"
#include "tests/support/packed_bytes.h"

namespace stoker::feed {
namespace {

using namespace std::chrono_literals;
using data::stream::ByteInput;
using data::stream::StreamInputs;
using data::stream::testing::eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Labels = std::vector<int64_t>;

const auto kStreamTimeout = test::scaled(60s);  // never reached in a successful test

// ---- Inputs

// Of the record with this label: many have the same.
int64_t priority_of(int64_t label) { return label * 7 % 5 - 2; }
// The record with this label.
std::string json_line(int64_t label) {
  return "{\"x\": " + std::to_string(label) + ".5, \"p\": " + std::to_string(priority_of(label)) +
         ", \"y\": " + std::to_string(label) + "}\n";
}
std::string json_lines(int64_t from, int64_t to) {
  std::string text;
  for (int64_t label = from; label < to; ++label) text += json_line(label);
  return text;
}

// An input whose bytes come from a function: an empty text is the end, an error is one, and nullopt
// means that the producer pauses.
class ScriptedInput final : public ByteInput {
 public:
  using Next = std::function<Result<std::optional<std::string>>()>;
  ScriptedInput(std::string name, Next next) : ByteInput(std::move(name)), next_(std::move(next)) {}

 private:
  Result<size_t> read_available(std::span<std::byte> out, const std::stop_token& stop) override {
    while (rest_.empty()) {
      STOKER_ASSIGN_OR_RETURN(std::optional<std::string> part, next_());
      if (part && part->empty()) return size_t{0};
      if (part) rest_ = *std::move(part);
      if (!part) waiting_.wait(-1);
      if (stop.stop_requested()) return data::stream::stopped_reading(name());
    }
    const size_t count = std::min(out.size(), rest_.size());
    std::memcpy(out.data(), rest_.data(), count);
    rest_.erase(0, count);
    return count;
  }

  const Next next_;
  std::string rest_;
};

// The texts in order, then the end.
ScriptedInput::Next parts(std::vector<std::string> texts) {
  return [texts = std::move(texts), i = size_t{0}]() mutable -> Result<std::optional<std::string>> {
    return std::optional(i < texts.size() ? texts[i++] : std::string());
  };
}
// The text, then a pause without end.
ScriptedInput::Next paused_after(std::string text) {
  return [text = std::move(text)]() mutable -> Result<std::optional<std::string>> {
    if (text.empty()) return std::optional<std::string>();
    return std::optional(std::exchange(text, {}));
  };
}

// Records without end. `read` is the number of those that were read.
ScriptedInput::Next endless(std::atomic<int64_t>& read) {
  return [&read] { return Result(std::optional(json_line(read++))); };
}
// A text again and again.
ScriptedInput::Next repeated(std::string text) {
  return [text = std::move(text)] { return Result(std::optional(text)); };
}

// Inputs in memory.
class ScriptedInputs final : public StreamInputs {
 public:
  using Make = std::function<ScriptedInput::Next()>;
  explicit ScriptedInputs(std::vector<Make> inputs, uint64_t first = 0)
      : StreamInputs({}), inputs_(std::move(inputs)), next_(first) {}

  void repeat() { traits_.period = inputs_.size(); }
  void wait_at_end() { waits_at_end_ = true; }
  // As a pipe: an input continues where its reader has stopped.
  void make_unrepeatable() { traits_ = {.can_be_read_again = false, .starts_at_offset = true}; }
  // open() of this input fails.
  void fail_open(size_t input, Status error) { failing_ = {input, std::move(error)}; }

  Result<std::optional<Item>> next(const std::stop_token& stop) override {
    if (traits_.period > 0 || next_ < inputs_.size())
      return std::optional(Item{.name = "input-" + std::to_string(next_++ % inputs_.size())});
    if (!waits_at_end_) return std::optional<Item>();
    waiting_ = true;
    while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
    return data::stream::stopped_reading("inputs");
  }
  Result<std::unique_ptr<ByteInput>> open(const std::string& name,
                                          const data::stream::StreamPosition& /*from*/) override {
    const size_t input = std::stoul(name.substr(name.find('-') + 1));
    if (failing_ && failing_->first == input) return failing_->second;
    return std::unique_ptr<ByteInput>(std::make_unique<ScriptedInput>(name, inputs_.at(input)()));
  }
  bool is_waiting() const override { return waiting_; }

 private:
  const std::vector<Make> inputs_;
  uint64_t next_;
  bool waits_at_end_ = false;
  std::optional<std::pair<size_t, Status>> failing_;
  std::atomic<bool> waiting_{false};
};

std::vector<ScriptedInputs::Make> texts(const std::vector<std::string>& contents) {
  std::vector<ScriptedInputs::Make> inputs;
  for (const std::string& content : contents)
    inputs.emplace_back([content] { return parts({content}); });
  return inputs;
}

// ---- Fixture

struct Batches {
  std::vector<std::string> bytes;  // of all tensors, by batch
  std::vector<Labels> labels;      // by batch
  std::map<uint64_t, StreamState> states;
  std::optional<uint64_t> end_ticket;
  std::vector<ring::SampleError> errors;
  Status status;  // of the threads

  Labels all_labels() const {
    Labels all;
    for (const Labels& batch : labels) all.insert(all.end(), batch.begin(), batch.end());
    return all;
  }
};

Labels numbers(int64_t from, int64_t to) {
  Labels numbers;
  for (int64_t i = from; i < to; ++i) numbers.push_back(i);
  return numbers;
}
Labels sorted(Labels labels) {
  std::ranges::sort(labels);
  return labels;
}

class StreamFeedTest : public data::testing::FolderFixture {
 protected:
  StreamFeedTest() {
    config_.source = config::JsonlDataset{};
    data::fields_in(config_).input = {"x"};
    data::fields_in(config_).label = "y";
    data::record_in(config_).num_classes = 100'000;
    options_.num_threads = 1;
    options_.capacity = 16;
    options_.seed = 7;
  }

  data::DatasetRequest request() const { return {.name = name_, .config = config_}; }

  void use_queue(queue::QueueType type) {
    options_.queue = type;
    if (type == queue::QueueType::kRandomShuffle) options_.min_after_dequeue = 8;
    if (type == queue::QueueType::kPriority) data::fields_in(config_).priority = "p";
  }
  // In place of JSON lines.
  void use_tfrecords() {
    config_.source = config::TfrecordDataset{};
    data::fields_in(config_).input = {"x"};
    data::fields_in(config_).label = "y";
    data::record_in(config_).input_shape = {1};
    data::record_in(config_).num_classes = 100;
  }

  void create(StreamInputs& inputs, uint64_t first_ticket = 0) {
    const auto decoder = data::stream::RecordDecoder::make(request());
    ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
    auto ring = ring::ShmRing::create(ring::BatchLayout((*decoder)->spec(0), batch_),
                                      {.slots = slots_, .first_ticket = first_ticket});
    ASSERT_TRUE(ring.ok()) << ring.status().to_string();
    ring_ = *std::move(ring);
    producer_ = *ring_->add_producer("stream");
    auto feed = StreamFeed::create(request(), inputs, options_, *ring_, producer_,
                                   [this](uint64_t ticket, const StreamState& state) {
                                     const std::lock_guard lock(mutex_);
                                     states_[ticket] = state;
                                     return Status();
                                   });
    ASSERT_TRUE(feed.ok()) << feed.status().to_string();
    feed_ = *std::move(feed);
    coordinator_ = std::make_unique<Coordinator>();
  }
  Status create_status(StreamInputs& inputs) {
    const auto decoder = data::stream::RecordDecoder::make(request());
    ring_ = *ring::ShmRing::create(ring::BatchLayout((*decoder)->spec(0), batch_), {});
    return StreamFeed::create(request(), inputs, options_, *ring_, *ring_->add_producer("stream"),
                              nullptr)
        .status();
  }
  void destroy() {
    coordinator_.reset();
    feed_.reset();
    ring_.reset();
    states_.clear();
  }

  // Receives batches until the stream ends or `limit` batches have come.
  Batches receive(uint64_t first_ticket, uint64_t limit) {
    Batches batches;
    const auto deadline = std::chrono::steady_clock::now() + kStreamTimeout;
    for (uint64_t ticket = first_ticket; ticket - first_ticket < limit;) {
      if (feed_->end_ticket() == ticket || std::chrono::steady_clock::now() > deadline) break;
      const auto batch = ring_->pop(10ms);
      drain_errors(batches);
      if (!batch && coordinator_->should_stop() && feed_->end_ticket() != ticket) {
        // An error. Batches from before can still be there.
        if (ring_->counters().ready == 0) break;
        continue;
      }
      if (!batch) continue;
      EXPECT_EQ(batch->ticket, ticket);
      add(*batch, batches);
      ring_->release(ticket++);
    }
    return batches;
  }
  Batches run(StreamInputs& inputs, const StreamState* from = nullptr, uint64_t first_ticket = 0,
              uint64_t limit = 1000) {
    create(inputs, first_ticket);
    if (from != nullptr) {
      const Status restored = feed_->restore(*from, {});
      EXPECT_TRUE(restored.ok()) << restored.to_string();
    }
    feed_->start(*coordinator_);
    Batches batches = receive(first_ticket, limit);
    coordinator_->request_stop();
    batches.status = coordinator_->join(kStreamTimeout);
    batches.end_ticket = feed_->end_ticket();
    drain_errors(batches);
    batches.states = states_;
    destroy();
    return batches;
  }
  uint64_t progress() const { return ring_->progress(producer_).samples; }
  void stop_and_join() {
    coordinator_->request_stop();
    EXPECT_TRUE(coordinator_->join(kStreamTimeout).ok());
    EXPECT_TRUE(coordinator_->all_joined());
  }

  const std::string name_ = "train";
  config::DatasetConfig config_;
  StreamFeedOptions options_;
  uint64_t batch_ = 4;
  uint64_t slots_ = 4;
  std::mutex mutex_;
  std::map<uint64_t, StreamState> states_;
  std::unique_ptr<ring::ShmRing> ring_;
  ring::ProducerId producer_;
  std::unique_ptr<StreamFeed> feed_;
  std::unique_ptr<Coordinator> coordinator_;

 private:
  void drain_errors(Batches& batches) const {
    for (ring::SampleError& error : ring_->drain_sample_errors())
      batches.errors.push_back(std::move(error));
  }
  void add(const ring::ReadyBatch& batch, Batches& batches) const {
    const ring::BatchLayout& layout = ring_->layout();
    std::string& bytes = batches.bytes.emplace_back();
    for (size_t i = 0; i < layout.sample().size(); ++i) {
      const auto tensor = layout.tensor_bytes(batch.slot, i);
      bytes.append(reinterpret_cast<const char*>(tensor.data()), tensor.size());
      if (layout.sample()[i].name != "label") continue;
      Labels& labels = batches.labels.emplace_back(batch_);
      std::memcpy(labels.data(), tensor.data(), batch_ * sizeof(int64_t));
    }
  }
};

// ---- Order

TEST_F(StreamFeedTest, DeliversRecordsInOrder) {
  ScriptedInputs inputs(texts({json_lines(0, 5), "", json_lines(5, 12)}));
  const Batches batches = run(inputs);
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  EXPECT_EQ(batches.all_labels(), numbers(0, 12));
  EXPECT_EQ(batches.end_ticket, 3u);
}

TEST_F(StreamFeedTest, ShufflesWithSeed) {
  options_.queue = queue::QueueType::kRandomShuffle;
  options_.min_after_dequeue = 8;
  ScriptedInputs inputs(texts({json_lines(0, 40)}));
  const Batches batches = run(inputs);
  EXPECT_NE(batches.all_labels(), numbers(0, 40));
  EXPECT_EQ(sorted(batches.all_labels()), numbers(0, 40));
  ScriptedInputs again(texts({json_lines(0, 40)}));
  EXPECT_EQ(run(again).bytes, batches.bytes);
  options_.seed = 8;
  ScriptedInputs other_seed(texts({json_lines(0, 40)}));
  EXPECT_NE(run(other_seed).bytes, batches.bytes);
}

// Of those in the queue, which is full or has the rest; in order of arrival within a priority.
TEST_F(StreamFeedTest, DeliversSmallestPriorityFirst) {
  use_queue(queue::QueueType::kPriority);
  ScriptedInputs inputs(texts({json_lines(0, 23), json_lines(23, 40)}));
  const Batches batches = run(inputs);
  ASSERT_TRUE(batches.status.ok()) << batches.status.to_string();
  Labels expected;
  std::multimap<int64_t, int64_t> queued;  // stable
  int64_t label = 0;
  while (expected.size() < 40) {
    for (; queued.size() < static_cast<size_t>(options_.capacity) && label < 40; ++label)
      queued.emplace(priority_of(label), label);
    for (uint64_t row = 0; row < batch_; ++row) {
      expected.push_back(queued.begin()->second);
      queued.erase(queued.begin());
    }
  }
  EXPECT_EQ(batches.all_labels(), expected);
}

TEST_F(StreamFeedTest, SkipsRecordWithoutPriority) {
  use_queue(queue::QueueType::kPriority);
  ScriptedInputs inputs(texts({json_lines(0, 2) + "{\"x\": 1, \"y\": 1}\n" +
                               "{\"x\": 1, \"y\": 1, \"p\": 0.5}\n" + json_lines(2, 4)}));
  const Batches batches = run(inputs);
  EXPECT_EQ(sorted(batches.all_labels()), numbers(0, 4));
  ASSERT_THAT(batches.errors, SizeIs(2));
  EXPECT_THAT(batches.errors[0].reason, HasSubstr("record 2"));
  EXPECT_THAT(batches.errors[0].reason, HasSubstr("has no priority 'p'"));
  EXPECT_THAT(batches.errors[1].reason, HasSubstr("priority 'p' must be one integer"));
}

TEST_F(StreamFeedTest, RequiresPriorityForPriorityQueue) {
  options_.queue = queue::QueueType::kPriority;
  ScriptedInputs inputs(texts({""}));
  EXPECT_EQ(create_status(inputs).message(),
            "data.train.stream.queue: priority requires fields.priority");
}

TEST_F(StreamFeedTest, DeliversPrioritizedBatchWhenSourcePauses) {
  use_queue(queue::QueueType::kPriority);
  options_.capacity = 1000;
  ScriptedInputs inputs({[] { return paused_after(json_lines(0, 5)); }});
  const Batches batches = run(inputs, nullptr, 0, 1);
  EXPECT_EQ(batches.all_labels(), (Labels{0, 3, 1, 4}));
}

TEST_F(StreamFeedTest, RepeatsInputs) {
  ScriptedInputs inputs(texts({json_lines(0, 3), json_lines(3, 5)}));
  inputs.repeat();
  const Batches batches = run(inputs, nullptr, 0, 3);
  EXPECT_EQ(batches.all_labels(), (Labels{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1}));
}

TEST_F(StreamFeedTest, DeliversShuffledBatchWhenSourcePauses) {
  options_.queue = queue::QueueType::kRandomShuffle;
  options_.capacity = 1000;
  ScriptedInputs inputs({[] { return paused_after(json_lines(0, 4)); }});
  const Batches batches = run(inputs, nullptr, 0, 1);
  EXPECT_EQ(sorted(batches.all_labels()), numbers(0, 4));
}

// A reader whose thread has ended waits for nothing.
TEST_F(StreamFeedTest, DeliversShuffledBatchAfterReaderHasEnded) {
  options_.queue = queue::QueueType::kRandomShuffle;
  options_.capacity = 1000;
  options_.num_threads = 2;
  ScriptedInputs inputs({[] { return paused_after(json_lines(0, 4)); }, [] { return parts({}); }});
  inputs.fail_open(1, Status(StatusCode::kClosed, "input-1: was opened before"));
  const Batches batches = run(inputs, nullptr, 0, 1);
  EXPECT_EQ(sorted(batches.all_labels()), numbers(0, 4));
}

// ---- Progress

TEST_F(StreamFeedTest, ReportsProgressWhileNothingBecomesSample) {
  data::record_in(config_).on_missing_field = config::OnMissingField::kDrop;
  for (const std::string text : {"\n", "{\"x\": 1}\n", "garbage\n"}) {
    ScriptedInputs inputs({[&text] { return repeated(text); }});
    create(inputs);
    feed_->start(*coordinator_);
    EXPECT_TRUE(eventually([&] {
      ring_->drain_sample_errors();
      return progress() >= 3;
    })) << text;
    EXPECT_EQ(feed_->status().records, 0u);
    stop_and_join();
    destroy();
  }
}

TEST_F(StreamFeedTest, ReportsProgressWhileStateIsRestored) {
  std::vector<std::string> parts_of_input(40, std::string(1 << 20, '\n'));
  parts_of_input.push_back(json_lines(0, 3));
  const auto offset = [](int64_t label) { return (40 << 20) + json_lines(0, label).size(); };
  StreamState state{.next_source = 1};
  state.sources.push_back(
      {.number = 0, .name = "input-0", .next = {.offset = offset(2), .record = 2}});
  for (uint64_t record = 0; record < 2; ++record)
    state.elements.push_back(
        {.source = 0, .at = {.offset = offset(static_cast<int64_t>(record)), .record = record}});
  ScriptedInputs inputs({[&parts_of_input] { return parts(parts_of_input); }}, 1);
  create(inputs, 1);
  const Status restored = feed_->restore(state, {});
  EXPECT_TRUE(restored.ok()) << restored.to_string();
  EXPECT_EQ(progress(), 4u);  // two elements, and two parts of 16 MiB that were skipped
}

// ---- Resume

// All tickets of a run, each resumed from its state.
class StreamFeedResumeTest : public StreamFeedTest,
                             public ::testing::WithParamInterface<queue::QueueType> {};

TEST_P(StreamFeedResumeTest, IsBitForBitTheSameFromEveryTicket) {
  use_queue(GetParam());
  const auto inputs =
      texts({json_lines(0, 21), json_lines(21, 24), "", json_lines(24, 49), json_lines(49, 60)});
  ScriptedInputs all(inputs);
  const Batches whole = run(all);
  ASSERT_TRUE(whole.status.ok()) << whole.status.to_string();
  ASSERT_THAT(whole.bytes, SizeIs(15));
  for (uint64_t ticket = 0; ticket < whole.bytes.size(); ++ticket) {
    const StreamState& from = whole.states.at(ticket);
    ScriptedInputs rest(inputs, from.next_source);
    const Batches resumed = run(rest, &from, ticket + 1);
    EXPECT_TRUE(resumed.status.ok()) << resumed.status.to_string();
    EXPECT_EQ(resumed.bytes,
              std::vector<std::string>(whole.bytes.begin() + static_cast<long>(ticket) + 1,
                                       whole.bytes.end()))
        << "after ticket " << ticket;
    EXPECT_EQ(resumed.end_ticket, whole.end_ticket);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Queues, StreamFeedResumeTest,
    ::testing::Values(queue::QueueType::kFIFO, queue::QueueType::kRandomShuffle,
                      queue::QueueType::kPaddingFIFO, queue::QueueType::kPriority),
    [](const auto& parameter) { return std::string(queue::to_string(parameter.param)); });

TEST_F(StreamFeedTest, SavesElementsOfQueueAndPositionsOfInputs) {
  options_.queue = queue::QueueType::kRandomShuffle;
  options_.capacity = 12;
  ScriptedInputs inputs(texts({json_lines(0, 8), json_lines(8, 30)}));
  const Batches batches = run(inputs, nullptr, 0, 1);
  // The first batch is taken from the first twelve records.
  const StreamState& state = batches.states.at(0);
  EXPECT_EQ(state.next_source, 2u);
  ASSERT_THAT(state.sources, SizeIs(2));
  EXPECT_EQ(state.sources[0].number, 0u);
  EXPECT_EQ(state.sources[0].name, "input-0");
  EXPECT_TRUE(state.sources[0].ended);
  EXPECT_FALSE(state.sources[1].ended);
  EXPECT_EQ(state.sources[1].next.record, 4u);
  EXPECT_EQ(state.sources[1].next.offset, json_lines(8, 12).size());
  Labels all = batches.all_labels();
  for (const auto& element : state.elements)
    all.push_back(static_cast<int64_t>(8 * element.source + element.at.record));
  EXPECT_EQ(sorted(all), numbers(0, 12));
  EXPECT_TRUE(state.generator.has_value());
}

TEST_P(StreamFeedResumeTest, ReadsEveryRecordExactlyOnceWithSeveralThreads) {
  use_queue(GetParam());
  options_.num_threads = 4;
  std::vector<std::string> contents;
  for (int64_t i = 0; i < 12; ++i) contents.push_back(json_lines(i * 10, i * 10 + 10 - i % 3));
  Labels expected;
  for (int64_t i = 0; i < 12; ++i)
    for (int64_t label = i * 10; label < i * 10 + 10 - i % 3; ++label) expected.push_back(label);
  ASSERT_EQ(expected.size() % batch_, 0u);
  ScriptedInputs start(texts(contents));
  Batches batches = run(start, nullptr, 0, 5);
  Labels all;
  uint64_t ticket = 0;
  // Again and again, five batches at a time.
  while (true) {
    const Labels labels = batches.all_labels();
    all.insert(all.end(), labels.begin(), labels.end());
    ticket += batches.labels.size();
    if (batches.end_ticket == ticket || batches.labels.empty()) break;
    const StreamState from = batches.states.at(ticket - 1);
    ScriptedInputs rest(texts(contents), from.next_source);
    batches = run(rest, &from, ticket, 5);
    EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  }
  EXPECT_EQ(sorted(all), expected);
}

TEST_F(StreamFeedTest, DetectsInputThatChangedSinceState) {
  options_.queue = queue::QueueType::kRandomShuffle;  // the queue is full at the first batch
  ScriptedInputs inputs(texts({json_lines(0, 30)}));
  const Batches batches = run(inputs, nullptr, 0, 1);
  const StreamState& state = batches.states.at(0);
  ASSERT_THAT(state.elements, SizeIs(12));
  ScriptedInputs shorter(texts({json_lines(0, 2)}), 1);
  create(shorter, 1);
  const Status status = feed_->restore(state, {});
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("input-0"));
}

// The bytes behind the position come first: nothing is skipped.
TEST_F(StreamFeedTest, ContinuesInputThatCannotBeReadAgain) {
  options_.capacity = 4;
  StreamState state{.next_source = 1};
  state.sources.push_back({.number = 0, .name = "input-0", .next = {.offset = 1000, .record = 50}});
  ScriptedInputs inputs(texts({json_lines(60, 65) + "garbage\n" + json_lines(65, 68)}), 1);
  inputs.make_unrepeatable();
  const Batches batches = run(inputs, &state, 1);
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  EXPECT_EQ(batches.all_labels(), numbers(60, 68));
  ASSERT_THAT(batches.errors, SizeIs(1));
  EXPECT_EQ(batches.errors[0].sample, 55u);
  const StreamState& after = batches.states.at(1);
  ASSERT_THAT(after.sources, SizeIs(1));
  EXPECT_GE(after.sources[0].next.record, 54u);
  EXPECT_GT(after.sources[0].next.offset, 1000u);
}

// The same batches, in spite of the end of the feed between two of them.
TEST_F(StreamFeedTest, ContinuesPipeFromHistory) {
  options_.queue = queue::QueueType::kRandomShuffle;
  options_.min_after_dequeue = 6;
  const auto inputs_of = [](const data::stream::ByteHistory& history, uint64_t first) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    const std::string text = first == 0 ? json_lines(0, 80) : "";
    EXPECT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(ends[1]);
    return data::stream::make_recorded_inputs({.fd = UniqueFd(ends[0]), .name = "pipe"}, history,
                                              first);
  };
  std::vector<uint64_t> memory(1000), of_whole(1000);
  const data::stream::ByteHistory history(std::as_writable_bytes(std::span(memory)));
  const data::stream::ByteHistory history_of_whole(std::as_writable_bytes(std::span(of_whole)));
  const Batches whole = run(*inputs_of(history_of_whole, 0));
  ASSERT_EQ(whole.end_ticket, 20u);
  const Batches start = run(*inputs_of(history, 0), nullptr, 0, 5);
  const StreamState& state = start.states.at(4);
  const auto first = first_needed(state);
  ASSERT_TRUE(first.has_value());
  for (const StreamState::Element& element : state.elements) EXPECT_LE(*first, element.at.offset);
  const StreamHistory saved = copy_history(history, *first);
  EXPECT_EQ(saved.begin, *first);
  EXPECT_EQ(saved.begin + saved.bytes.size(), json_lines(0, 80).size());
  history.assign(saved.begin, saved.bytes, saved.complete);
  const Batches rest = run(*inputs_of(history, 1), &state, 5);
  EXPECT_TRUE(rest.status.ok()) << rest.status.to_string();
  EXPECT_EQ(rest.bytes, std::vector<std::string>(whole.bytes.begin() + 5, whole.bytes.end()));
}

TEST_F(StreamFeedTest, RejectsElementsThatCannotBeReadAgain) {
  StreamState state{.next_source = 1};
  state.sources.push_back({.number = 0, .name = "input-0", .next = {.offset = 1000, .record = 50}});
  state.elements = {{.source = 0, .at = {.offset = 900, .record = 48}},
                    {.source = 0, .at = {.offset = 950, .record = 49}}};
  ScriptedInputs inputs(texts({json_lines(0, 8)}), 1);
  inputs.make_unrepeatable();
  create(inputs, 1);
  const Status restored = feed_->restore(state, {});
  EXPECT_EQ(restored.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(restored.message(), HasSubstr("input-0: "));
  EXPECT_THAT(restored.message(), HasSubstr("2 records that were in the queue"));
}

TEST_F(StreamFeedTest, ContinuesSpoolFolderWhoseFinishedFilesWereArchived) {
  options_.capacity = 4;
  for (int64_t file = 0; file < 100; ++file)
    write("spool/" + std::to_string(1000 + file), json_lines(4 * file, 4 * file + 4));
  write("spool/.end", "");
  const auto whole_inputs = data::stream::make_spool_inputs(path("spool"));
  ASSERT_TRUE(whole_inputs.ok()) << whole_inputs.status().to_string();
  const Batches whole = run(**whole_inputs);
  EXPECT_EQ(whole.all_labels(), numbers(0, 400));
  EXPECT_THAT(taken_files(whole.states.at(99)), SizeIs(100));
  const StreamState& state = whole.states.at(59);
  EXPECT_GT(state.finished.size(), 50u);
  EXPECT_LT(state.sources.size(), 40u);  // those that are queued, read or have elements
  const Status archived = data::stream::SpoolFolder::archive_all(
      default_file_system(), path("spool"), finished_files(state));
  EXPECT_TRUE(archived.ok()) << archived.to_string();
  EXPECT_TRUE(std::filesystem::exists(path("spool/done/1000")));
  const auto rest = data::stream::make_spool_inputs(path("spool"), taken_files(state));
  ASSERT_TRUE(rest.ok()) << rest.status().to_string();
  EXPECT_EQ(run(**rest, &state, 60).all_labels(), numbers(240, 400));
}

// Also those whose ends are found after the last batch.
TEST_F(StreamFeedTest, FinishesAllFilesAtEndOfStream) {
  for (const char* file : {"spool/a", "spool/b", "spool/c"}) write(file, json_lines(0, 4));
  write("spool/d", json_lines(4, 6));  // less than a batch
  write("spool/.end", "");
  const auto inputs = data::stream::make_spool_inputs(path("spool"));
  ASSERT_TRUE(inputs.ok()) << inputs.status().to_string();
  const Batches batches = run(**inputs);
  ASSERT_EQ(batches.end_ticket, 3u);
  const StreamState& end = batches.states.at(3);
  EXPECT_THAT(finished_files(end), SizeIs(3));
  EXPECT_THAT(taken_files(end), SizeIs(4));
  ASSERT_THAT(end.sources, SizeIs(1));
  EXPECT_TRUE(end.sources[0].ended);
  EXPECT_THAT(end.elements, SizeIs(2));
}

TEST_F(StreamFeedTest, RejectsStateWithUnknownInput) {
  ScriptedInputs inputs(texts({json_lines(0, 30)}));
  create(inputs);
  StreamState state;
  state.elements.push_back({.source = 0, .at = {}});
  EXPECT_EQ(feed_->restore(state, {}).code(), StatusCode::kCorrupt);
  state.sources.push_back({.number = 0, .name = "input-0"});
  EXPECT_EQ(feed_->restore(state, {}).code(), StatusCode::kCorrupt);  // next_source is 0
}

// ---- End of the stream

TEST_F(StreamFeedTest, PadsLastBatchWithItsOwnSamples) {
  options_.last_batch = config::LastBatchPolicy::kPad;
  ScriptedInputs inputs(texts({json_lines(0, 6)}));
  const Batches batches = run(inputs);
  EXPECT_THAT(batches.labels, ElementsAre(Labels{0, 1, 2, 3}, Labels{4, 5, 4, 5}));
  EXPECT_EQ(batches.end_ticket, 2u);
}

TEST_F(StreamFeedTest, KeepsIncompleteLastBatchInState) {
  for (const auto policy : {config::LastBatchPolicy::kDrop, config::LastBatchPolicy::kCarryOver}) {
    options_.last_batch = policy;
    ScriptedInputs inputs(texts({json_lines(0, 6)}));
    const Batches batches = run(inputs);
    EXPECT_THAT(batches.labels, ElementsAre(Labels{0, 1, 2, 3}));
    EXPECT_EQ(batches.end_ticket, 1u);
    // A resumed run that has another input continues with them.
    const StreamState& state = batches.states.at(0);
    ScriptedInputs more(texts({json_lines(0, 6), json_lines(6, 8)}), state.next_source);
    EXPECT_THAT(run(more, &state, 1).labels, ElementsAre(Labels{4, 5, 6, 7}));
  }
}

TEST_F(StreamFeedTest, EndsWithoutBatchWhenThereIsNoRecord) {
  ScriptedInputs inputs(texts({"", "\n\n"}));
  const Batches batches = run(inputs);
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  EXPECT_EQ(batches.end_ticket, 0u);
}

TEST_F(StreamFeedTest, FailsWhenNoRepeatedInputHasRecord) {
  ScriptedInputs inputs(texts({"", "\n"}));
  inputs.repeat();
  const Batches batches = run(inputs);
  EXPECT_EQ(batches.status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(batches.status.message(), HasSubstr("none of them has a record"));
}

// Readers reach the ends of many empty inputs, while others wait for space in the queue.
TEST_F(StreamFeedTest, ContinuesIfMostInputsAreEmpty) {
  options_.num_threads = 6;
  ScriptedInputs inputs(texts({json_lines(0, 100), "", "", ""}));
  inputs.repeat();
  const Batches batches = run(inputs, nullptr, 0, 200);
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  EXPECT_THAT(batches.labels, SizeIs(200));
}

TEST_F(StreamFeedTest, ContinuesAfterInputsThatStateHasReadCompletely) {
  ScriptedInputs inputs(texts({json_lines(0, 100)}), 3);
  inputs.repeat();
  StreamState state{.next_source = 3};
  for (uint64_t number = 0; number < 3; ++number)
    state.sources.push_back({.number = number,
                             .name = "input-0",
                             .next = {.offset = json_lines(0, 100).size(), .record = 100}});
  const Batches batches = run(inputs, &state, 1, 10);
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  EXPECT_EQ(batches.all_labels(), numbers(0, 40));
}

// ---- Padding

TEST_F(StreamFeedTest, PaddedQueueGivesSameBatchesAsOthers) {
  data::fields_in(config_) = {.labels = "l", .input_ids = "t"};
  data::record_in(config_).num_classes = 4;
  data::sequence_in(config_).max_length = 5;
  const std::string content =
      "{\"t\": [5, 6, 7], \"l\": [0, 1, 2]}\n{\"t\": [8], \"l\": [3]}\n"
      "{\"t\": [1, 2], \"l\": [1, 1]}\n{\"t\": [1, 2, 3, 4], \"l\": [0, 0, 0, 1]}\n";
  ScriptedInputs fifo(texts({content}));
  const Batches expected = run(fifo);
  ASSERT_THAT(expected.bytes, SizeIs(1));
  options_.queue = queue::QueueType::kPaddingFIFO;
  ScriptedInputs padded(texts({content}));
  EXPECT_EQ(run(padded).bytes, expected.bytes);
}

// ---- Back-pressure

TEST_F(StreamFeedTest, HoldsAtMostCapacity) {
  options_.capacity = 8;
  slots_ = 2;
  std::atomic<int64_t> read{0};
  ScriptedInputs inputs({[&read] { return endless(read); }});
  create(inputs);
  feed_->start(*coordinator_);
  // The ring's batches, the queue, and one element that waits.
  ASSERT_TRUE(eventually([&] {
    return feed_->status().activity == StreamStatus::Activity::kBlocked &&
           ring_->counters().published == 2 && read >= 17;
  }));
  EXPECT_EQ(feed_->status().elements, 8);
  stop_and_join();
  EXPECT_LE(read, 18);  // a read may be ahead of its record
}

TEST_F(StreamFeedTest, HoldsAtMostMaxBytes) {
  options_.capacity = 1000;
  options_.max_bytes = 10 * 128 + 50;  // ten elements and a record
  slots_ = 1;
  for (const auto type : {queue::QueueType::kFIFO, queue::QueueType::kRandomShuffle}) {
    options_.queue = type;
    std::atomic<int64_t> read{0};
    ScriptedInputs inputs({[&read] { return endless(read); }});
    create(inputs);
    feed_->start(*coordinator_);
    ASSERT_TRUE(eventually([&] {
      return feed_->status().activity == StreamStatus::Activity::kBlocked &&
             ring_->counters().published == 1 && feed_->status().elements == 10;
    }));
    EXPECT_THAT(receive(0, 20).labels, SizeIs(20));  // the batches continue
    stop_and_join();
    destroy();
  }
}

// Each window of 256 KiB leaves the other reader no more than the elements of a batch.
TEST_F(StreamFeedTest, CountsWindowsOfOtherReaders) {
  options_.capacity = 1000;
  options_.max_bytes = 256 << 10;
  options_.num_threads = 2;
  std::atomic<int64_t> read{0};
  ScriptedInputs inputs({[&read] { return endless(read); }, [&read] { return endless(read); }});
  create(inputs);
  feed_->start(*coordinator_);
  uint64_t ticket = 0;
  // Those that the first reader has read before the other one began are taken first.
  EXPECT_TRUE(eventually([&] {
    if (feed_->status().activity == StreamStatus::Activity::kBlocked &&
        feed_->status().elements <= static_cast<int64_t>(batch_))
      return true;
    ticket += receive(ticket, 1).labels.size();
    return false;
  }));
  stop_and_join();
}

TEST_F(StreamFeedTest, DeliversBatchLargerThanMaxBytes) {
  options_.max_bytes = 1;
  ScriptedInputs inputs(texts({json_lines(0, 12)}));
  EXPECT_EQ(run(inputs).all_labels(), numbers(0, 12));
}

TEST_F(StreamFeedTest, RejectsLimitsThatNoBatchFits) {
  ScriptedInputs inputs(texts({""}));
  options_.queue = queue::QueueType::kRandomShuffle;
  options_.min_after_dequeue = 13;
  const Status small = create_status(inputs);
  EXPECT_EQ(small.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(small.message(), HasSubstr("data.train.stream.capacity: 16 is less than"));
  options_.min_after_dequeue = 12;
  options_.max_bytes = 15 * 128;
  EXPECT_THAT(create_status(inputs).message(), HasSubstr("min_after_dequeue: 16 samples"));
}

// ---- Stop

TEST_F(StreamFeedTest, StopsWhileInputPauses) {
  ScriptedInputs inputs({[] { return paused_after(json_lines(0, 2)); }});
  create(inputs);
  feed_->start(*coordinator_);
  ASSERT_TRUE(
      eventually([&] { return feed_->status().activity == StreamStatus::Activity::kWaiting; }));
  EXPECT_EQ(feed_->status().input, "input-0");
  stop_and_join();
  EXPECT_EQ(feed_->end_ticket(), std::nullopt);
}

TEST_F(StreamFeedTest, StopsWhileNoInputIsThere) {
  ScriptedInputs inputs(texts({json_lines(0, 2)}));
  inputs.wait_at_end();
  options_.num_threads = 3;
  create(inputs);
  feed_->start(*coordinator_);
  ASSERT_TRUE(
      eventually([&] { return feed_->status().activity == StreamStatus::Activity::kWaiting; }));
  stop_and_join();
  EXPECT_EQ(feed_->end_ticket(), std::nullopt);
}

TEST_F(StreamFeedTest, StopsWhileRingIsFull) {
  for (const uint64_t max_bytes : {uint64_t{1} << 20, uint64_t{1}}) {
    options_.num_threads = 3;
    options_.max_bytes = max_bytes;
    ScriptedInputs inputs(texts({json_lines(0, 500), json_lines(0, 500), json_lines(0, 500)}));
    inputs.repeat();
    create(inputs);
    feed_->start(*coordinator_);
    ASSERT_TRUE(eventually([&] {
      return ring_->counters().published == slots_ &&
             feed_->status().activity == StreamStatus::Activity::kBlocked;
    }));
    stop_and_join();
    EXPECT_EQ(feed_->end_ticket(), std::nullopt);
    destroy();
  }
}

TEST_F(StreamFeedTest, EndsWhenRingCloses) {
  ScriptedInputs inputs({[] { return paused_after(json_lines(0, 500)); }});
  create(inputs);
  feed_->start(*coordinator_);
  ASSERT_TRUE(eventually([&] { return ring_->counters().published == slots_; }));
  ring_->close();
  EXPECT_TRUE(coordinator_->join(kStreamTimeout).ok());
  EXPECT_TRUE(coordinator_->all_joined());
}

TEST_F(StreamFeedTest, EndsWhenRingClosesWhileInputWaits) {
  ScriptedInputs inputs({[] { return paused_after(json_lines(0, 2)); }});
  create(inputs);
  feed_->start(*coordinator_);
  ASSERT_TRUE(
      eventually([&] { return feed_->status().activity == StreamStatus::Activity::kWaiting; }));
  ring_->close();
  EXPECT_TRUE(coordinator_->join(kStreamTimeout).ok());
  EXPECT_TRUE(coordinator_->all_joined());
  EXPECT_EQ(feed_->end_ticket(), std::nullopt);
}

TEST_F(StreamFeedTest, StopsWhileStateIsRestored) {
  options_.queue = queue::QueueType::kRandomShuffle;  // the queue is full at the first batch
  ScriptedInputs inputs(texts({json_lines(0, 30)}));
  const Batches batches = run(inputs, nullptr, 0, 1);
  const StreamState& state = batches.states.at(0);
  ASSERT_THAT(state.elements, SizeIs(12));
  std::atomic<bool> was_read{false};
  ScriptedInputs paused({[&was_read] {
                          return ScriptedInput::Next([&was_read] {
                            was_read = true;
                            return Result(std::optional<std::string>());
                          });
                        }},
                        1);
  create(paused, 1);
  Status restored;
  std::jthread restoring(
      [&](const std::stop_token& stop) { restored = feed_->restore(state, stop); });
  ASSERT_TRUE(eventually([&] { return was_read.load(); }));
  restoring.request_stop();
  restoring.join();
  EXPECT_EQ(restored.code(), StatusCode::kCancelled);
}

// ---- Faults

TEST_F(StreamFeedTest, SkipsRecordThatCannotBeUsed) {
  ScriptedInputs inputs(texts({json_lines(0, 3) + "garbage\n" + json_lines(3, 5) +
                               "{\"x\": 1, \"y\": -1}\n" + json_lines(5, 8)}));
  const Batches batches = run(inputs);
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  EXPECT_EQ(batches.all_labels(), numbers(0, 8));
  ASSERT_THAT(batches.errors, SizeIs(2));
  EXPECT_EQ(batches.errors[0].sample, 3u);
  EXPECT_EQ(batches.errors[0].code, StatusCode::kCorrupt);
  EXPECT_THAT(batches.errors[0].reason, HasSubstr("input-0: record 3 at offset "));
  EXPECT_EQ(batches.errors[1].sample, 6u);
}

// The same error of a ticket is counted once.
TEST_F(StreamFeedTest, ReportsErrorsOfInputsWithDifferentNumbers) {
  options_.num_threads = 1;
  ScriptedInputs inputs(texts({"garbage\n", "garbage\n" + json_lines(0, 4)}));
  const Batches batches = run(inputs);
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  ASSERT_THAT(batches.errors, SizeIs(2));
  EXPECT_EQ(batches.errors[0].sample, 0u);
  EXPECT_EQ(batches.errors[1].sample, uint64_t{1} << 40);
}

TEST_F(StreamFeedTest, ReportsAllOfManyErrors) {
  std::string garbage;
  for (int line = 0; line < 1500; ++line) garbage += "garbage\n";
  ScriptedInputs inputs(texts({garbage + json_lines(0, 4)}));
  const Batches batches = run(inputs);
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  EXPECT_EQ(batches.all_labels(), numbers(0, 4));
  ASSERT_THAT(batches.errors, SizeIs(1500));
  // Threads report in any order.
  std::set<uint64_t> samples;
  for (const auto& error : batches.errors) samples.insert(error.sample);
  EXPECT_EQ(samples.size(), 1500u);
  EXPECT_EQ(*samples.rbegin(), 1499u);
}

TEST_F(StreamFeedTest, StopsWhileErrorsWait) {
  slots_ = 1;
  ScriptedInputs inputs({[] {
    return ScriptedInput::Next([is_garbage = false]() mutable {
      return Result(
          std::optional(std::exchange(is_garbage, true) ? "garbage\n" : json_lines(0, 4)));
    });
  }});
  create(inputs);
  feed_->start(*coordinator_);
  // While the ring is full, no ticket is claimed for which errors can be reported.
  ASSERT_TRUE(eventually(
      [&] { return ring_->counters().published == slots_ && feed_->status().errors > 256; }));
  stop_and_join();
  EXPECT_EQ(feed_->end_ticket(), std::nullopt);
}

TEST_F(StreamFeedTest, ReportsNumberOfRecordWithWrongChecksum) {
  using namespace data::testing;
  use_tfrecords();
  std::string frames;
  for (int64_t label = 0; label < 5; ++label) {
    std::string frame =
        framed(example({{"x", floats_feature({1.5f})}, {"y", ints_feature({label})}}));
    if (label == 2) frame.back() = static_cast<char>(~frame.back());
    frames += frame;
  }
  ScriptedInputs inputs(texts({frames}));
  const Batches batches = run(inputs);
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  EXPECT_EQ(batches.all_labels(), (Labels{0, 1, 3, 4}));
  ASSERT_THAT(batches.errors, SizeIs(1));
  EXPECT_EQ(batches.errors[0].sample, 2u);
  EXPECT_THAT(batches.errors[0].reason, HasSubstr("input-0: record 2 at offset "));
}

TEST_F(StreamFeedTest, FailsAtRecordThatCannotBeUsedIfConfigured) {
  options_.on_sample_error = config::OnSampleError::kFail;
  ScriptedInputs inputs(texts({json_lines(0, 3) + "garbage\n" + json_lines(3, 8)}));
  const Batches batches = run(inputs);
  EXPECT_EQ(batches.status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(batches.status.message(), HasSubstr("input-0: record 3 at offset "));
  EXPECT_EQ(batches.end_ticket, std::nullopt);
}

TEST_F(StreamFeedTest, SkipsRestOfTruncatedShard) {
  const std::string packed = test::gzip(json_lines(0, 4000));
  write("a.jsonl.gz", packed.substr(0, packed.size() / 2));
  write("b.jsonl.gz", test::gzip(json_lines(50'000, 50'008)));
  const auto source = data::stream::StreamSource::of(path("*.jsonl.gz"), "");
  ASSERT_TRUE(source.ok()) << source.status().to_string();
  const auto inputs = data::stream::make_file_inputs(*source, 1);
  const Batches batches = run(*inputs, nullptr, 0, 100'000);
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  const Labels labels = batches.all_labels();
  EXPECT_TRUE(std::ranges::is_sorted(labels));
  EXPECT_GT(labels.size(), 100u);
  EXPECT_GE(labels.back(), 50'004);
  ASSERT_THAT(batches.errors, SizeIs(1));
  EXPECT_THAT(batches.errors[0].reason, HasSubstr("a.jsonl.gz"));
}

TEST_F(StreamFeedTest, FailsWithErrorOfInput) {
  ScriptedInputs inputs({[] { return parts({json_lines(0, 20)}); },
                         [] {
                           return ScriptedInput::Next([]() -> Result<std::optional<std::string>> {
                             return Status(StatusCode::kIoError, "input-1: the disk is gone");
                           });
                         }});
  const Batches batches = run(inputs);
  EXPECT_EQ(batches.status.code(), StatusCode::kIoError);
  EXPECT_THAT(batches.status.message(), HasSubstr("the disk is gone"));
  EXPECT_EQ(batches.end_ticket, std::nullopt);
}

TEST_F(StreamFeedTest, CountsBytesThatFillNoBlock) {
  config::TokensDataset tokens;
  tokens.dtype = config::TokenType::kUint32;
  tokens.sequence.block_size = 2;
  config_.source = tokens;
  batch_ = 1;
  ScriptedInputs inputs(texts({std::string(16, '\0'), std::string(16, '\0')}));
  create(inputs);
  feed_->start(*coordinator_);
  EXPECT_THAT(receive(0, 10).bytes, SizeIs(2));
  EXPECT_EQ(feed_->status().dropped_bytes, 8u);
  stop_and_join();
}

TEST_F(StreamFeedTest, CountsDroppedRecords) {
  data::record_in(config_).on_missing_field = config::OnMissingField::kDrop;
  ScriptedInputs inputs(texts({json_lines(0, 2) + "{\"x\": 1}\n" + json_lines(2, 4)}));
  create(inputs);
  feed_->start(*coordinator_);
  EXPECT_EQ(receive(0, 10).all_labels(), numbers(0, 4));
  EXPECT_EQ(feed_->status().dropped, 1u);
  EXPECT_EQ(feed_->status().records, 4u);
  EXPECT_EQ(feed_->status().activity, StreamStatus::Activity::kEnded);
  stop_and_join();
}

// ---- External producers

using data::stream::testing::hello;
using data::stream::testing::ProducerClient;

// Sends a text, from the offset that each reply says, until `rest_is_sent` or a stop.
class ReplayingProducer {
 public:
  // `part`: bytes per connection; 0: all.
  ReplayingProducer(std::string path, std::string name, std::string text, size_t part = 0)
      : thread_([=](const std::stop_token& stop) { run(stop, path, name, text, part); }) {}

 private:
  static void run(const std::stop_token& stop, const std::string& path, const std::string& name,
                  const std::string& text, size_t part) {
    while (!stop.stop_requested()) {
      ProducerClient client(path, hello(name));
      std::optional<uint64_t> offset;
      while (!stop.stop_requested() && !offset && !client.is_closed())
        offset = client.read_offset(20ms);
      if (!offset) continue;
      const std::string_view rest = std::string_view(text).substr(*offset);
      client.send(part == 0 ? rest : rest.substr(0, part));
      client.close();
      if (part == 0 || part >= rest.size()) return;
    }
  }

  std::jthread thread_;
};

class ProducerFeedTest : public StreamFeedTest {
 protected:
  static constexpr size_t kHistoryBytes = size_t{1} << 20;

  std::string socket() const { return path("producers.sock"); }
  // As a worker process that continues from a state, or starts.
  std::unique_ptr<StreamInputs> open(const StreamState* from = nullptr,
                                     std::optional<data::stream::ByteHistory> history = {}) {
    std::vector<data::stream::KnownProducer> known;
    if (from != nullptr)
      for (const auto& source : from->sources)
        known.push_back({.name = source.name,
                         .next = source.next,
                         .can_replay = source.identity == data::stream::kReplayingProducer});
    return data::stream::make_producer_inputs(data::stream::testing::listen_at(socket()), {},
                                              history, std::move(known));
  }
  data::stream::ByteHistory history() {
    return data::stream::ByteHistory(std::as_writable_bytes(std::span(memory_)));
  }
  // As of a checkpoint.
  void restore_history(const StreamHistory& saved) {
    memory_.assign(memory_.size(), 0);
    restore_producer_history(saved, history());
  }
  void end_stream() { ProducerClient(socket(), data::stream::testing::kEndOfStream).read_line(); }
  void start(StreamInputs& inputs) {
    create(inputs);
    feed_->start(*coordinator_);
  }

 private:
  std::vector<uint64_t> memory_ =
      std::vector<uint64_t>((data::stream::ByteHistory::kHeaderBytes + kHistoryBytes) / 8);
};

TEST_F(ProducerFeedTest, ReadsSeveralProducersToEndOfStream) {
  options_.num_threads = 2;
  const auto inputs = open();
  start(*inputs);
  const ReplayingProducer a(socket(), "a", json_lines(0, 10));
  const ReplayingProducer b(socket(), "b", json_lines(10, 20));
  Batches batches = receive(0, 5);
  EXPECT_EQ(sorted(batches.all_labels()), numbers(0, 20));
  end_stream();
  EXPECT_TRUE(eventually([&] { return feed_->end_ticket() == 5u; }));
  stop_and_join();
}

TEST_F(ProducerFeedTest, DropsIncompleteRecordAndContinuesBehindLastCompleteOne) {
  // The part of a record that looks complete, too.
  for (const char* const incomplete : {"{\"x\": 2", "{\"x\": [{}", "{\"x\": 2.5, \"y\": 2}"}) {
    const auto inputs = open();
    start(*inputs);
    ProducerClient first(socket(), hello("a"));
    ASSERT_EQ(first.read_offset(), 0u);
    first.send(json_lines(0, 2) + incomplete);
    first.close();
    ProducerClient again(socket(), hello("a"));
    EXPECT_EQ(again.read_offset(), json_lines(0, 2).size()) << incomplete;
    again.send(json_lines(2, 4));
    EXPECT_EQ(receive(0, 1).all_labels(), numbers(0, 4));
    EXPECT_EQ(feed_->status().dropped, 1u);
    EXPECT_EQ(feed_->status().errors, 0u);
    stop_and_join();
    destroy();
  }
}

TEST_F(ProducerFeedTest, ReadsOthersWhileOneIsSilent) {
  options_.num_threads = 2;
  const auto inputs = open();
  start(*inputs);
  ProducerClient silent(socket(), hello("silent"));
  EXPECT_EQ(silent.read_offset(), 0u);
  const ReplayingProducer other(socket(), "other", json_lines(0, 40), 300);
  EXPECT_EQ(receive(0, 10).all_labels(), numbers(0, 40));
  EXPECT_TRUE(
      eventually([&] { return feed_->status().activity == StreamStatus::Activity::kWaiting; }));
  EXPECT_THAT(feed_->status().input, HasSubstr("producer silent (process "));
  const uint64_t before = progress();
  EXPECT_TRUE(eventually([&] { return progress() > before + 2; }));
  stop_and_join();
}

TEST_F(ProducerFeedTest, EndsWhileManyProducersWait) {
  const auto inputs = open();
  start(*inputs);
  ProducerClient first(socket(), hello("first"));
  EXPECT_EQ(first.read_offset(), 0u);
  std::vector<ProducerClient> waiting;
  for (int i = 0; i < 50; ++i) waiting.emplace_back(socket(), hello("p" + std::to_string(i)));
  ProducerClient end(socket(), data::stream::testing::kEndOfStream);
  ProducerClient late(socket(), hello("late"));
  EXPECT_THAT(late.read_line(), HasSubstr("the stream has ended"));
  first.close();
  for (ProducerClient& client : waiting) client.close();
  EXPECT_EQ(end.read_line(), R"({"format":1,"end":true})");
  EXPECT_TRUE(eventually([&] { return feed_->end_ticket() == 0u; }));
  stop_and_join();
}

TEST_F(ProducerFeedTest, LetsProducerWaitUntilReaderIsFree) {
  const auto inputs = open();
  start(*inputs);
  ProducerClient first(socket(), hello("first"));
  EXPECT_EQ(first.read_offset(), 0u);
  ProducerClient second(socket(), hello("second"));
  EXPECT_EQ(second.read_offset(50ms), std::nullopt);
  first.close();
  EXPECT_EQ(second.read_offset(), 0u);
  stop_and_join();
}

TEST_F(ProducerFeedTest, HoldsAtMostCapacityElements) {
  const auto inputs = open();
  start(*inputs);
  ProducerClient client(socket(), hello("a"));
  EXPECT_EQ(client.read_offset(), 0u);
  // Until the socket takes no more, because nothing is read any more.
  const std::string text = json_lines(0, 1000);
  size_t sent = 0;
  EXPECT_TRUE(eventually([&] {
    const size_t now = client.send_available(text);
    sent += now;
    return now == 0 && feed_->status().activity == StreamStatus::Activity::kBlocked;
  }));
  EXPECT_EQ(feed_->status().elements, options_.capacity);
  EXPECT_LT(sent, size_t{8} << 20);
  const auto elements = static_cast<uint64_t>(options_.capacity);
  EXPECT_LE(feed_->status().records, elements + slots_ * batch_);
  stop_and_join();
}

TEST_F(ProducerFeedTest, CountsRecordThatCannotBeUsed) {
  const auto inputs = open();
  start(*inputs);
  ProducerClient client(socket(), hello("a"));
  EXPECT_EQ(client.read_offset(), 0u);
  client.send(json_lines(0, 2) + "garbage\n" + json_lines(2, 4));
  const Batches batches = receive(0, 1);
  EXPECT_EQ(batches.all_labels(), numbers(0, 4));
  ASSERT_THAT(batches.errors, SizeIs(1));
  EXPECT_THAT(batches.errors.front().reason, HasSubstr("producer a (process "));
  EXPECT_THAT(batches.errors.front().reason, HasSubstr("record 2"));
  stop_and_join();
}

TEST_F(ProducerFeedTest, AcknowledgesRecordsInQueue) {
  const auto inputs = open();
  start(*inputs);
  ProducerClient client(socket(), hello("a"));
  EXPECT_EQ(client.read_offset(), 0u);
  client.send(json_lines(0, 4) + "{\"x\": 1");
  client.finish();
  EXPECT_EQ(client.read_line(), "{\"format\":1,\"offset\":" +
                                    std::to_string(json_lines(0, 4).size()) + ",\"records\":4}");
  EXPECT_EQ(receive(0, 1).all_labels(), numbers(0, 4));
  stop_and_join();
}

// Without an error for each of its connections.
TEST_F(ProducerFeedTest, AsksOnceForBytesInWhichNoRecordCanBeFound) {
  using namespace data::testing;
  use_tfrecords();
  std::string frames;
  for (int64_t label = 0; label < 4; ++label)
    frames += framed(example({{"x", floats_feature({1.5f})}, {"y", ints_feature({label})}}));
  const auto inputs = open();
  start(*inputs);
  ProducerClient client(socket(), hello("a"));
  EXPECT_EQ(client.read_offset(), 0u);
  client.send(frames + std::string(100, 'x') + frames);
  const Batches batches = receive(0, 1);
  EXPECT_EQ(batches.all_labels(), numbers(0, 4));
  EXPECT_THAT(client.read_line(), HasSubstr("no record can be found in what producer a sent from "
                                            "offset " +
                                            std::to_string(frames.size()) + " on"));
  ProducerClient again(socket(), hello("a"));
  EXPECT_THAT(again.read_line(), HasSubstr("\"retry\":false"));
  EXPECT_EQ(feed_->status().errors, 1u);
  stop_and_join();
}

// Every ticket of a run is resumed from its state, with the history of a checkpoint.
class ProducerResumeTest : public ProducerFeedTest,
                           public ::testing::WithParamInterface<queue::QueueType> {
 protected:
  ProducerResumeTest() { use_queue(GetParam()); }
};

// With RandomShuffleQueue and PriorityQueue, batches depend on the time at which the producer ends.
TEST_P(ProducerResumeTest, IsBitForBitTheSameWithOneProducer) {
  constexpr uint64_t kTickets = 11;  // of them, the queue was always full
  const std::string text = json_lines(0, 60);
  std::map<uint64_t, StreamHistory> histories;
  Batches whole;
  {
    const auto inputs = open(nullptr, history());
    start(*inputs);
    const ReplayingProducer producer(socket(), "a", text);
    for (uint64_t ticket = 0; ticket < kTickets; ++ticket) {
      const Batches one = receive(ticket, 1);
      ASSERT_THAT(one.bytes, SizeIs(1));
      whole.bytes.push_back(one.bytes.front());
      const std::lock_guard lock(mutex_);
      histories[ticket] = *copy_producer_history(states_.at(ticket), history(), /*is_last=*/false);
    }
    stop_and_join();
    whole.states = states_;
    destroy();
  }
  for (uint64_t ticket = 0; ticket < kTickets; ++ticket) {
    const bool keeps_order = options_.queue == queue::QueueType::kFIFO ||
                             options_.queue == queue::QueueType::kPaddingFIFO;
    const bool has_history = ticket % 2 == 0 || !keeps_order;
    restore_history(has_history ? histories.at(ticket) : StreamHistory());
    StreamState from = whole.states.at(ticket);
    drop_unsaved_elements(from, history(), options_.queue);
    const auto inputs = open(&from, history());
    const ReplayingProducer producer(socket(), "a", text);
    const Batches resumed = run(*inputs, &from, ticket + 1, kTickets - ticket - 1);
    EXPECT_TRUE(resumed.status.ok()) << resumed.status.to_string();
    EXPECT_EQ(resumed.bytes,
              std::vector<std::string>(whole.bytes.begin() + static_cast<long>(ticket) + 1,
                                       whole.bytes.end()))
        << "after ticket " << ticket;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Queues, ProducerResumeTest,
    ::testing::Values(queue::QueueType::kFIFO, queue::QueueType::kRandomShuffle,
                      queue::QueueType::kPaddingFIFO, queue::QueueType::kPriority),
    [](const auto& parameter) { return std::string(queue::to_string(parameter.param)); });

TEST_P(ProducerResumeTest, ReadsEveryRecordExactlyOnceWithSeveralProducers) {
  options_.num_threads = 3;
  options_.min_after_dequeue = 0;    // the stream does not end
  constexpr int64_t kRecords = 200;  // of each of four producers
  Labels all;
  std::optional<StreamState> from;
  for (uint64_t ticket = 0; ticket < 4 * kRecords / 4;) {
    if (from) drop_unsaved_elements(*from, history(), options_.queue);
    const auto inputs = open(from ? &*from : nullptr, history());
    std::vector<std::unique_ptr<ReplayingProducer>> producers;
    for (int64_t i = 0; i < 4; ++i)
      producers.push_back(std::make_unique<ReplayingProducer>(
          socket(), "p" + std::to_string(i), json_lines(i * kRecords, (i + 1) * kRecords), 500));
    const uint64_t count = std::min<uint64_t>(23, kRecords - ticket);
    const Batches batches = run(*inputs, from ? &*from : nullptr, ticket, count);
    ASSERT_TRUE(batches.status.ok()) << batches.status.to_string();
    const Labels labels = batches.all_labels();
    ASSERT_THAT(labels, SizeIs(count * batch_));
    all.insert(all.end(), labels.begin(), labels.end());
    ticket += count;
    from = batches.states.at(ticket - 1);
  }
  EXPECT_EQ(sorted(all), numbers(0, 4 * kRecords));
}

// Its elements are those of the history; the others cannot be sent again.
TEST_F(ProducerFeedTest, ContinuesWithoutElementsThatWereNotSaved) {
  options_.queue = queue::QueueType::kRandomShuffle;
  const std::string text = json_lines(0, 100);
  StreamState from{.next_source = 1, .generator = queue::GeneratorState{}};
  from.sources.push_back({.number = 0,
                          .name = "a",
                          .next = {.offset = json_lines(0, 6).size(), .record = 6},
                          .identity = 0});
  for (uint64_t i = 0; i < 6; ++i)
    from.elements.push_back(
        {.source = 0,
         .at = {.offset = json_lines(0, static_cast<int64_t>(i)).size(), .record = i}});
  const uint64_t held = json_lines(0, 4).size();
  data::stream::ProducerHistory(history()).append(
      "a", held, std::as_bytes(std::span(text)).subspan(held, json_lines(4, 6).size()));
  drop_unsaved_elements(from, history(), options_.queue);
  EXPECT_THAT(from.elements, SizeIs(2));
  const auto inputs = open(&from, history());
  const ReplayingProducer producer(socket(), "a", text);
  const Batches batches = run(*inputs, &from, 1, 5);
  const Labels labels = batches.all_labels();
  EXPECT_EQ(*std::ranges::min_element(labels), 4);
}

}  // namespace
}  // namespace stoker::feed
