#include "tests/reliability/acknowledged_checkpoints.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace stoker::test {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

std::vector<uint64_t> acknowledged_steps(std::string_view log) {
  constexpr std::string_view kSaved = " checkpoint saved step=";
  std::vector<uint64_t> steps;
  for (size_t at = 0; (at = log.find(kSaved, at)) != std::string_view::npos;) {
    at += kSaved.size();
    uint64_t step = 0;
    const char* const end = log.data() + log.size();
    const auto parsed = std::from_chars(log.data() + at, end, step);
    // Without the next field, the process was killed while it wrote the number.
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == ' ') steps.push_back(step);
  }
  return steps;
}

AssertionResult none_lost(const std::vector<uint64_t>& acknowledged,
                          const std::vector<uint64_t>& visible, size_t keep_last) {
  for (const uint64_t step : acknowledged) {
    if (std::ranges::count(visible, step) > 0) continue;
    const auto newer =
        std::ranges::count_if(visible, [step](uint64_t other) { return other > step; });
    if (static_cast<size_t>(newer) < keep_last)
      return AssertionFailure() << "lost: checkpoint " << step
                                << " was acknowledged, is missing, and " << newer
                                << " newer ones exist; retention keeps " << keep_last;
  }
  return AssertionSuccess();
}

}  // namespace stoker::test
