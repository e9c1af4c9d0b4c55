// StageTime: how much of a read was decoding and how much transforming: what is left was getting the
// bytes.
//
// A clock costs more than a small sample, so time is only taken while a thread measures: a reader
// measures one sample in many.
//
// Threads: each thread measures its own reads.
#pragma once

#include <chrono>
#include <cstddef>

namespace stoker::dataset {

enum class Stage : size_t { kDecode, kTransform };
inline constexpr size_t kStages = 2;

struct StageTimes {
  std::chrono::nanoseconds of[kStages] = {};
};

// While it lives, the calling thread's stages are added to `times`. Not nested.
class StageMeasurement {
 public:
  explicit StageMeasurement(StageTimes& times) { current_ = &times; }
  ~StageMeasurement() { current_ = nullptr; }
  StageMeasurement(const StageMeasurement&) = delete;
  StageMeasurement& operator=(const StageMeasurement&) = delete;

 private:
  friend class InStage;
  static inline constinit thread_local StageTimes* current_ = nullptr;
};

// The scope that it lives in is a stage. Stages do not overlap.
class InStage {
 public:
  explicit InStage(Stage stage) : stage_(stage) {
    if (StageMeasurement::current_ != nullptr) start_ = Clock::now();
  }
  ~InStage() {
    if (StageMeasurement::current_ != nullptr)
      StageMeasurement::current_->of[static_cast<size_t>(stage_)] += Clock::now() - start_;
  }
  InStage(const InStage&) = delete;
  InStage& operator=(const InStage&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  const Stage stage_;
  Clock::time_point start_;
};

}  // namespace stoker::dataset
