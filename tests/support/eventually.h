// eventually: waits for a condition of another thread or process for which there is no blocking call.
#pragma once

#include <chrono>
#include <thread>

namespace stoker::test {

// False after a time that no successful test reaches.
template <typename Condition>
bool eventually(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace stoker::test
