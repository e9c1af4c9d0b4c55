// ring_fixture: shared by the ring tests. A layout, and slot contents that are a pure function of
// the ticket.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "shared/base/file.h"
#include "shared/ring/shm_ring.h"
#include "tests/support/machine_slowness.h"

namespace stoker::ring {

using namespace std::chrono_literals;

inline constexpr auto kPollOnce = 0ns;               // poll once
inline const auto kTestTimeout = test::scaled(60s);  // reached only if the test fails

inline BatchLayout small_layout(int64_t numbers = 20, uint64_t batch = 3) {
  return BatchLayout({{.name = "input", .dtype = DType::kF32, .shape = {numbers}},
                      {.name = "label", .dtype = DType::kI64, .shape = {}}},
                     batch);
}

inline uint8_t byte_for(uint64_t ticket, size_t position) {
  return static_cast<uint8_t>((ticket * 0x9e3779b97f4a7c15ull >> 32) + position * 131 +
                              (position >> 8));
}

inline void fill(std::span<std::byte> slot, uint64_t ticket) {
  for (size_t i = 0; i < slot.size(); ++i) slot[i] = static_cast<std::byte>(byte_for(ticket, i));
}

inline bool holds(std::span<const std::byte> slot, uint64_t ticket) {
  for (size_t i = 0; i < slot.size(); ++i)
    if (slot[i] != static_cast<std::byte>(byte_for(ticket, i))) return false;
  return true;
}

// The bytes of its segment.
inline std::vector<std::byte> bytes_of(const ShmRing& ring) {
  std::vector<std::byte> bytes(static_cast<size_t>(::lseek(ring.fd(), 0, SEEK_END)));
  if (::pread(ring.fd(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  return bytes;
}

inline UniqueFd memfd_of(std::span<const std::byte> bytes,
                         int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  UniqueFd fd(::memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) ||
      ::fcntl(fd.get(), F_ADD_SEALS, seals) != 0)
    std::abort();
  return fd;
}

inline std::unique_ptr<ShmRing> make_ring(const RingOptions& options,
                                          const BatchLayout& layout = small_layout()) {
  auto ring = ShmRing::create(layout, options);
  return ring.ok() ? *std::move(ring) : nullptr;
}

}  // namespace stoker::ring
