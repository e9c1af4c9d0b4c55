// Elements of I64 scalars for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shared/queue/queue.h"
#include "tests/support/eventually.h"

namespace stoker::queue {

inline const std::stop_token kNoStop;
// A deadline that has passed: the operation fails instead of waiting.
inline constexpr Deadline kNoWait = Deadline::min();

inline Component scalar_component(std::string name = "") {
  return {.name = std::move(name), .dtype = DType::kI64, .shape = Shape()};
}

inline std::unique_ptr<Queue> make_queue(QueueOptions options) {
  options.name = "q";
  if (options.components.empty()) options.components = {scalar_component()};
  auto queue = Queue::create(std::move(options));
  EXPECT_TRUE(queue.ok()) << queue.status().to_string();
  return *std::move(queue);
}

inline Tuple scalar(int64_t value) { return {Tensor::scalar(value)}; }
inline Tuple batch(std::initializer_list<int64_t> values) {
  return {Tensor::vector(std::span<const int64_t>(values.begin(), values.size()))};
}

// The values of an I64 tensor.
inline std::vector<int64_t> values_of(const Tensor& tensor) {
  std::vector<int64_t> values(tensor.bytes() / sizeof(int64_t));
  if (!values.empty()) std::memcpy(values.data(), tensor.data(), tensor.bytes());
  return values;
}

// Those of the last component, or the error.
inline std::string text_of(const Result<Tuple>& result) {
  if (!result.ok()) return std::string(to_string(result.status().code()));
  std::string text;
  for (const int64_t value : values_of(result->back()))
    text += (text.empty() ? "" : " ") + std::to_string(value);
  return text;
}

inline void wait_for_waiters(const Queue& queue, size_t count) {
  ASSERT_TRUE(test::eventually([&] { return queue.waiters().size() == count; }));
}

}  // namespace stoker::queue
