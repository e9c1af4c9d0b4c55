// Bytes per second that a producer process writes to the ring, copying each batch from memory,
// compared with the bare copy of the same number of bytes to buffers of the same size. The consumer
// reads batches in place and releases them without copying.
#include <cstring>
#include <memory>
#include <vector>

#include "bench/benches.h"
#include "bench/ring_run.h"
#include "bench/stopwatch.h"

namespace stoker::bench {
namespace {

constexpr uint64_t kSlots = 4;
using Bytes = std::vector<std::byte>;

RingRun copies_of(const std::shared_ptr<Bytes>& source) {
  return {
      .layout = ring::BatchLayout(
          {{.name = "x", .dtype = DType::kU8, .shape = {static_cast<int64_t>(source->size())}}}, 1),
      .slots = kSlots,
      .producer = Side::kProcess,
      .fill = [source](std::span<std::byte> slot) {
        std::memcpy(slot.data(), source->data(), source->size());
      }};
}

Result<double> ring_gigabytes(const std::shared_ptr<Bytes>& source, std::chrono::nanoseconds time) {
  STOKER_ASSIGN_OR_RETURN(const double batches, batches_per_second(copies_of(source), time));
  return batches * static_cast<double>(source->size()) / 1e9;
}

Result<double> copy_gigabytes(const Bytes& source, Bytes& target, std::chrono::nanoseconds time) {
  const Stopwatch watch;
  uint64_t copies = 0;
  do {
    std::byte* slot = target.data() + copies % kSlots * source.size();
    std::memcpy(slot, source.data(), source.size());
    asm volatile("" ::"r"(slot) : "memory");  // keeps the copy from being optimized away
    ++copies;
  } while (watch.elapsed() < time);
  return static_cast<double>(copies * source.size()) / watch.seconds() / 1e9;
}

}  // namespace

Benchmark ring_bandwidth() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    const size_t bytes = options.quick ? 64 << 10 : 16 << 20;
    const auto source = std::make_shared<Bytes>(bytes, std::byte(7));
    const auto target = std::make_shared<Bytes>(kSlots * bytes, std::byte(1));  // touches all pages
    const auto time = options.run_time();
    return std::vector<Trial>{
        {"batches of " + std::to_string(bytes >> 10) + " KiB, producer process",
         "GB/s",
         [=] { return ring_gigabytes(source, time); },
         {{"memcpy", [=] { return copy_gigabytes(*source, *target, time); }}}}};
  };
  return {"ring-bandwidth", "bytes per second through the ring, with one copy", prepare};
}

}  // namespace stoker::bench
