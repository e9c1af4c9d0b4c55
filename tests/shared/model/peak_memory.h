// PeakMemory: the most bytes of tensors that this thread has allocated at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <c10/core/Allocator.h>

namespace stoker::model {

// Used with c10::ThreadLocalDebugInfo, for c10::DebugInfoKind::PROFILER_STATE.
class PeakMemory : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    bytes_ += bytes;
    max_bytes_ = std::max(max_bytes_, bytes_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t max_bytes() const { return max_bytes_; }

 private:
  int64_t bytes_ = 0, max_bytes_ = 0;
};

}  // namespace stoker::model
