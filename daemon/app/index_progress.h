// IndexProgress: what of a dataset is indexed, how fast, and for how long it will last.
//
// Threads: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace stoker::app {

class IndexProgress {
 public:
  // As files::ScanProgress. Returns "data.train: 10 125 312 records, 1 200 000/s, 34 %, 40 s left".
  std::string add(const std::string& dataset, uint64_t count, std::string_view what,
                  double fraction, std::chrono::nanoseconds now);

  double per_second() const { return per_second_; }
  // The time left; 0: unknown.
  double eta_seconds() const { return eta_seconds_; }

 private:
  std::string task_;                     // dataset and unit
  std::chrono::nanoseconds started_{0};  // of this task
  uint64_t first_count_ = 0;
  double first_fraction_ = 0;
  double per_second_ = 0, eta_seconds_ = 0;
};

}  // namespace stoker::app
