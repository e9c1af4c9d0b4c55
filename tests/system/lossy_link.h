// LossyLink: joins two hosts, which are network namespaces, by a thread that delays each packet and loses
// some, as netem does where the kernel has it. On each host it is a TUN device, which has no offloads:
// what the thread moves are the packets of a wire.
//
// Threads: owns one; delivered() and dropped() from any.
// Errors:  kIoError: the kernel makes no such devices, or this process may not.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::test {

struct LossyLinkOptions {
  std::chrono::milliseconds delay{0};  // in each direction
  int loss_permille = 0;
  uint64_t seed = 1;
};

class LossyLink {
 public:
  // The devices have the name `interface` and neither addresses nor routes; they end with this object.
  static Result<std::unique_ptr<LossyLink>> open(const std::array<std::string, 2>& namespaces,
                                                 const std::string& interface,
                                                 const LossyLinkOptions& options);

  uint64_t delivered() const { return delivered_; }
  uint64_t dropped() const { return dropped_; }

 private:
  struct Packet {
    std::chrono::steady_clock::time_point due;
    size_t to = 0;
    std::vector<char> bytes;
  };

  LossyLink(std::array<UniqueFd, 2> devices, const LossyLinkOptions& options);
  void relay(const std::stop_token& stop);
  void receive(size_t from);
  void deliver_due();

  const std::array<UniqueFd, 2> devices_;
  const LossyLinkOptions options_;
  // Of the thread.
  std::array<std::mt19937_64, 2> random_;
  std::deque<Packet> packets_;  // in the order in which they are due
  std::atomic<uint64_t> delivered_ = 0;
  std::atomic<uint64_t> dropped_ = 0;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace stoker::test
