#include "feeder/serve_requests.h"

#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <new>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/feed/read_protocol.h"
#include "tests/shared/data/sequence_test_data.h"

namespace stoker::feeder {
namespace {

using data::testing::SequenceTestData;

// Serves three sequences of the lengths 1, 2 and 3 in a thread.
class ServeSamplesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    own_ = UniqueFd(pair[0]);
    served_ = std::async(std::launch::async, [this, fd = pair[1]] {
      const UniqueFd socket(fd);
      return serve_samples(data_, socket.get(), memory_);
    });
    EXPECT_EQ(receive().serial, feed::kReadySerial);
  }
  feed::ReadReply receive() const {
    feed::ReadReply reply{.serial = 99};
    EXPECT_EQ(::recv(own_.get(), &reply, sizeof reply, 0), ssize_t{sizeof reply});
    return reply;
  }
  void send(const feed::ReadRequest& request, size_t bytes) const {
    EXPECT_EQ(::send(own_.get(), &request, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  void send(const feed::ReadRequest& request) const { send(request, request.bytes()); }
  // The status of the server after the requests sent so far.
  Status end() {
    EXPECT_EQ(::shutdown(own_.get(), SHUT_WR), 0);
    return served_.get();
  }
  static feed::ReadRequest request_for(uint64_t sample, uint64_t length) {
    feed::ReadRequest request{.serial = 7, .length = length, .count = 1};
    request.samples[0].sample = sample;
    return request;
  }

  const SequenceTestData data_ = SequenceTestData::of_sizes({1, 1, 1});
  std::vector<std::byte> memory_ = std::vector<std::byte>(feed::shared_bytes(data_.spec(), 2));
  UniqueFd own_;
  std::future<Status> served_;
};

TEST_F(ServeSamplesTest, ReadsRequestedSamplesUntilSocketCloses) {
  feed::ReadRequest request = request_for(2, 3);
  request.count = 2;
  request.samples[1].sample = 1;
  send(request);
  const auto reply = feed::parse_reply(receive(), 7, 2);
  ASSERT_TRUE(reply && reply->status.ok());
  const auto rows = feed::locate_samples(memory_, data_.spec(), 2);
  const auto* values = reinterpret_cast<const float*>(rows[0].data());
  EXPECT_EQ(std::vector<float>(values, values + 6), (std::vector<float>{2, 2, 2, 1, 1, 0}));
  EXPECT_TRUE(end().ok());
}

TEST_F(ServeSamplesTest, EndsOnSampleThatDoesNotExist) {
  send(request_for(3, 3));
  EXPECT_EQ(end().code(), StatusCode::kMismatch);
}

TEST_F(ServeSamplesTest, EndsOnLengthBeyondMaximum) {
  send(request_for(0, 4));
  EXPECT_EQ(end().code(), StatusCode::kMismatch);
}

TEST_F(ServeSamplesTest, EndsOnMoreSamplesThanMemoryHolds) {
  feed::ReadRequest request = request_for(0, 3);
  request.count = 16;
  send(request);
  EXPECT_EQ(end().code(), StatusCode::kMismatch);
}

TEST_F(ServeSamplesTest, EndsOnMoreSamplesThanMessageHolds) {
  feed::ReadRequest request = request_for(0, 3);
  request.count = feed::kMaxSamplesPerRequest + 1;
  send(request, sizeof request);
  EXPECT_EQ(end().code(), StatusCode::kMismatch);
}

TEST_F(ServeSamplesTest, EndsOnTruncatedRequest) {
  const feed::ReadRequest request = request_for(0, 3);
  send(request, request.bytes() - 1);
  EXPECT_EQ(end().code(), StatusCode::kMismatch);
}

// Rewrites files in a thread: to their first half, except "x", which needs too much memory, and
// "y", which remains unchanged.
class ServeRewritesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    own_ = UniqueFd(pair[0]);
    served_ = std::async(std::launch::async, [this, fd = pair[1]] {
      const UniqueFd socket(fd);
      return serve_rewrites(rewrite, socket.get(), memory_);
    });
    EXPECT_EQ(receive().serial, feed::kReadySerial);
  }
  static std::optional<std::vector<std::byte>> rewrite(std::span<const std::byte> file) {
    if (file.front() == std::byte{'x'}) throw std::bad_alloc();
    if (file.front() == std::byte{'y'}) return {};
    const auto half = file.first(file.size() / 2);
    return std::vector<std::byte>(half.begin(), half.end());
  }
  feed::ReadReply receive() const {
    feed::ReadReply reply{.serial = 99};
    EXPECT_EQ(::recv(own_.get(), &reply, sizeof reply, 0), ssize_t{sizeof reply});
    return reply;
  }
  // Returns the request for `file`.
  feed::RewriteRequest send(const std::string& file, uint64_t max_bytes) {
    const feed::RewriteRequest request{
        .serial = 7, .file_bytes = file.size(), .max_bytes = max_bytes};
    if (const auto spans = feed::locate_rewrite(memory_, request))
      std::ranges::copy(std::as_bytes(std::span(file)), spans->file.begin());
    EXPECT_EQ(::send(own_.get(), &request, sizeof request, MSG_NOSIGNAL), ssize_t{sizeof request});
    return request;
  }
  feed::ReadReply receive_after(const std::string& file, uint64_t max_bytes) {
    send(file, max_bytes);
    return receive();
  }
  Status end() {
    EXPECT_EQ(::shutdown(own_.get(), SHUT_WR), 0);
    return served_.get();
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(sizeof(feed::SharedHeader) + 20);
  UniqueFd own_;
  std::future<Status> served_;
};

TEST_F(ServeRewritesTest, RewritesFilesUntilSocketCloses) {
  const auto request = send("abcdef", 10);
  const auto reply = feed::parse_reply(receive(), request);
  ASSERT_TRUE(reply && reply->ok());
  ASSERT_EQ(**reply, 3u);
  const auto result = feed::locate_rewrite(memory_, request)->rewritten.first(3);
  EXPECT_TRUE(std::ranges::equal(result, std::as_bytes(std::span("abc", 3))));
  const auto refused = feed::parse_reply(receive_after("x", 10), request);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(receive_after("y", 10).good, 0u);
  EXPECT_EQ(receive_after("twelve bytes", 5).good, 0u);
  EXPECT_TRUE(end().ok());
}

TEST_F(ServeRewritesTest, EndsOnFileThatDoesNotFit) {
  send("abc", 18);
  EXPECT_EQ(end().code(), StatusCode::kMismatch);
}

}  // namespace
}  // namespace stoker::feeder
