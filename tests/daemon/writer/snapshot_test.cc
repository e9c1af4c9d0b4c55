#include "daemon/writer/snapshot.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::writer {
namespace {

TensorSpec floats(const std::string& name, int64_t count) { return {name, DType::kF32, {count}}; }

TEST(SnapshotTest, AssignsEachTensorToFileOfItsComponent) {
  Snapshot snapshot;
  snapshot.begin();
  std::ranges::fill(snapshot.add(Part::kModel, floats("w", 3)), std::byte{1});
  std::ranges::fill(snapshot.add(Part::kOptimizer, floats("w.momentum", 3)), std::byte{2});
  std::ranges::fill(snapshot.add(Part::kTrainerState, floats("rng", 5)), std::byte{3});
  std::ranges::fill(snapshot.add(Part::kModel, floats("b", 1)), std::byte{4});
  const auto content = snapshot.content();
  ASSERT_EQ(content.model.size(), 2u);
  EXPECT_EQ(content.model[0].spec.name, "w");
  EXPECT_EQ(content.model[1].spec.name, "b");
  EXPECT_EQ(content.model[1].bytes[3], std::byte{4});
  ASSERT_EQ(content.optim.size(), 1u);
  EXPECT_EQ(content.optim[0].bytes.size(), 12u);
  ASSERT_EQ(content.state.size(), 1u);
  EXPECT_EQ(snapshot.bytes(), 4u * (3 + 3 + 5 + 1));
}

TEST(SnapshotTest, PinsReservedMemoryForItsLifetimeWhenDriverAccepts) {
  std::set<void*> pinned;
  bool agrees = true;
  {
    Snapshot snapshot({.pin =
                           [&](void* bytes, size_t size) {
                             EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 4096, 0u);
                             EXPECT_EQ(size % 4096, 0u);
                             return agrees && pinned.insert(bytes).second;
                           },
                       .unpin = [&](void* bytes) { EXPECT_EQ(pinned.erase(bytes), 1u); }});
    const auto fill = [&](int64_t count) {
      snapshot.begin();
      std::ranges::fill(snapshot.add(Part::kModel, floats("small", 4)), std::byte{1});
      std::ranges::fill(snapshot.add(Part::kModel, floats("large", count)), std::byte{1});
    };
    snapshot.reserve(Snapshot::aligned(16) + 4 * 1000000);
    const auto reserved = pinned;
    EXPECT_EQ(reserved.size(), 1u);
    fill(1000000);
    EXPECT_EQ(pinned, reserved) << "nothing more is allocated";
    fill(2000000);
    EXPECT_EQ(pinned.size(), 2u);
    const auto grown = pinned;
    EXPECT_TRUE(std::ranges::includes(grown, reserved))
        << "the reserved block is never pinned again";
    fill(2100000);
    EXPECT_EQ(pinned, grown) << "what did not fit has its block, with room to grow";
    for (int64_t count = 4000000; count < 60000000; count *= 2) fill(count);
    EXPECT_LE(pinned.size(), 4u) << "blocks that became too small are dropped";
    EXPECT_TRUE(std::ranges::includes(pinned, reserved));
    agrees = false;
    snapshot.reserve(400000000);
    EXPECT_EQ(pinned.size(), 0u);
    fill(2000000);
  }
  EXPECT_TRUE(pinned.empty());
}

TEST(SnapshotTest, PoisonsMemoryBeforeReuseAndBeforeItIsUnpinned) {
  std::vector<std::string> calls;
  {
    Snapshot snapshot({.pin = [](void*, size_t) { return true; },
                       .unpin = [&](void*) { calls.emplace_back("unpin"); },
                       .poison =
                           [&](void* bytes, size_t size) {
                             std::memset(bytes, 0xff, size);
                             calls.push_back("poison " + std::to_string(size));
                           }});
    snapshot.reserve(100);
    snapshot.begin();
    snapshot.reserve(5000);
    EXPECT_EQ(calls, (std::vector<std::string>{"poison 4096", "poison 4096", "unpin"}));
    calls.clear();
  }
  EXPECT_EQ(calls, (std::vector<std::string>{"poison 8192", "unpin"}));
}

TEST(SnapshotTest, ReusesMemoryOfPreviousSnapshot) {
  Snapshot snapshot;
  snapshot.begin();
  const std::byte* const first = snapshot.add(Part::kModel, floats("w", 1000)).data();
  const std::byte* const second = snapshot.add(Part::kOptimizer, floats("m", 1000)).data();
  snapshot.begin();
  EXPECT_EQ(snapshot.bytes(), 0u);
  EXPECT_EQ(snapshot.add(Part::kModel, floats("w", 1000)).data(), first);
  EXPECT_EQ(snapshot.add(Part::kOptimizer, floats("m", 900)).data(), second);
}

TEST(SnapshotTest, PreservesFilledTensorsWhenMoreAreAdded) {
  Snapshot snapshot;
  snapshot.begin();
  for (int i = 0; i < 100; ++i)
    std::ranges::fill(snapshot.add(Part::kModel, floats("t" + std::to_string(i), 16)),
                      static_cast<std::byte>(i));
  const auto content = snapshot.content();
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(content.model[i].bytes[0], static_cast<std::byte>(i));
}

}  // namespace
}  // namespace stoker::writer
