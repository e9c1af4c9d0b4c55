// ReadAheadTuner: how many reads should be in flight before their samples are decoded.
//
// By Little's law: readers that never wait for the disk take readers / work samples a second, work
// being what a sample costs them, and each of these was `waited` in flight. Twice as many, for no
// disk is steady. None, where what is read is in memory: then handing bytes from thread to thread
// costs more than it saves.
//
// Threads: every method may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace stoker::feed {

class ReadAheadTuner {
 public:
  // Reads that wait less are not worth it, and neither are those that wait for less than a tenth of
  // the work on their sample.
  static constexpr std::chrono::microseconds kShort{50};
  static constexpr double kMinShare = 0.1;
  // Reads that the averages look back to.
  static constexpr int kMemory = 16;

  ReadAheadTuner(uint32_t workers, uint32_t max_rows) : workers_(workers), max_(max_rows) {}

  // The bytes of one sample were got, and the thread stood still for so long meanwhile.
  void record_read(std::chrono::nanoseconds waited);
  // All else that one sample took of a reader's time.
  void record_work(std::chrono::nanoseconds worked);
  uint32_t wanted() const { return wanted_.load(std::memory_order_relaxed); }

 private:
  void decide();  // with mutex_ held

  const uint32_t workers_;
  const uint32_t max_;

  // Written with mutex_ held, read by anybody: a number that stands for itself.
  std::atomic<uint32_t> wanted_{0};

  // Guarded by mutex_. Means that forget.
  std::mutex mutex_;
  double waited_ns_ = 0;
  double worked_ns_ = 0;
  double waiting_ = 0;  // part of the reads that waited for longer than kShort
};

}  // namespace stoker::feed
