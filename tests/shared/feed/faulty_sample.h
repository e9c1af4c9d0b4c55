// What request_worker_test_program.cc and the tests that start it agree on.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace stoker::feed {

inline constexpr uint64_t kFaultySample = 17;
inline constexpr std::string_view kFaultyEnd = "fault";

// Modes that need no dataset.
inline constexpr auto kWrongReplies = std::to_array<std::string_view>(
    {"wrong_serial", "wrong_count", "wrong_code", "long_text", "short_reply", "noise",
     "two_replies", "closes", "wrong_label"});
inline bool is_wrong_reply(std::string_view mode) {
  return std::ranges::find(kWrongReplies, mode) != kWrongReplies.end();
}

}  // namespace stoker::feed
