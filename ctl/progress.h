// Progress: a line on a terminal that says how far long work has come; nothing elsewhere, nor for work
// that is done at once.
//
// Threads: one object per thread.
// Owner:   takes the line away with the object; console and clock must outlive it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "ctl/console.h"
#include "shared/base/clock.h"

namespace stoker::ctl {

class Progress {
 public:
  // `what`: "verifying step 1 200". `bytes`: of all the work; 0: not known.
  Progress(const Console& console, Clock& clock, std::string what, uint64_t bytes);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void add(uint64_t bytes);

 private:
  void draw(std::chrono::nanoseconds now);

  // Constant after construction.
  const Console& console_;
  Clock& clock_;
  const std::string what_;
  const uint64_t bytes_;
  const std::chrono::nanoseconds began_;

  uint64_t done_ = 0;
  std::chrono::nanoseconds drawn_{0};
  bool is_drawn_ = false;
};

}  // namespace stoker::ctl
