// OperationTime: measures the time that the calling thread spends in LibTorch operations
// ("aten::…") through the hook of its profilers. Nested operations count once.
//
// Threads: measures the thread that created it; one object at a time.
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
