// What is sent with the reply to `attach`, and who can receive it.
#include <array>
#include <cstring>

#include <gmock/gmock.h>

#include "tests/daemon/server/control_fixture.h"

namespace stoker::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Received {
  std::string text;
  UniqueFd descriptor;
};

class AttachCommandTest : public ControlServerTest {
 protected:
  // Connects, sends, and reads once.
  Received request(const std::string& lines) {
    const auto address = control::SocketAddress::of(options_.socket_path);
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), address->get(), address->length()), 0);
    EXPECT_EQ(::send(socket.get(), lines.data(), lines.size(), 0), ssize_t(lines.size()));
    Received received;
    std::array<char, 4096> bytes;
    alignas(cmsghdr) std::array<char, 256> control{};
    while (received.text.find('\n') == std::string::npos) {
      iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      const ssize_t got = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
      if (got <= 0) break;
      received.text.append(bytes.data(), static_cast<size_t>(got));
      if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
        EXPECT_EQ(header->cmsg_type, SCM_RIGHTS);
        EXPECT_EQ(header->cmsg_len, CMSG_LEN(sizeof(int)));
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
        received.descriptor = UniqueFd(descriptor);
      }
    }
    return received;
  }
};

TEST_F(AttachCommandTest, SendsRingDescriptorWithReply) {
  start_serving();
  const Received received = request("attach\n");
  EXPECT_THAT(received.text, HasSubstr(R"("result":{"producer":3})"));
  ASSERT_TRUE(received.descriptor.valid());
  char text[9] = {};
  EXPECT_EQ(::pread(received.descriptor.get(), text, 8, 0), 8);
  EXPECT_STREQ(text, "the ring");
  EXPECT_THAT(training_.attached(), ElementsAre(::getpid())) << "the process that connected";
}

TEST_F(AttachCommandTest, PreservesReplyOrderBeforeDescriptor) {
  start_serving();
  const Received received = request("{\"id\":7,\"method\":\"hello\"}\nattach\n");
  EXPECT_THAT(received.text, HasSubstr("\"id\":7"));
}

TEST_F(AttachCommandTest, RejectsReadOnlyUser) {
  options_.peer_of = [](int) { return Peer{.uid = 12345, .gid = 1, .pid = ::getpid()}; };
  start_serving();
  const Received received = request("attach\n");
  EXPECT_THAT(received.text, HasSubstr("not permitted"));
  EXPECT_FALSE(received.descriptor.valid());
  EXPECT_THAT(training_.attached(), IsEmpty());
}

TEST_F(AttachCommandTest, RejectsParameters) {
  start_serving();
  EXPECT_THAT(request("attach me\n").text, HasSubstr("-32602"));
  EXPECT_THAT(training_.attached(), IsEmpty());
}

}  // namespace
}  // namespace stoker::server
