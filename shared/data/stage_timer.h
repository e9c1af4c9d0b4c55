// StageTimes: how long a read spent decoding and transforming; the remaining time was I/O.
//
// Reading the clock costs more than a small sample, so times are taken only while a StageTimer
// exists: workers measure a small fraction of their samples.
//
// Threads: each thread measures its own reads.
#pragma once

#include <chrono>
#include <cstddef>

namespace stoker::data {

enum class Stage : size_t { kDecode, kTransform };
inline constexpr size_t kStages = 2;

struct StageTimes {
  std::chrono::nanoseconds of[kStages] = {};
};

// During its lifetime, the stages of the calling thread are added to `times`. Not nested.
class StageTimer {
 public:
  explicit StageTimer(StageTimes& times) { current_ = &times; }
  ~StageTimer() { current_ = nullptr; }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  friend class StageScope;
  static inline constinit thread_local StageTimes* current_ = nullptr;
};

// Measures the enclosing scope as a stage. Stages do not overlap.
class StageScope {
 public:
  explicit StageScope(Stage stage) : stage_(stage) {
    if (StageTimer::current_ != nullptr) start_ = Clock::now();
  }
  ~StageScope() {
    if (StageTimer::current_ != nullptr)
      StageTimer::current_->of[static_cast<size_t>(stage_)] += Clock::now() - start_;
  }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  const Stage stage_;
  Clock::time_point start_;
};

}  // namespace stoker::data
