// A mixture of a stream and a dataset with an index, from the configuration to batches.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/load_config.h"
#include "shared/feed/indexed_rows.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/feed/make_stream_feed.h"
#include "shared/feed/stream_feed.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/support/machine_slowness.h"

namespace stoker::feed {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Labels = std::vector<int64_t>;

const auto kMixtureTimeout = test::scaled(60s);  // never reached in a successful test
constexpr uint64_t kBatchRows = 8;               // of a batch
constexpr int64_t kArchived = 36;                // samples with an index
constexpr int64_t kFirstArchived = 10'000;

struct MixedBatches {
  std::vector<std::string> bytes;  // of all tensors, by batch
  std::vector<Labels> labels;      // by batch
  std::map<uint64_t, StreamState> states;
  std::optional<uint64_t> end_ticket;
  std::vector<ring::SampleError> errors;
  Status status;  // of the threads

  Labels of_stream() const { return select(true); }
  Labels of_archive() const { return select(false); }

 private:
  Labels select(bool is_streamed) const {
    Labels all;
    for (const Labels& batch : labels)
      std::ranges::copy_if(batch, std::back_inserter(all),
                           [&](int64_t label) { return (label < kFirstArchived) == is_streamed; });
    return all;
  }
};

Labels counted(int64_t from, int64_t to) {
  Labels labels;
  for (int64_t label = from; label < to; ++label) labels.push_back(label);
  return labels;
}
Labels in_order(Labels labels) {
  std::ranges::sort(labels);
  return labels;
}
std::string lines(int64_t from, int64_t to) {
  std::string text;
  for (int64_t label = from; label < to; ++label)
    text += "{\"x\": " + std::to_string(label) + ".5, \"p\": " + std::to_string(label % 5) +
            ", \"y\": " + std::to_string(label) + "}\n";
  return text;
}

// data.live is a stream whose records have the labels 0, 1, 2, …; data.archive has an index.
class StreamMixtureTest : public data::testing::FolderFixture {
 protected:
  void SetUp() override {
    write("archive.jsonl", lines(kFirstArchived, kFirstArchived + kArchived));
  }
  // Files of the stream, one after another.
  void write_stream(int files, int64_t records) const {
    for (int64_t file = 0; file < files; ++file)
      write("live-" + std::to_string(file) + ".jsonl", lines(file * records, (file + 1) * records));
  }

  void configure(const std::string& queue, const std::string& shares = "{live: 1, archive: 3}",
                 const std::string& feed = "") {
    const std::string keys = "format: jsonl, num_classes: 20000, fields: {input: x, label: y";
    const bool has_priority = queue.find("priority") != std::string::npos;
    write("config.yaml",
          "run: {seed: 9}\ndata:\n  live: {" + keys + (has_priority ? ", priority: p" : "") +
              "}, stream: {source: '" + path("live-*.jsonl") + "', num_epochs: 1, " + queue +
              "}}\n  archive: {" + keys + "}, path: '" + path("archive.jsonl") +
              "'}\n  train: {mixture: " + shares +
              "}\nmodel: {name: mlp, hidden_sizes: [8]}\n"
              "task: {name: classification}\ntrain: {micro_batch_size: " +
              std::to_string(kBatchRows) + ", max_steps: 1000}\nfeed: {" + feed + "}\n");
    auto config = config::load_config(path("config.yaml"), {});
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    config_ = *std::move(config);
    auto opened = data::pipeline::open_source("train", config_.data, index_dir(), {});
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    data_ = std::move(std::get<data::Stream>(*opened).maybe_indexed);
    const auto plan = make_plan_options(config_, *data_, {});
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    plan_.emplace(*plan);
  }

  // Batches from a state on, up to the end of the stream.
  MixedBatches run(const StreamState* from = nullptr, uint64_t first_ticket = 0,
                   uint64_t limit = 1000) {
    const auto source = find_stream_source(config_);
    EXPECT_TRUE(source.ok()) << source.status().to_string();
    const auto inputs = open_stream_inputs(config_, *source, from);
    EXPECT_TRUE(inputs.ok()) << inputs.status().to_string();
    const auto ring = *ring::ShmRing::create(ring::BatchLayout(data_->spec(), kBatchRows),
                                             {.slots = 4, .first_ticket = first_ticket});
    const ring::ProducerId producer = *ring->add_producer("stream");
    IndexedRows indexed(*data_, *plan_, *ring, producer);
    StreamFeedOptions options = make_stream_options(config_, *source);
    options.maybe_indexed = &indexed;
    std::mutex mutex;
    MixedBatches batches;
    const auto& [name, live] = *config::streamed_dataset(config_);
    const auto feed = StreamFeed::create({.name = name, .config = live}, **inputs, options, *ring,
                                         producer, [&](uint64_t ticket, const StreamState& state) {
                                           const std::lock_guard lock(mutex);
                                           batches.states[ticket] = state;
                                           return Status();
                                         });
    EXPECT_TRUE(feed.ok()) << feed.status().to_string();
    if (from != nullptr) {
      const Status restored = (*feed)->restore(*from, {});
      EXPECT_TRUE(restored.ok()) << restored.to_string();
    }
    Coordinator coordinator;
    (*feed)->start(coordinator);
    indexed.start(2, coordinator);
    const auto deadline = std::chrono::steady_clock::now() + kMixtureTimeout;
    while (batches.labels.size() < limit && std::chrono::steady_clock::now() < deadline) {
      const bool has_ended = coordinator.should_stop();
      const auto batch = ring->pop(10ms);
      if (!batch && has_ended) break;
      if (!batch) continue;
      add(*ring, *batch, batches);
      ring->release(batch->ticket);
    }
    coordinator.request_stop();
    batches.status = coordinator.join(kMixtureTimeout);
    batches.errors = ring->drain_sample_errors();
    batches.end_ticket = (*feed)->end_ticket();
    return batches;
  }

  bool is_stream_row(uint64_t ticket, uint64_t row) const {
    return plan_->at(ticket, row).sample >= static_cast<uint64_t>(kArchived);
  }

  config::Config config_;
  std::unique_ptr<data::Dataset> data_;
  std::optional<data::order::SamplePlan> plan_;

 private:
  static void add(const ring::ShmRing& ring, const ring::ReadyBatch& batch, MixedBatches& batches) {
    std::string& bytes = batches.bytes.emplace_back();
    for (size_t i = 0; i < ring.layout().sample().size(); ++i) {
      const auto tensor = ring.layout().tensor_bytes(batch.slot, i);
      bytes.append(reinterpret_cast<const char*>(tensor.data()), tensor.size());
      if (ring.layout().sample()[i].name != "label") continue;
      Labels& labels = batches.labels.emplace_back(kBatchRows);
      std::memcpy(labels.data(), tensor.data(), kBatchRows * sizeof(int64_t));
    }
  }
};

TEST_F(StreamMixtureTest, HasSharesOfMixtureExactly) {
  write_stream(3, 40);
  configure("num_threads: 1");
  const MixedBatches batches = run();
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  ASSERT_THAT(batches.labels, SizeIs(3 * 40 / (kBatchRows / 4)));
  for (uint64_t ticket = 0; ticket < batches.labels.size(); ++ticket) {
    for (uint64_t row = 0; row < kBatchRows; ++row)
      EXPECT_EQ(batches.labels[ticket][row] < kFirstArchived, is_stream_row(ticket, row))
          << "ticket " << ticket << ", row " << row;
    // A block of the schedule has four rows.
    EXPECT_EQ(std::ranges::count_if(batches.labels[ticket],
                                    [](int64_t label) { return label < kFirstArchived; }),
              kBatchRows / 4);
  }
  EXPECT_EQ(batches.of_stream(), counted(0, 3 * 40));
}

TEST_F(StreamMixtureTest, ReadsSamplesThatThePlanNames) {
  write_stream(1, 60);
  configure("num_threads: 1");
  const MixedBatches batches = run();
  ASSERT_THAT(batches.labels, SizeIs(Ge(20u)));
  for (uint64_t ticket = 0; ticket < batches.bytes.size(); ++ticket)
    for (uint64_t row = 0; row < kBatchRows; ++row) {
      if (is_stream_row(ticket, row)) continue;
      const auto sample = data::testing::read_sample(*data_, plan_->at(ticket, row).sample);
      ASSERT_TRUE(sample.status.ok()) << sample.status.to_string();
      size_t offset = 0;
      for (size_t i = 0; i < sample.tensors.size(); ++i) {
        const std::string expected = sample.text(i);
        EXPECT_EQ(batches.bytes[ticket].substr(offset + row * expected.size(), expected.size()),
                  expected)
            << "ticket " << ticket << ", row " << row;
        offset += kBatchRows * expected.size();
      }
    }
  // Every sample once per epoch of its dataset, shuffled.
  Labels archived = batches.of_archive();
  archived.resize(kArchived);
  EXPECT_NE(archived, counted(kFirstArchived, kFirstArchived + kArchived));
  EXPECT_EQ(in_order(archived), counted(kFirstArchived, kFirstArchived + kArchived));
}

// The order of the datasets in the file is that of the samples, but the stream comes last.
TEST_F(StreamMixtureTest, IsTheMixtureOfItsRecordsInOrder) {
  write_stream(1, 60);
  configure("num_threads: 1", "{live: 1, archive: 3}", "shuffle: none");
  const MixedBatches streamed = run();
  ASSERT_THAT(streamed.bytes, SizeIs(Ge(20u)));
  config_.data["live"].stream.reset();
  std::get<config::JsonlDataset>(config_.data["live"].source).path = path("live-0.jsonl");
  config_.data["train"].source = config::Mixture{.shares = {{"archive", 3}, {"live", 1}}};
  const auto indexed = data::pipeline::open_dataset("train", config_.data, path("other"), {});
  ASSERT_TRUE(indexed.ok()) << indexed.status().to_string();
  const data::order::SamplePlan plan(*make_plan_options(config_, **indexed, {}));
  for (uint64_t ticket = 0; ticket < streamed.labels.size(); ++ticket)
    for (uint64_t row = 0; row < kBatchRows; ++row)
      EXPECT_EQ(data::testing::read_sample(**indexed, plan.at(ticket, row).sample).label(),
                streamed.labels[ticket][row]);
}

// ---- Resume

class StreamMixtureResumeTest : public StreamMixtureTest,
                                public ::testing::WithParamInterface<const char*> {};

TEST_P(StreamMixtureResumeTest, IsBitForBitTheSameFromEveryTicket) {
  write_stream(3, 21);
  configure("capacity: 24, num_threads: 1, queue: " + std::string(GetParam()));
  const MixedBatches whole = run();
  ASSERT_TRUE(whole.status.ok()) << whole.status.to_string();
  ASSERT_THAT(whole.bytes, SizeIs(31));
  for (uint64_t ticket = 0; ticket < whole.bytes.size(); ++ticket) {
    const MixedBatches resumed = run(&whole.states.at(ticket), ticket + 1);
    EXPECT_TRUE(resumed.status.ok()) << resumed.status.to_string();
    EXPECT_EQ(resumed.bytes,
              std::vector<std::string>(whole.bytes.begin() + static_cast<long>(ticket) + 1,
                                       whole.bytes.end()))
        << "after ticket " << ticket;
    EXPECT_EQ(resumed.end_ticket, whole.end_ticket);
  }
}

INSTANTIATE_TEST_SUITE_P(Queues, StreamMixtureResumeTest,
                         ::testing::Values("fifo", "random_shuffle", "priority"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST_F(StreamMixtureTest, ReadsEveryRecordExactlyOnceWithSeveralThreads) {
  write_stream(8, 11);
  configure("capacity: 24, num_threads: 4, queue: random_shuffle");
  MixedBatches batches = run(nullptr, 0, 5);
  Labels streamed;
  uint64_t ticket = 0;
  while (true) {
    for (uint64_t i = 0; i < batches.labels.size(); ++i)
      for (uint64_t row = 0; row < kBatchRows; ++row) {
        if (is_stream_row(ticket + i, row)) continue;
        EXPECT_EQ(batches.labels[i][row],
                  data::testing::read_sample(*data_, plan_->at(ticket + i, row).sample).label());
      }
    const Labels more = batches.of_stream();
    streamed.insert(streamed.end(), more.begin(), more.end());
    ticket += batches.labels.size();
    if (batches.labels.empty() || batches.end_ticket == ticket) break;
    const StreamState from = batches.states.at(ticket - 1);
    batches = run(&from, ticket, 5);
    EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  }
  EXPECT_EQ(in_order(streamed), counted(0, 8 * 11));
}

TEST_F(StreamMixtureTest, ContinuesFromBatchesBeforeTheFirstRecord) {
  write_stream(1, 2);
  configure("capacity: 24, num_threads: 1", "{live: 1, archive: 99}");
  const MixedBatches whole = run();
  ASSERT_TRUE(whole.status.ok()) << whole.status.to_string();
  EXPECT_EQ(whole.of_stream(), counted(0, 2));
  uint64_t first = 0;
  const auto has_record = [&](uint64_t ticket) {
    return std::ranges::any_of(whole.labels.at(ticket),
                               [](int64_t label) { return label < kFirstArchived; });
  };
  while (!has_record(first)) ++first;
  ASSERT_GE(first, 1u) << "choose another seed";
  const StreamState& before = whole.states.at(first - 1);
  EXPECT_FALSE(before.has_started());
  EXPECT_TRUE(whole.states.at(first).has_started());
  const auto decoded = decode_state(encode_state(before));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  const MixedBatches resumed = run(&*decoded, first);
  EXPECT_EQ(resumed.bytes, std::vector<std::string>(whole.bytes.begin() + static_cast<long>(first),
                                                    whole.bytes.end()));
}

// ---- End

TEST_F(StreamMixtureTest, EndsAtFirstBatchForWhichRecordsAreMissing) {
  write_stream(1, 11);  // two per batch
  configure("num_threads: 1");
  const MixedBatches batches = run();
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  EXPECT_EQ(batches.end_ticket, 5u);
  EXPECT_THAT(batches.labels, SizeIs(5));
  ASSERT_TRUE(batches.states.contains(5));
  EXPECT_THAT(batches.states.at(5).elements, SizeIs(1));
  // With another file, it continues with the record that is left over.
  write("live-1.jsonl", lines(11, 14));
  const MixedBatches more = run(&batches.states.at(5), 5);
  EXPECT_EQ(more.of_stream(), counted(10, 14));
}

// ---- Errors

TEST_F(StreamMixtureTest, ReplacesSampleThatCannotBeRead) {
  write_stream(1, 30);
  const std::string good = content_of("archive.jsonl");
  configure("num_threads: 1");
  const uint64_t corrupt = plan_->at(0, is_stream_row(0, 0) ? 1 : 0).sample;
  const std::string line = "{\"x\": " + std::to_string(kFirstArchived + corrupt) + ".5";
  std::string content = good;
  content[content.find(line) + 6] = '"';  // of the same size
  const auto time = std::filesystem::last_write_time(path("archive.jsonl"));
  write("archive.jsonl", content);
  std::filesystem::last_write_time(path("archive.jsonl"), time);
  const MixedBatches batches = run();
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  EXPECT_EQ(batches.of_stream(), counted(0, 30));
  ASSERT_THAT(batches.errors, SizeIs(Ge(1u)));
  for (const ring::SampleError& error : batches.errors) EXPECT_EQ(error.sample, corrupt);
  const uint64_t row = is_stream_row(0, 0) ? 1 : 0;
  EXPECT_EQ(batches.labels[0][row],
            data::testing::read_sample(*data_, plan_->replacement(0, row, 1).sample).label());
}

TEST_F(StreamMixtureTest, NumbersErrorsOfRecordsBehindOtherSamples) {
  write_stream(1, 9);
  write("live-1.jsonl", "no JSON\n" + lines(9, 30));
  configure("num_threads: 1");
  const MixedBatches batches = run();
  EXPECT_TRUE(batches.status.ok()) << batches.status.to_string();
  ASSERT_THAT(batches.errors, SizeIs(1));
  EXPECT_EQ(batches.errors[0].sample, kArchived + (uint64_t{1} << 40));
}

TEST_F(StreamMixtureTest, FailsWhenNoSampleCanBeRead) {
  write_stream(1, 30);
  configure("num_threads: 1");
  std::filesystem::resize_file(path("archive.jsonl"), 0);
  const MixedBatches batches = run();
  EXPECT_THAT(batches.labels, IsEmpty());
  EXPECT_FALSE(batches.status.ok());
  EXPECT_THAT(batches.status.message(),
              AllOf(HasSubstr("replacement samples can be read"), HasSubstr("archive.jsonl")));
}

TEST_F(StreamMixtureTest, RequiresSameTensors) {
  write_stream(1, 30);
  configure("num_threads: 1");
  data::fields_in(config_.data["live"]).input = {"x", "y"};
  const auto opened = data::pipeline::open_source("train", config_.data, index_dir(), {});
  EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(opened.status().message(),
              HasSubstr("data.train: data.archive and data.live have different tensors"));
}

TEST_F(StreamMixtureTest, IsNoDatasetWithAnIndex) {
  write_stream(1, 30);
  configure("num_threads: 1");
  const auto opened = data::pipeline::open_dataset("train", config_.data, index_dir(), {});
  EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(opened.status().message(), "data.train: is or contains a stream, which has no index");
}

TEST_F(StreamMixtureTest, FingerprintCoversBoth) {
  write_stream(1, 30);
  configure("num_threads: 1");
  const std::string before = data_->fingerprint();
  write_stream(2, 30);
  configure("num_threads: 1");
  const std::string with_file = data_->fingerprint();
  EXPECT_NE(with_file, before);
  write("archive.jsonl", lines(kFirstArchived, kFirstArchived + kArchived + 1));
  configure("num_threads: 1");
  EXPECT_NE(data_->fingerprint(), with_file);
}

}  // namespace
}  // namespace stoker::feed
