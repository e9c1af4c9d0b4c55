// Tests attach() and pop() with segments that are not valid rings.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "shared/ring/ring_layout.h"
#include "shared/ring/shm_ring.h"
#include "tests/shared/ring/ring_fixture.h"
#include "tests/support/test_seed.h"

namespace stoker::ring {
namespace {

// The bytes of a small valid ring, to be corrupted by a test.
std::vector<std::byte> good_bytes() { return bytes_of(*make_ring({.slots = 2})); }

StatusCode attach_code(std::span<const std::byte> bytes) {
  return ShmRing::attach(memfd_of(bytes)).status().code();
}

TEST(RingAttachTest, AttachesSameRingThroughAnotherMapping) {
  const auto ring = make_ring({.slots = 2, .first_ticket = 9});
  auto attached = ShmRing::attach(UniqueFd(::fcntl(ring->fd(), F_DUPFD_CLOEXEC, 0)));
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_EQ((*attached)->layout().sample(), small_layout().sample());
  EXPECT_EQ((*attached)->layout().batch(), 3u);
  EXPECT_EQ((*attached)->slots(), 2u);
  const auto producer = ring->add_producer("reader");
  const auto claim = (*attached)->claim(*producer, kPollOnce);
  ASSERT_TRUE(claim.ok());
  fill(claim->slot, claim->ticket);
  EXPECT_TRUE((*attached)->publish(*producer, *claim));
  const auto batch = ring->pop(kPollOnce);
  ASSERT_TRUE(batch.ok());
  EXPECT_TRUE(holds(batch->slot, 9));
  EXPECT_FALSE(holds(batch->slot, 10));
}

TEST(RingAttachTest, AttachesToValidBytes) {
  EXPECT_EQ(attach_code(good_bytes()), StatusCode::kOk);
}

TEST(RingAttachTest, RejectsNonRingDescriptors) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(ShmRing::attach(UniqueFd(ends[0])).status().code(), StatusCode::kMismatch);
  EXPECT_EQ(ShmRing::attach(UniqueFd(ends[1])).status().code(), StatusCode::kMismatch);
  EXPECT_EQ(ShmRing::attach(UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC))).status().code(),
            StatusCode::kMismatch);
  EXPECT_EQ(
      ShmRing::attach(UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC))).status().code(),
      StatusCode::kMismatch);
  EXPECT_EQ(ShmRing::attach(UniqueFd()).status().code(), StatusCode::kMismatch);
}

TEST(RingAttachTest, RejectsFileWithoutShrinkSeal) {
  EXPECT_EQ(ShmRing::attach(memfd_of(good_bytes(), F_SEAL_GROW)).status().code(),
            StatusCode::kMismatch);
}

TEST(RingAttachTest, RejectsAnyTruncation) {
  const auto bytes = good_bytes();
  for (const size_t length :
       {size_t{1}, size_t{8}, size_t{127}, sizeof(RingHeader) - 1, sizeof(RingHeader),
        sizeof(RingHeader) + 100, size_t{4096}, bytes.size() - 4096, bytes.size() - 1})
    EXPECT_EQ(attach_code(std::span(bytes).first(length)), StatusCode::kMismatch) << length;
}

TEST(RingAttachTest, RejectsChangedByteInConstantRegion) {
  const auto good = good_bytes();
  const size_t table_end = sizeof(RingHeader) + 2 * sizeof(TensorRecord);
  for (size_t at = 0; at < table_end; ++at) {
    // Atomic fields, which change during use.
    if (at >= offsetof(RingHeader, next_ticket) && at < sizeof(RingHeader)) continue;
    // Other tickets, names and types can also be valid.
    if (at >= offsetof(RingHeader, first_ticket) && at < offsetof(RingHeader, tensors)) continue;
    const size_t in_record =
        at < sizeof(RingHeader) ? 0 : (at - sizeof(RingHeader)) % sizeof(TensorRecord);
    if (at >= sizeof(RingHeader) && in_record < 36) continue;
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      auto bytes = good;
      if (bytes[at] == static_cast<std::byte>(value)) continue;
      bytes[at] = static_cast<std::byte>(value);
      EXPECT_EQ(attach_code(bytes), StatusCode::kMismatch) << "byte " << at << " = " << value;
    }
  }
}

TEST(RingAttachTest, NeverCrashesOnRandomHeaders) {
  std::mt19937_64 random(test::test_seed() + 7);
  const auto good = good_bytes();
  for (int round = 0; round < 500; ++round) {
    auto bytes = good;
    const size_t changes = 1 + random() % 6;
    for (size_t i = 0; i < changes; ++i)
      bytes[random() % (sizeof(RingHeader) + 2 * sizeof(TensorRecord))] =
          static_cast<std::byte>(random());
    auto ring = ShmRing::attach(memfd_of(bytes));
    if (!ring.ok()) continue;
    (*ring)->counters();
    (*ring)->pop(kPollOnce).status();
    (*ring)->claim({.index = 0, .generation = 1}, kPollOnce).status();
    (*ring)->drain_sample_errors();
  }
}

TEST(RingAttachTest, NeverCrashesConsumerOnGarbageTables) {
  std::mt19937_64 random(test::test_seed() + 11);
  for (int round = 0; round < 200; ++round) {
    auto bytes = good_bytes();
    RingHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    for (uint64_t at = header.slot_table; at < header.payload; ++at)
      if (random() % 4 == 0) bytes[at] = static_cast<std::byte>(random());
    auto ring = ShmRing::attach(memfd_of(bytes));
    ASSERT_TRUE(ring.ok());
    if (const auto batch = (*ring)->pop(kPollOnce); batch.ok()) (*ring)->release(batch->ticket);
    for (const auto& error : (*ring)->drain_sample_errors()) {
      EXPECT_LE(error.reason.size(), 200u);
      EXPECT_NE(to_string(error.code), "");
    }
    for (uint32_t index = 0; index < kMaxProducers; ++index)
      (*ring)->requeue({.index = index, .generation = 1});
    (*ring)->add_producer("after").status();
    (*ring)->counters();
    (*ring)->close();
  }
}

TEST(RingAttachTest, ReportsCorruptSlotTableWithoutBlocking) {
  auto bytes = good_bytes();
  RingHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::memset(bytes.data() + header.slot_table, 0x5a, sizeof(SlotRecord));
  auto ring = ShmRing::attach(memfd_of(bytes));
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ((*ring)->pop(kTestTimeout).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stoker::ring
