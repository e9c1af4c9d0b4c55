#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/feed/stream_state.h"

namespace stoker::feed {
namespace {

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

TEST(StreamState, DecodesOrRejectsChangedBytes) {
  const std::vector<std::byte> encoded = encode_state(make_state());
  for (size_t at = 0; at < encoded.size(); ++at)
    for (const int value : {0, 1, 0x7f, 0xff}) {
      std::vector<std::byte> changed = encoded;
      changed[at] = std::byte(value);
      const auto decoded = decode_state(changed);
      if (decoded) {
        EXPECT_EQ(encode_state(*decoded).size(), changed.size());
      }
    }
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
  StreamState nameless = make_state();
  nameless.sources[1].name.clear();
  EXPECT_EQ(code(nameless), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stoker::feed
