#include "shared/control/client.h"

#include <sys/socket.h>

#include <array>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/control/socket_path.h"
#include "tests/support/temporary_directory.h"

namespace stoker::control {
namespace {

using namespace std::chrono_literals;

// A listener that runs `part` with one client in a separate thread.
class Listener {
 public:
  explicit Listener(std::function<void(int client)> part) {
    const auto address = SocketAddress::of(path());
    fd_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM, 0));
    EXPECT_EQ(::bind(fd_.get(), address->get(), address->length()), 0);
    EXPECT_EQ(::listen(fd_.get(), 4), 0);
    if (part)
      thread_ = std::thread(
          [this, part] { part(UniqueFd(::accept(fd_.get(), nullptr, nullptr)).get()); });
  }
  ~Listener() {
    if (thread_.joinable()) thread_.join();
  }
  std::string path() const { return root_ / "control.sock"; }
  void stop_listening() { fd_.reset(); }

 private:
  const test::TemporaryDirectory root_{"/tmp"};
  UniqueFd fd_;
  std::thread thread_;
};

std::string read_request(int client) {
  std::string line;
  char c = 0;
  while (::read(client, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

void send_text(int client, const std::string& text) {
  ASSERT_EQ(::send(client, text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

TEST(ClientTest, SendsRequestAndAssemblesReplyFromFragments) {
  std::string seen;
  Listener listener([&](int client) {
    seen = read_request(client);
    send_text(client, R"({"id":1,"res)");
    send_text(client, "ult\":{\"step\":3}}\n");
  });
  auto client = Client::connect(listener.path(), 30s);
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  const auto result = client->call("set", R"({"lr":0.5})", 30s);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(*result, R"({"step":3})");
  EXPECT_EQ(seen, R"({"id":1,"method":"set","params":{"lr":0.5}})");
}

TEST(ClientTest, ReportsUnavailableDaemonWithHint) {
  const auto missing = Client::connect("/tmp/stoker-no-such-directory/control.sock", 30s);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kUnreachable);
  EXPECT_THAT(missing.status().message(),
              testing::HasSubstr("no such socket; is stokerd running?"));
  Listener listener(nullptr);
  listener.stop_listening();
  const auto stale = Client::connect(listener.path(), 30s);
  ASSERT_FALSE(stale.ok());
  EXPECT_EQ(stale.status().code(), StatusCode::kUnreachable);
  EXPECT_THAT(stale.status().message(), testing::HasSubstr("was killed"));
}

TEST(ClientTest, TimesOutWithoutReply) {
  Listener listener(nullptr);  // the kernel completes the connection; it is never accepted
  auto client = Client::connect(listener.path(), 30s);
  ASSERT_TRUE(client.ok());
  const auto result = client->call("status", "", 20ms);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kTimedOut);
}

TEST(ClientTest, ReportsUnavailableWhenDaemonExitsBeforeReply) {
  Listener listener([](int client) { (void)read_request(client); });
  auto client = Client::connect(listener.path(), 30s);
  ASSERT_TRUE(client.ok());
  const auto result = client->call("status", "", 30s);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kUnreachable);
}

TEST(ClientTest, ReportsRejectionReasonWhenSendFails) {
  Listener listener([](int client) {
    send_text(
        client,
        "{\"id\":null,\"error\":{\"code\":-32000,\"message\":\"full\",\"data\":{\"kind\":\"busy\"}}"
        "}\n");
    ::shutdown(client, SHUT_RDWR);
  });
  auto client = Client::connect(listener.path(), 30s);
  ASSERT_TRUE(client.ok());
  const auto result = client->exchange(std::string(4 << 20, 'x'), 30s);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_THAT(*result, testing::HasSubstr("full"));
}

TEST(ClientTest, FailsWhenPeerSendsNoCompleteLine) {
  Listener listener([](int client) {
    const std::string noise(1 << 16, 'x');
    while (::send(client, noise.data(), noise.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  auto client = Client::connect(listener.path(), 30s);
  ASSERT_TRUE(client.ok());
  const auto result = client->call("status", "", 30s);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kCorrupt);
  *client = *Client::connect(listener.path(), 30s);  // lets the other side end
}

}  // namespace
}  // namespace stoker::control
