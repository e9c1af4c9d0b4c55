// A producer written only from docs/ring-layout.md: it uses offsets and numbers, and no types of
// the ring. If this test fails and the ring's own tests pass, the document is wrong.
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "shared/ring/shm_ring.h"

namespace stoker::ring {
namespace {

using std::chrono::seconds;

class DocumentedProducer {
 public:
  DocumentedProducer(int fd, uint64_t row, uint64_t generation)
      : row_(row), generation_(generation) {
    struct stat info {};
    EXPECT_EQ(::fstat(fd, &info), 0);
    bytes_ = static_cast<size_t>(info.st_size);
    base_ =
        static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    EXPECT_NE(static_cast<void*>(base_), MAP_FAILED);
  }
  ~DocumentedProducer() { ::munmap(base_, bytes_); }

  template <typename T>
  T* at(uint64_t position) {
    return reinterpret_cast<T*>(base_ + position);
  }
  uint64_t u64(uint64_t position) {
    return __atomic_load_n(at<uint64_t>(position), __ATOMIC_SEQ_CST);
  }
  uint32_t u32(uint64_t position) {
    return __atomic_load_n(at<uint32_t>(position), __ATOMIC_SEQ_CST);
  }
  uint64_t slot_word(uint64_t ticket) { return u64(u64(96) + 64 * (ticket % u64(24))); }
  std::byte* slot(uint64_t ticket) { return base_ + u64(120) + ticket % u64(24) * u64(48); }
  uint64_t producer_row() { return u64(104) + 64 * row_; }

  bool alive() { return u64(producer_row()) == (generation_ << 32 | 1); }

  std::optional<uint64_t> try_poll() {
    if (u32(320) == 1 || !alive()) return std::nullopt;
    __atomic_fetch_add(at<uint64_t>(producer_row() + 40), 1, __ATOMIC_RELAXED);
    const uint64_t next = u64(128);
    for (uint64_t ticket = next; ticket < std::min(next + u64(24), u64(64)); ++ticket)
      if (change(ticket, 1, claimed(ticket)) || change(ticket, 5, claimed(ticket))) {
        if (alive()) return ticket;
        replace(ticket, claimed(ticket), plain(ticket, 5));
        return std::nullopt;
      }
    return std::nullopt;
  }

  std::optional<uint64_t> try_claim() {
    for (int tries = 0; tries < 100 && u32(320) == 0 && alive(); ++tries) {
      if (const auto ticket = try_poll()) return ticket;
      add32(196, 1);
      const uint32_t epoch = u32(192);
      add32(producer_row() + 12, 1);
      const auto ticket = try_poll();
      const timespec max_wait{.tv_sec = 0, .tv_nsec = 100'000'000};
      if (!ticket)
        ::syscall(SYS_futex, at<uint32_t>(192), FUTEX_WAIT, epoch, &max_wait, nullptr, 0);
      add32(producer_row() + 12, -1u);
      add32(196, -1u);
      if (ticket) return ticket;
    }
    return std::nullopt;
  }

  bool publish(uint64_t ticket) {
    if (!replace(ticket, claimed(ticket), plain(ticket, 3))) return false;
    __atomic_fetch_add(at<uint64_t>(producer_row() + 48), 1, __ATOMIC_RELAXED);
    if (ticket != u64(128)) return true;
    add32(256, 1);
    if (u32(260) > 0)
      ::syscall(SYS_futex, at<uint32_t>(256), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return true;
  }

  void note_sample() { __atomic_fetch_add(at<uint64_t>(producer_row() + 56), 1, __ATOMIC_RELAXED); }

  void report(uint64_t ticket, uint64_t sample, const std::string& reason) {
    __atomic_fetch_add(at<uint64_t>(392), 1, __ATOMIC_RELAXED);
    for (uint64_t entry = u64(112); entry < u64(112) + uint64_t{256} * 256; entry += 256) {
      uint64_t expected = 0;
      if (!__atomic_compare_exchange_n(at<uint64_t>(entry), &expected, ticket << 4 | 1, false,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        continue;
      *at<uint64_t>(entry + 8) = ticket;
      *at<uint64_t>(entry + 16) = sample;
      *at<uint32_t>(entry + 24) = 7;
      *at<uint32_t>(entry + 28) = static_cast<uint32_t>(reason.size());
      std::memcpy(at<char>(entry + 32), reason.data(), reason.size());
      const uint64_t number = __atomic_fetch_add(at<uint64_t>(408), 1, __ATOMIC_RELAXED);
      expected = ticket << 4 | 1;
      __atomic_compare_exchange_n(at<uint64_t>(entry), &expected, number << 4 | 2, false,
                                  __ATOMIC_RELEASE, __ATOMIC_RELAXED);
      return;
    }
  }

 private:
  uint64_t plain(uint64_t ticket, uint64_t phase) { return ticket / u64(24) << 32 | phase; }
  uint64_t claimed(uint64_t ticket) {
    return ticket / u64(24) << 32 | generation_ << 12 | row_ << 4 | 2;
  }
  bool replace(uint64_t ticket, uint64_t from, uint64_t to) {
    return __atomic_compare_exchange_n(at<uint64_t>(u64(96) + 64 * (ticket % u64(24))), &from, to,
                                       false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  }
  bool change(uint64_t ticket, uint64_t phase, uint64_t to) {
    return replace(ticket, plain(ticket, phase), to);
  }
  void add32(uint64_t position, uint32_t by) {
    __atomic_fetch_add(at<uint32_t>(position), by, __ATOMIC_SEQ_CST);
  }

  const uint64_t row_, generation_;
  size_t bytes_ = 0;
  std::byte* base_ = nullptr;
};

// The example of the document: ticket 10, row 1 with generation 3.
class RingLayoutDocumentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const BatchLayout layout({{.name = "input", .dtype = DType::kU8, .shape = {3, 32, 32}},
                              {.name = "label", .dtype = DType::kI64, .shape = {}}},
                             64);
    auto made = ShmRing::create(layout, {.slots = 4, .first_ticket = 10, .end_ticket = 40});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    ring_ = *std::move(made);
    ASSERT_TRUE(ring_->add_producer("row 0").ok());
    for (uint32_t generation = 1; generation <= 3; ++generation) {
      const auto id = ring_->add_producer("documented");
      ASSERT_TRUE(id.ok());
      ASSERT_EQ(id->index, 1u);
      ASSERT_EQ(id->generation, generation);
      if (generation < 3) ring_->requeue(*id);
    }
    producer_ = std::make_unique<DocumentedProducer>(ring_->fd(), 1, 3);
  }

  std::unique_ptr<ShmRing> ring_;
  std::unique_ptr<DocumentedProducer> producer_;
};

TEST_F(RingLayoutDocumentTest, MatchesOffsetsOfDocumentedExample) {
  DocumentedProducer& p = *producer_;
  EXPECT_EQ(std::memcmp(p.at<char>(0), "STOKRING", 8), 0);
  EXPECT_EQ(p.u32(8), 2u);
  EXPECT_EQ(p.u32(12), 448u);
  EXPECT_EQ(p.u64(16), 864256u);
  EXPECT_EQ(p.u64(24), 4u);
  EXPECT_EQ(p.u64(32), 64u);
  EXPECT_EQ(p.u64(40), 197120u);
  EXPECT_EQ(p.u64(48), 197120u);
  EXPECT_EQ(p.u64(56), 10u);
  EXPECT_EQ(p.u64(64), 40u);
  EXPECT_EQ(p.u32(72), 2u);
  EXPECT_EQ(p.u32(76), 64u);
  EXPECT_EQ(p.u32(80), 256u);
  const uint64_t tables[] = {448, 704, 960, 5056, 73728};
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(p.u64(88 + 8 * i), tables[i]);
  const uint64_t label = 448 + 128;
  EXPECT_STREQ(p.at<char>(label), "label");
  EXPECT_EQ(p.u32(label + 32), 4u);
  EXPECT_EQ(p.u32(label + 36), 0u);
  EXPECT_EQ(p.u64(label + 104), 196608u);
  EXPECT_EQ(p.u64(label + 112), 8u);
  EXPECT_EQ(p.u64(448 + 40 + 8), 32u);
}

TEST_F(RingLayoutDocumentTest, MatchesDocumentedSlotWordStates) {
  ASSERT_EQ(producer_->try_claim(), std::optional<uint64_t>(10));
  EXPECT_EQ(producer_->slot_word(10), 0x0000000200003012u);
  const int64_t label = 77;
  std::memcpy(producer_->at<std::byte>(664616), &label, sizeof(label));
  ASSERT_TRUE(producer_->publish(10));
  EXPECT_EQ(producer_->slot_word(10), 0x0000000200000003u);
  const auto batch = ring_->pop(seconds(60));
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(producer_->slot_word(10), 0x0000000200000004u);
  const auto labels = ring_->layout().tensor_bytes(batch->slot, 1);
  EXPECT_EQ(std::memcmp(labels.data() + 5 * sizeof(label), &label, sizeof(label)), 0);
  ring_->release(batch->ticket);
  EXPECT_EQ(producer_->slot_word(10), 0x0000000300000001u);
}

TEST_F(RingLayoutDocumentTest, ReportsHeartbeatOfDocumentedProducer) {
  ASSERT_EQ(producer_->try_claim(), std::optional<uint64_t>(10));
  producer_->note_sample();
  producer_->note_sample();
  const auto progress = ring_->progress({.index = 1, .generation = 3});
  EXPECT_EQ(progress.samples, 2u);
  EXPECT_EQ(progress.claims, 1u);
  EXPECT_GE(progress.polls, 1u);
}

TEST_F(RingLayoutDocumentTest, FillsRingUntilClosedWithDocumentedProducer) {
  std::jthread thread([this] {
    for (uint64_t made = 0; made < 30; ++made) {
      const auto ticket = producer_->try_claim();
      if (!ticket) return;
      std::memset(producer_->slot(*ticket), static_cast<int>(*ticket), 197120);
      if (*ticket == 12) producer_->report(12, 345, "bad magic");
      if (!producer_->publish(*ticket)) return;
    }
  });
  for (uint64_t ticket = 10; ticket < 40; ++ticket) {
    const auto batch = ring_->pop(seconds(60));
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    EXPECT_EQ(batch->ticket, ticket);
    EXPECT_EQ(batch->slot.front(), std::byte(ticket));
    EXPECT_EQ(batch->slot.back(), std::byte(ticket));
    ring_->release(ticket);
  }
  EXPECT_EQ(ring_->pop(seconds(1)).status().code(), StatusCode::kClosed);
  const auto error = ring_->drain_sample_errors();
  ASSERT_EQ(error.size(), 1u);
  EXPECT_EQ(error[0].ticket, 12u);
  EXPECT_EQ(error[0].sample, 345u);
  EXPECT_EQ(error[0].code, StatusCode::kCorrupt);
  EXPECT_EQ(error[0].reason, "bad magic");
}

TEST_F(RingLayoutDocumentTest, DeniesClaimsAndPublishAfterProducerIsRequeued) {
  ASSERT_EQ(producer_->try_claim(), std::optional<uint64_t>(10));
  EXPECT_EQ(ring_->requeue({.index = 1, .generation = 3}), 1u);
  EXPECT_FALSE(producer_->publish(10));
  EXPECT_EQ(producer_->slot_word(10), 0x0000000200000005u);
  EXPECT_EQ(producer_->try_claim(), std::nullopt);
}

}  // namespace
}  // namespace stoker::ring
