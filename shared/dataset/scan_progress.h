// ScanProgress: whom to tell, now and then, how far the scan of a data set is.
//
// Threads: called by the thread that scans.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace stoker::dataset {

class ScanProgress {
 public:
  using Listener = std::function<void(uint64_t count, std::string_view what)>;

  ScanProgress() = default;  // nobody
  template <typename Call>
  requires std::is_invocable_v<Call, uint64_t, std::string_view> ScanProgress(Call listener)
      : listener_(std::move(listener)) {}  // NOLINT: a lambda is the point

  // `count` things of this kind have been seen so far: "files", "rows", "MiB unpacked".
  void operator()(uint64_t count, std::string_view what = "files") const {
    if (listener_) listener_(count, what);
  }

 private:
  Listener listener_;
};

}  // namespace stoker::dataset
