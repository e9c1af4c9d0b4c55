// RingView: another mapping of a ring's segment that reads and writes any field, as a faulty
// producer can.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include <gtest/gtest.h>

#include "shared/ring/ring_layout.h"
#include "shared/ring/shm_ring.h"

namespace stoker::ring {

class RingView {
 public:
  explicit RingView(const ShmRing& ring) : RingView(ring.fd()) {}
  explicit RingView(int fd) {
    RingHeader constants{};
    EXPECT_EQ(::pread(fd, &constants, sizeof constants, 0), static_cast<ssize_t>(sizeof constants));
    bytes_ = constants.segment_bytes;
    void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_NE(memory, MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
  }
  ~RingView() { ::munmap(memory_, bytes_); }
  RingView(const RingView&) = delete;
  RingView& operator=(const RingView&) = delete;

  RingHeader& header() const { return *reinterpret_cast<RingHeader*>(memory_); }
  uint64_t& slot_word(uint64_t ticket) const {
    return table<SlotRecord>(header().slot_table)[ticket % header().slots].word;
  }
  ProducerRecord& producer(uint32_t index) const {
    return table<ProducerRecord>(header().producer_table)[index];
  }
  ReportRecord& report(uint32_t index) const {
    return table<ReportRecord>(header().report_table)[index];
  }
  std::span<std::byte> slot(uint64_t ticket) const {
    const RingHeader& constants = header();
    return {memory_ + constants.payload + ticket % constants.slots * constants.slot_stride,
            constants.slot_bytes};
  }

 private:
  template <typename T>
  T* table(uint64_t offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }

  size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
};

template <typename T>
void overwrite(T& field, T value) {
  std::atomic_ref(field).store(value);
}

}  // namespace stoker::ring
