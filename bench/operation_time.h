// OperationTime: how long the calling thread is inside LibTorch's operations ("aten::…"), through
// the hook that its profilers use. An operation that calls others counts once.
//
// Threads: measures the thread that made it; one object at a time.
#pragma once

#include <chrono>
#include <cstdint>

namespace stoker::bench {

class OperationTime {
 public:
  OperationTime();
  ~OperationTime();
  OperationTime(const OperationTime&) = delete;
  OperationTime& operator=(const OperationTime&) = delete;

  std::chrono::nanoseconds total() const;

 private:
  uint64_t callback_;
};

}  // namespace stoker::bench
