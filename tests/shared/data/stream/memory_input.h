// MemoryInput: a ByteInput that returns its content in parts of at most `part` bytes.
// EndlessInput: one that repeats a text forever.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "shared/data/stream/byte_input.h"

namespace stoker::data::stream::testing {

class MemoryInput final : public ByteInput {
 public:
  explicit MemoryInput(std::string content, size_t part = 1 << 20)
      : ByteInput("input"), content_(std::move(content)), part_(part) {}

 private:
  Result<size_t> read_available(std::span<std::byte> out, const std::stop_token&) override {
    const size_t count = std::min({out.size(), part_, content_.size() - at_});
    std::memcpy(out.data(), content_.data() + at_, count);
    at_ += count;
    return count;
  }

  const std::string content_;
  const size_t part_;
  size_t at_ = 0;
};

class EndlessInput final : public ByteInput {
 public:
  explicit EndlessInput(std::string text) : ByteInput("input"), text_(std::move(text)) {}

 private:
  Result<size_t> read_available(std::span<std::byte> out, const std::stop_token&) override {
    const size_t count = std::min(out.size(), text_.size() - at_);
    std::memcpy(out.data(), text_.data() + at_, count);
    at_ = (at_ + count) % text_.size();
    return count;
  }

  const std::string text_;
  size_t at_ = 0;
};

}  // namespace stoker::data::stream::testing
