// FakeSandbox: encodes texts in this process, counts them, and changes the result if it is told to.
//
// Threads: those of the tokenizers; the members of the sandbox afterwards.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "shared/data/sandbox.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::data::testing {

class FakeSandbox final : public Sandbox {
 public:
  using Change = std::function<void(TextTokenizer::Part&)>;
  FakeSandbox(std::string path, Change change = {}, size_t processes = 3)
      : path_(std::move(path)), change_(std::move(change)), processes_(processes) {}

  class Tokenizing final : public TextTokenizer {
   public:
    Tokenizing(const FakeSandbox& sandbox, const std::string& digest,
               std::function<bool()> should_stop)
        : sandbox_(sandbox),
          number_(sandbox.num_tokenizers_++),
          should_stop_(std::move(should_stop)),
          encoder_(*tokenizer::Tokenizer::read(sandbox.path_)) {
      EXPECT_EQ(encoder_.tokenizer().digest(), digest);
    }
    Result<Part> tokenize(std::string_view text, bool begins, bool ends) override {
      {
        const std::lock_guard lock(sandbox_.mutex_);
        ++sandbox_.num_texts;
        sandbox_.last_text = text;
      }
      if (should_stop_()) return Status(StatusCode::kCancelled, "stopped");
      if (number_ >= sandbox_.max_tokenizers) return Status(StatusCode::kNoSpace, "no memory");
      Part part;
      const auto encoded =
          encoder_.encode_part(text, {.begins_section = begins, .ends_text = ends}, part.ids);
      if (!encoded.ok()) return encoded.status();
      part.bytes = encoded->bytes;
      part.begins_section = encoded->begins_section;
      if (sandbox_.change_) sandbox_.change_(part);
      return part;
    }

   private:
    const FakeSandbox& sandbox_;
    const size_t number_;
    const std::function<bool()> should_stop_;
    tokenizer::TextEncoder encoder_;
  };
  std::unique_ptr<TextTokenizer> make_tokenizer(const std::string&, const std::string& digest,
                                                uint64_t,
                                                std::function<bool()> should_stop) const override {
    return std::make_unique<Tokenizing>(*this, digest, std::move(should_stop));
  }
  size_t max_processes() const override { return processes_; }
  std::unique_ptr<JpegRewriter> make_rewriter(const std::string&) const override { return nullptr; }
  Result<std::unique_ptr<Dataset>> open_reader(const std::string&, const std::string&,
                                               const Dataset&,
                                               std::function<void()>) const override {
    return Status(StatusCode::kInternal, "not used");
  }

  mutable size_t max_tokenizers = SIZE_MAX;  // more find no memory
  mutable size_t num_texts = 0;
  mutable std::string last_text;

 private:
  const std::string path_;
  const Change change_;
  const size_t processes_;
  mutable std::mutex mutex_;
  mutable std::atomic<size_t> num_tokenizers_{0};
};

}  // namespace stoker::data::testing
