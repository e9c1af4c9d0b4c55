// The state of a stream in a checkpoint.
#include "daemon/train/stream_tensors.h"

#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::train {
namespace {

feed::StreamState some_state() {
  feed::StreamState state;
  state.next_source = 9;
  state.sources = {
      {.number = 3,
       .name = "a.jsonl",
       .next = {.offset = 70, .record = 7},
       .identity = 11,
       .ended = true},
      {.number = 8, .name = "b", .next = {.offset = 5, .record = 1}, .identity = ~uint64_t{0}}};
  state.elements = {{.source = 8, .at = {.offset = 0, .record = 0}},
                    {.source = 3, .at = {.offset = 60, .record = 6}}};
  state.finished = {{.number = 2, .name_hash = ~uint64_t{0}, .identity = 12},
                    {.number = 5, .name_hash = 13, .identity = 0}};
  state.generator = queue::GeneratorState{.key = 1, .stream = 2, .draws = 3};
  return state;
}

// The tensors of a snapshot, which a test can change.
class TensorsOfSnapshot final : public checkpoint::TensorSource {
 public:
  explicit TensorsOfSnapshot(const feed::StreamState& state,
                             const std::optional<feed::StreamHistory>& history = std::nullopt) {
    add_stream(snapshot_, state);
    if (history) add_history(snapshot_, *history);
    for (const checkpoint::TensorView& view : snapshot_.content().state) {
      specs_.push_back(view.spec);
      bytes_.emplace(view.spec.name, std::vector(view.bytes.begin(), view.bytes.end()));
    }
  }
  const std::vector<TensorSpec>& tensors() const override { return specs_; }
  const TensorSpec* find(const std::string& name) const override {
    for (const TensorSpec& spec : specs_)
      if (spec.name == name) return &spec;
    return nullptr;
  }
  Status read(const std::string& name, std::span<std::byte> out) const override {
    std::memcpy(out.data(), bytes_.at(name).data(), out.size());
    return {};
  }
  void set(const std::string& name, size_t index, uint64_t value) {
    std::memcpy(bytes_.at(name).data() + index * sizeof value, &value, sizeof value);
  }
  void remove(const std::string& name) {
    std::erase_if(specs_, [&](const TensorSpec& spec) { return spec.name == name; });
  }

 private:
  writer::Snapshot snapshot_;
  std::vector<TensorSpec> specs_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

TEST(StreamTensorsTest, RestoreState) {
  feed::StreamState ended;
  ended.next_source = 2;
  for (const feed::StreamState& state : {some_state(), ended, feed::StreamState()}) {
    const auto restored = read_stream(TensorsOfSnapshot(state));
    ASSERT_TRUE(restored.ok()) << restored.status().to_string();
    EXPECT_EQ(*restored, state);
  }
}

TEST(StreamTensorsTest, RestoreHistory) {
  const feed::StreamHistory some{
      .begin = 100, .complete = 102, .bytes = {std::byte{1}, std::byte{2}, std::byte{3}}};
  const feed::StreamHistory none{.begin = 7, .complete = 7, .bytes = {}};
  for (const feed::StreamHistory& history : {some, none}) {
    const auto restored = read_history(TensorsOfSnapshot(some_state(), history));
    ASSERT_TRUE(restored.ok()) << restored.status().to_string();
    EXPECT_EQ(*restored, history);
  }
  const auto missing = read_history(TensorsOfSnapshot(some_state()));
  ASSERT_TRUE(missing.ok()) << missing.status().to_string();
  EXPECT_FALSE(missing->has_value());
  for (const auto& [index, value] :
       {std::pair<size_t, uint64_t>{0, uint64_t{1} << 63}, {1, 104}, {1, ~uint64_t{0}}}) {
    TensorsOfSnapshot tensors(some_state(), some);
    tensors.set("stream.history_range", index, value);
    EXPECT_EQ(read_history(tensors).status().code(), StatusCode::kCorrupt) << index << ' ' << value;
  }
}

TEST(StreamTensorsTest, RestoreNothingWithoutStream) {
  TensorsOfSnapshot tensors(some_state());
  for (const char* const name :
       {"next_source", "sources", "names", "queue", "finished", "generator"})
    tensors.remove(std::string("stream.") + name);
  const auto restored = read_stream(tensors);
  ASSERT_TRUE(restored.ok()) << restored.status().to_string();
  EXPECT_FALSE(restored->has_value());
}

TEST(StreamTensorsTest, RejectInconsistentTensors) {
  const auto expect_corrupt = [](const std::string& what, auto change) {
    TensorsOfSnapshot tensors(some_state());
    change(tensors);
    EXPECT_EQ(read_stream(tensors).status().code(), StatusCode::kCorrupt) << what;
  };
  expect_corrupt("no names", [](auto& tensors) { tensors.remove("stream.names"); });
  expect_corrupt("no inputs", [](auto& tensors) {
    tensors.remove("stream.names");
    tensors.remove("stream.sources");
  });
  expect_corrupt("unknown input", [](auto& tensors) { tensors.set("stream.queue", 0, 4); });
  expect_corrupt("large offset",
                 [](auto& tensors) { tensors.set("stream.queue", 1, ~uint64_t{0}); });
  expect_corrupt("finished input", [](auto& tensors) { tensors.set("stream.finished", 0, 9); });
  expect_corrupt("input order", [](auto& tensors) { tensors.set("stream.sources", 0, 8); });
}

}  // namespace
}  // namespace stoker::train
