#include "feeder/serve_samples.h"

#include <sys/socket.h>

#include <future>

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

}  // namespace
}  // namespace stoker::feeder
