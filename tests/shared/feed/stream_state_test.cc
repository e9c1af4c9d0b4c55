#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/feed/stream_state_table.h"

namespace stoker::feed {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

StreamState make_state() {
  StreamState state;
  state.next_source = 9;
  state.sources = {{.number = 3,
                    .name = "shards/a.tar",
                    .next = {.offset = 4096, .record = 7},
                    .identity = 0x1234,
                    .ended = true},
                   {.number = 8, .name = "b", .next = {}, .identity = 0, .ended = false}};
  state.elements = {{.source = 8, .at = {.offset = 1, .record = 2}},
                    {.source = 3, .at = {.offset = 512, .record = 1}}};
  state.finished = {{.number = 5, .name_hash = 55, .identity = 555},
                    {.number = 4, .name_hash = 44, .identity = 444}};
  state.generator = queue::GeneratorState{.key = 1, .stream = 2, .draws = 3};
  return state;
}

TEST(StreamState, IsTheSameAfterEncoding) {
  for (const StreamState& state : {make_state(), StreamState()}) {
    const auto decoded = decode_state(encode_state(state));
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(*decoded, state);
  }
}

TEST(StreamState, RejectsTruncatedBytes) {
  const std::vector<std::byte> encoded = encode_state(make_state());
  for (size_t size = 0; size < encoded.size(); ++size)
    EXPECT_EQ(decode_state(std::span(encoded).first(size)).status().code(), StatusCode::kCorrupt)
        << size;
  std::vector<std::byte> longer = encoded;
  longer.resize(encoded.size() + 8);
  EXPECT_EQ(decode_state(longer).status().code(), StatusCode::kCorrupt);
}

// Not each change can be noticed: a checkpoint has a checksum. What is decoded is valid.
TEST(StreamState, NeverCrashesOnChangedBytes) {
  const std::vector<std::byte> encoded = encode_state(make_state());
  size_t num_decoded = 0, num_rejected = 0;
  for (size_t at = 0; at < encoded.size(); ++at)
    for (const int value : {0, 1, 0x7f, 0xff}) {
      std::vector<std::byte> changed = encoded;
      changed[at] = std::byte(value);
      const auto decoded = decode_state(changed);
      (decoded ? num_decoded : num_rejected) += 1;
      if (!decoded) continue;
      const auto again = decode_state(encode_state(*decoded));
      EXPECT_TRUE(again.ok()) << "byte " << at;
      EXPECT_EQ(encode_state(*decoded).size(), changed.size());
    }
  EXPECT_GT(num_decoded, 0u);
  EXPECT_GT(num_rejected, 0u);
}

TEST(StreamState, RejectsInputsAndElementsThatDoNotFit) {
  const auto code = [](const StreamState& state) {
    return decode_state(encode_state(state)).status().code();
  };
  StreamState unknown = make_state();
  unknown.elements[0].source = 4;
  EXPECT_EQ(code(unknown), StatusCode::kCorrupt);
  StreamState later = make_state();
  later.next_source = 8;
  EXPECT_EQ(code(later), StatusCode::kCorrupt);
  StreamState twice = make_state();
  twice.sources[1].number = 3;
  EXPECT_EQ(code(twice), StatusCode::kCorrupt);
  StreamState finished = make_state();
  finished.finished[0].number = 9;
  EXPECT_EQ(code(finished), StatusCode::kCorrupt);
  StreamState nameless = make_state();
  nameless.sources[1].name.clear();
  EXPECT_EQ(code(nameless), StatusCode::kCorrupt);
}

// A file that replaced another one of its name was read last: the other one must not be read again,
// and must not make it new.
TEST(StreamState, LastInputOfNameCounts) {
  using data::stream::hash_of_name;
  StreamState state;
  state.next_source = 9;
  state.sources = {{.number = 1, .name = "spool/a", .identity = 10},
                   {.number = 6, .name = "spool/b", .identity = 60},
                   {.number = 7, .name = "spool/c", .identity = 70}};
  state.finished = {{.number = 5, .name_hash = hash_of_name("a"), .identity = 50},
                    {.number = 4, .name_hash = hash_of_name("a"), .identity = 40},
                    {.number = 3, .name_hash = hash_of_name("b"), .identity = 30}};
  EXPECT_THAT(taken_files(state),
              UnorderedElementsAre(Pair(hash_of_name("a"), 50), Pair(hash_of_name("b"), 60),
                                   Pair(hash_of_name("c"), 70)));
  EXPECT_THAT(finished_files(state), UnorderedElementsAre(Pair(hash_of_name("a"), 50)));
}

// What a worker has read of a pipe before the first record of a mixture is in a batch.
TEST(StreamState, NeedsAllBytesBeforeItHasStarted) {
  std::vector<uint64_t> memory(100);
  const data::stream::ByteHistory history(std::as_writable_bytes(std::span(memory)));
  const std::vector<std::byte> read(30, std::byte{7});
  history.assign(0, read, 20);
  EXPECT_FALSE(StreamState().has_started());
  ASSERT_EQ(first_needed(StreamState()), 0u);
  const StreamHistory saved = copy_history(history, 0);
  EXPECT_EQ(saved.begin, 0u);
  EXPECT_EQ(saved.complete, 20u);
  EXPECT_EQ(saved.bytes, read);
  const StreamState ended{.next_source = 1};
  EXPECT_EQ(first_needed(ended), std::nullopt);
}

TEST(StreamStateTable, KeepsStateOfEachSlot) {
  const auto table = StreamStateTable::create(2, 10);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  const auto worker = StreamStateTable::attach(UniqueFd(::dup(table->fd())));
  ASSERT_TRUE(worker.ok()) << worker.status().to_string();
  StreamState state = make_state();
  for (uint64_t ticket = 5; ticket < 8; ++ticket) {
    state.next_source = 100 + ticket;
    ASSERT_TRUE(worker->record(ticket, state).ok());
  }
  EXPECT_EQ(table->read(5).status().code(), StatusCode::kCorrupt);  // replaced by that of 7
  ASSERT_TRUE(table->read(7).ok());
  EXPECT_EQ(*table->read(7), state);
  EXPECT_EQ(table->read(6)->next_source, 106u);
  EXPECT_EQ(table->end_ticket(), std::nullopt);
  worker->end_at(8);
  EXPECT_EQ(table->end_ticket(), 8u);
}

TEST(StreamStateTable, PassesInitialState) {
  const auto table = StreamStateTable::create(2, 10);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  const auto worker = StreamStateTable::attach(UniqueFd(::dup(table->fd())));
  ASSERT_TRUE(worker.ok()) << worker.status().to_string();
  EXPECT_EQ(*worker->initial(), std::nullopt);
  worker->end_at(1);
  ASSERT_TRUE(table->set_initial(make_state()).ok());
  EXPECT_EQ(*worker->initial(), make_state());
  EXPECT_EQ(table->end_ticket(), std::nullopt);  // of the worker before
  ASSERT_TRUE(table->set_initial(std::nullopt).ok());
  EXPECT_EQ(*worker->initial(), std::nullopt);
}

TEST(StreamStateTable, RejectsStateThatIsTooLarge) {
  const auto table = StreamStateTable::create(1, 1);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  StreamState state;
  state.next_source = 1000;
  for (uint64_t i = 0; i < 1000; ++i)
    state.sources.push_back({.number = i, .name = std::string(2000, 'x')});
  const Status status = table->record(0, state);
  EXPECT_EQ(status.code(), StatusCode::kNoSpace);
  EXPECT_THAT(status.message(), HasSubstr("stream.capacity"));
}

// A spool folder has them until a checkpoint archives them.
TEST(StreamStateTable, KeepsManyFinishedFiles) {
  const auto table = StreamStateTable::create(1, 1);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  StreamState state;
  state.next_source = 1'000'000;
  const auto finish_until = [&state](uint64_t count) {
    while (state.finished.size() < count) {
      const uint64_t number = state.finished.size();
      state.finished.push_back({.number = number, .name_hash = ~number, .identity = 7});
    }
  };
  finish_until(40'000);
  ASSERT_TRUE(table->record(0, state).ok());
  EXPECT_EQ(*table->read(0), state);
  finish_until(50'000);
  const Status status = table->record(0, state);
  EXPECT_EQ(status.code(), StatusCode::kNoSpace);
  EXPECT_THAT(status.message(), HasSubstr("50000 files of the spool folder"));
}

TEST(StreamStateTable, PassesReportsOfWorker) {
  const auto table = StreamStateTable::create(2, 10);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->waits_for(), "");
  table->set_waits_for("stdin of pid 7");
  EXPECT_EQ(table->waits_for(), "stdin of pid 7");
  EXPECT_FALSE(table->is_receiving());
  table->set_receiving(true);
  EXPECT_TRUE(table->is_receiving());
  ASSERT_TRUE(table->set_initial(std::nullopt).ok());
  EXPECT_EQ(table->waits_for(), "");
  EXPECT_FALSE(table->is_receiving());
}

TEST(StreamStateTable, PassesThreadsOfQueues) {
  const auto table = StreamStateTable::create(2, 10);
  ASSERT_TRUE(table.ok());
  ThreadList list;
  list.threads.push_back({.name = "stream-report"});  // works for no queue
  for (int i = 0; i < 300; ++i)
    list.threads.push_back({.name = "examples/enqueue-" + std::to_string(i),
                            .tid = 100 + i,
                            .queue = "examples",
                            .operation = "enqueue\t7",
                            .state = ThreadState::kWaiting,
                            .since = std::chrono::nanoseconds(12345)});
  table->set_threads(list);
  const ThreadList passed = table->threads();
  ASSERT_THAT(passed.threads, SizeIs(StreamStateTable::kMaxThreads));
  EXPECT_EQ(passed.threads[7].name, "examples/enqueue-7");
  EXPECT_EQ(passed.threads[7].queue, "examples");
  EXPECT_EQ(passed.threads[7].operation, "enqueue?7");
  EXPECT_EQ(passed.threads[7].state, ThreadState::kWaiting);
  EXPECT_EQ(passed.threads[7].since, std::chrono::nanoseconds(12345));
  EXPECT_EQ(passed.threads[7].tid, 107);
  EXPECT_TRUE(passed.threads[7].is_queue_thread);
  ASSERT_TRUE(table->set_initial(std::nullopt).ok());
  EXPECT_THAT(table->threads().threads, IsEmpty());
}

TEST(StreamStateTable, RejectsSegmentThatIsNoTable) {
  const auto segment = ring::Segment::create(1 << 16);
  ASSERT_TRUE(segment.ok()) << segment.status().to_string();
  EXPECT_EQ(StreamStateTable::attach(UniqueFd(::dup(segment->fd()))).status().code(),
            StatusCode::kMismatch);
}

TEST(StreamStateTable, RejectsEntryThatWorkerOverwrote) {
  const auto table = StreamStateTable::create(1, 1);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  ASSERT_TRUE(table->record(0, make_state()).ok());
  const auto segment = ring::Segment::attach(UniqueFd(::dup(table->fd())));
  ASSERT_TRUE(segment.ok()) << segment.status().to_string();
  std::ranges::fill(segment->bytes(), std::byte{0xff});
  EXPECT_EQ(table->read(0).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stoker::feed
