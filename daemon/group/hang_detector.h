// HangDetector: finds that this rank exchanges nothing with the others any more. The other ranks notice
// that by themselves, when their collectives time out; this one may be in a computation, a system call
// or a lock that never ends.
//
// Threads: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace stoker::group {

class HangDetector {
 public:
  // For a collective that times out at the same moment to report its own, better reason, also if it must
  // wait kMaxReplyTimeout for a store that it cannot reach.
  static constexpr std::chrono::seconds kGrace{9};

  // `timeout`: between the starts and ends of exchanges. `start_timeout`: before the first one, in addition.
  HangDetector(std::chrono::nanoseconds timeout, std::chrono::nanoseconds start_timeout)
      : timeout_(timeout + kGrace), start_timeout_(timeout_ + start_timeout) {}

  // `exchanges`: changes with each start and end of one, 0 before the end of the first; nullopt: none is
  // expected, because no segment is trained or this rank leaves. Returns how long there was none, if
  // that is too long.
  std::optional<std::chrono::nanoseconds> check(std::chrono::nanoseconds now,
                                                std::optional<uint64_t> exchanges) {
    if (!exchanges || exchanges != exchanges_ || !since_) {
      exchanges_ = exchanges;
      since_ = now;
      return std::nullopt;
    }
    const std::chrono::nanoseconds idle = now - *since_;
    if (idle <= (*exchanges == 0 ? start_timeout_ : timeout_)) return std::nullopt;
    return idle;
  }

 private:
  const std::chrono::nanoseconds timeout_, start_timeout_;
  std::optional<uint64_t> exchanges_;
  std::optional<std::chrono::nanoseconds> since_;
};

}  // namespace stoker::group
