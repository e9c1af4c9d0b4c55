// The store, by clients that know the secret and by others, which speak its protocol through sockets of their own.
#include "daemon/group/authenticated_store.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/descriptor_limit.h"
#include "shared/base/hash.h"
#include "tests/support/eventually.h"
#include "tests/support/idle_connections.h"
#include "tests/support/temporary_directory.h"

namespace stoker::group {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto kPatience = 60s;
const std::string kSecret = "the secret of the run";

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

// As RFC 2104 defines it.
std::string hmac_sha256(std::string key, const std::string& text) {
  key.resize(64, '\0');
  std::string inner = key, outer = key;
  for (char& byte : inner) byte ^= 0x36;
  for (char& byte : outer) byte ^= 0x5c;
  return from_hex(sha256_hex(outer + from_hex(sha256_hex(inner + text))));
}

// The first test vector of RFC 4231 with a text: that the function above is the standard's.
TEST(HmacTest, IsThatOfStandard) {
  EXPECT_EQ(hmac_sha256("Jefe", "what do ya want for nothing?"),
            from_hex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
}

// What ends the message of that number of a side.
std::string tag(const std::string& side, const std::string& nonces, char number,
                const std::string& message) {
  const std::string key = hmac_sha256(kSecret, side + " messages" + nonces);
  return hmac_sha256(hmac_sha256(key, number + std::string(7, '\0')), message);
}

// A connection that speaks for itself.
class RawClient {
 public:
  explicit RawClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = test::loopback_port(port);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  void send(const std::string& bytes) const {
    (void)::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  std::string receive(size_t size) const {
    std::string bytes(size, '\0');
    const ssize_t received = ::recv(fd_.get(), bytes.data(), size, MSG_WAITALL);
    bytes.resize(received < 0 ? 0 : static_cast<size_t>(received));
    return bytes;
  }
  // Waits for it. Also by a reset, if bytes of this side were not read.
  std::string receive_to_end() const {
    std::string bytes;
    while (true) {
      const std::string more = receive(1);
      if (more.empty()) return bytes;
      bytes += more;
    }
  }
  bool is_closed() const {
    char byte = 0;
    const ssize_t size = ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return size == 0 || (size < 0 && errno != EAGAIN);
  }

 private:
  UniqueFd fd_;
};

// "set": operation 1 with sizes of key, expected and new value.
std::string set_request(const std::string& key, const std::string& value) {
  std::string request(1, '\1');
  for (const size_t size : {key.size(), size_t{0}, value.size()}) {
    request.push_back(static_cast<char>(size));
    request.append(3, '\0');
  }
  return request + key + value;
}

class AuthenticatedStoreTest : public ::testing::Test {
 protected:
  void serve(const StoreLimits& limits = {}) {
    auto listening = listen_on("127.0.0.1", 0);
    ASSERT_TRUE(listening.ok()) << listening.status().to_string();
    port_ = listening->port;
    auto server = StoreServer::start(*std::move(listening), kSecret, limits);
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = *std::move(server);
  }
  std::unique_ptr<StoreClient> connect() const {
    auto client = StoreClient::connect("127.0.0.1", port_, kSecret, kPatience);
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    return client.ok() ? *std::move(client) : nullptr;
  }

  uint16_t port_ = 0;
  std::unique_ptr<StoreServer> server_;
};

TEST_F(AuthenticatedStoreTest, AcceptsProofOfSecretAndProvesItToo) {
  serve();
  const RawClient client(port_);
  const std::string greeting = client.receive(40);
  ASSERT_EQ(greeting.substr(0, 8), "stoker 2");
  const std::string nonces = greeting.substr(8) + std::string(32, 'c');
  client.send(std::string(32, 'c') + hmac_sha256(kSecret, "client" + nonces));
  EXPECT_EQ(client.receive(32), hmac_sha256(kSecret, "server" + nonces));
  const std::string done(5, '\0');
  for (const char number : {0, 1}) {
    const std::string request = set_request("key", std::string("value ") + std::to_string(number));
    client.send(request + tag("client", nonces, number, request));
    EXPECT_EQ(client.receive(5 + 32), done + tag("server", nonces, number, done));
  }
  EXPECT_EQ(*connect()->get("key"), "value 1");
}

// A client that was relayed to the store: it has proven the secret, and the process between has not.
class RelayedClient {
 public:
  explicit RelayedClient(int port)
      : client(port), nonces(client.receive(40).substr(8) + std::string(32, 'c')) {
    client.send(std::string(32, 'c') + hmac_sha256(kSecret, "client" + nonces));
    EXPECT_EQ(client.receive(32).size(), 32u);
  }
  const RawClient client;
  const std::string nonces;
};

TEST_F(AuthenticatedStoreTest, AnswersNoRequestThatWasChangedAddedOrRepeated) {
  serve();
  const auto reader = connect();
  const std::string set = set_request("key", "value"), other = set_request("key", "other");
  {
    const RelayedClient relayed(port_);
    const std::string first = set + tag("client", relayed.nonces, 0, set);
    relayed.client.send(first);
    EXPECT_EQ(relayed.client.receive(5 + 32).size(), 37u);
    ASSERT_TRUE(reader->set("key", "later").ok());
    relayed.client.send(first);  // again
    EXPECT_EQ(relayed.client.receive_to_end(), "");
  }
  const auto expect_rejected = [&](const std::function<std::string(const std::string&)>& message) {
    const RelayedClient relayed(port_);
    relayed.client.send(message(relayed.nonces));
    EXPECT_EQ(relayed.client.receive_to_end(), "");
  };
  expect_rejected([&](const auto&) { return other + std::string(32, '\0'); });
  expect_rejected([&](const auto& nonces) { return other + tag("client", nonces, 0, set); });
  // The first was dropped; of the other side; of another connection.
  expect_rejected([&](const auto& nonces) { return other + tag("client", nonces, 1, other); });
  expect_rejected([&](const auto& nonces) { return other + tag("server", nonces, 0, other); });
  expect_rejected(
      [&](const auto&) { return other + tag("client", RelayedClient(port_).nonces, 0, other); });
  EXPECT_EQ(*reader->get("key"), "later");
}

// Passes on what both sides send, and changes the byte of a reply.
TEST_F(AuthenticatedStoreTest, ClientUsesNoReplyThatWasChanged) {
  serve();
  ASSERT_TRUE(connect()->set("address", "10.0.0.1").ok());
  // Of the result, the size, the value and the tag of the reply.
  for (const size_t changed : {0, 1, 4, 5, 12, 13, 44}) {
    auto listening = listen_on("127.0.0.1", 0);
    ASSERT_TRUE(listening.ok()) << listening.status().to_string();
    std::jthread relay([&] {
      const UniqueFd fd(::accept(listening->fd.get(), nullptr, nullptr));
      const RawClient store(port_);
      const auto pass_on = [&](const std::string& bytes) {
        (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      };
      const auto receive = [&](size_t size) {
        std::string bytes(size, '\0');
        EXPECT_EQ(::recv(fd.get(), bytes.data(), size, MSG_WAITALL), static_cast<ssize_t>(size));
        return bytes;
      };
      pass_on(store.receive(40));
      store.send(receive(64));
      pass_on(store.receive(32));
      store.send(receive(13 + 7 + 32));
      std::string reply = store.receive(5 + 8 + 32);
      ASSERT_EQ(reply.size(), 45u);
      reply[changed] ^= 2;
      pass_on(reply);
    });
    const auto client = StoreClient::connect("127.0.0.1", listening->port, kSecret, kPatience);
    ASSERT_TRUE(client.ok()) << client.status().to_string();
    const Status rejected = (*client)->get("address").status();
    EXPECT_EQ(rejected.code(), StatusCode::kPeerLost);
    EXPECT_EQ((*client)->get("address").status().code(), StatusCode::kPeerLost);
  }
}

// Two connections with the same answer would otherwise prove nothing.
TEST_F(AuthenticatedStoreTest, GreetsEachConnectionWithAnotherNonce) {
  serve();
  std::set<std::string> nonces;
  for (int i = 0; i < 20; ++i) nonces.insert(RawClient(port_).receive(40));
  EXPECT_EQ(nonces.size(), 20u);
}

TEST_F(AuthenticatedStoreTest, TellsNothingToClientThatDoesNotKnowSecret) {
  serve();
  const auto reader = connect();
  ASSERT_TRUE(reader->set("key", "value").ok());
  const auto expect_rejected = [&](const std::function<std::string(std::string)>& answer) {
    const RawClient client(port_);
    const std::string nonce = client.receive(40).substr(8);
    client.send(answer(nonce));
    EXPECT_EQ(client.receive_to_end(), "");
  };
  // Requests of the protocol, in place of a proof.
  expect_rejected([](const auto&) {
    std::string requests;
    while (requests.size() < 64) requests += set_request("key", "changed");
    return requests;
  });
  const std::string own(32, 'c');
  // Of another secret, and of the other side: what a process that relays or reflects has.
  expect_rejected([&](const std::string& nonce) {
    return own + hmac_sha256("another secret", "client" + nonce + own);
  });
  expect_rejected(
      [&](const std::string& nonce) { return own + hmac_sha256(kSecret, "server" + nonce + own); });
  // Each bit counts.
  for (const size_t byte : {0, 15, 31})
    expect_rejected([&](const std::string& nonce) {
      std::string proof = hmac_sha256(kSecret, "client" + nonce + own);
      proof[byte] ^= 1;
      return own + proof + set_request("key", "changed");
    });
  EXPECT_EQ(*reader->get("key"), "value");
  EXPECT_EQ(*reader->count_keys(), 1);
}

TEST_F(AuthenticatedStoreTest, IgnoresReplayedProof) {
  serve();
  const RawClient observed(port_);
  const std::string own(32, 'c');
  const std::string proof =
      own + hmac_sha256(kSecret, "client" + observed.receive(40).substr(8) + own);
  observed.send(proof);
  ASSERT_EQ(observed.receive(32).size(), 32u);
  const RawClient replay(port_);
  ASSERT_EQ(replay.receive(40).size(), 40u);
  replay.send(proof);
  EXPECT_EQ(replay.receive_to_end(), "");
}

// A process that has taken the port gets the client's proof for its nonce, and no request.
TEST_F(AuthenticatedStoreTest, ClientTellsNothingToServerThatDoesNotKnowSecret) {
  auto listening = listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listening.ok()) << listening.status().to_string();
  std::string received;
  std::thread server([&] {
    const UniqueFd fd(::accept(listening->fd.get(), nullptr, nullptr));
    const std::string greeting = "stoker 2" + std::string(32, 's');
    (void)::send(fd.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
    std::string bytes(64, '\0');
    (void)::recv(fd.get(), bytes.data(), bytes.size(), MSG_WAITALL);
    const std::string proof =
        hmac_sha256("another secret", "server" + std::string(32, 's') + bytes.substr(0, 32));
    (void)::send(fd.get(), proof.data(), proof.size(), MSG_NOSIGNAL);
    received = bytes;
    char more = 0;
    if (::recv(fd.get(), &more, 1, 0) > 0) received += more;
  });
  const auto client = StoreClient::connect("127.0.0.1", listening->port, kSecret, kPatience);
  server.join();
  EXPECT_EQ(client.status().code(), StatusCode::kPermission);
  EXPECT_THAT(client.status().message(), HasSubstr("does not know the secret of this run"));
  ASSERT_EQ(received.size(), 64u);
  EXPECT_EQ(received.substr(32),
            hmac_sha256(kSecret, "client" + std::string(32, 's') + received.substr(0, 32)));
}

TEST_F(AuthenticatedStoreTest, ClosesOldestOfTooManySilentConnections) {
  serve({.unauthenticated = 4});
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 6; ++i) {
    silent.push_back(std::make_unique<RawClient>(port_));
    ASSERT_EQ(silent.back()->receive(40).size(), 40u);  // accepted
  }
  for (const size_t oldest : {0, 1}) EXPECT_EQ(silent[oldest]->receive_to_end(), "");
  for (const size_t newer : {2, 3, 4, 5}) EXPECT_FALSE(silent[newer]->is_closed());
  const auto client = connect();
  EXPECT_TRUE(client->set("key", "value").ok());
  EXPECT_EQ(silent[2]->receive_to_end(), "");
}

TEST_F(AuthenticatedStoreTest, ClosesSilentConnectionAfterTime) {
  serve({.to_authenticate = 1ms});
  const RawClient silent(port_);
  EXPECT_EQ(silent.receive_to_end().size(), 40u);
}

TEST_F(AuthenticatedStoreTest, ServesClientsWhileThousandConnectionsAreSilent) {
  raise_descriptor_limit();
  serve();
  const auto before = connect();
  test::IdleConnections idle;
  idle.open(port_, 1'000);
  const auto during = connect();
  EXPECT_TRUE(during->set("key", "value").ok());
  EXPECT_EQ(*before->get("key"), "value");
}

TEST_F(AuthenticatedStoreTest, LimitsKeysAndBytes) {
  serve({.keys = 2, .key_bytes = 4, .value_bytes = 8, .bytes = 14});
  const auto client = connect();
  EXPECT_TRUE(client->set("a", "12345678").ok());
  EXPECT_TRUE(client->set("b", "1234").ok());  // 14 bytes
  EXPECT_EQ(client->set("c", "").code(), StatusCode::kNoSpace);
  EXPECT_EQ(client->set("b", "12345").code(), StatusCode::kNoSpace);
  EXPECT_EQ(*client->get("b"), "1234");
  EXPECT_TRUE(*client->remove("a"));
  EXPECT_FALSE(*client->remove("a"));
  EXPECT_EQ(*client->add("c", 7), 7);
  EXPECT_EQ(client->add("d", 7).status().code(), StatusCode::kNoSpace);
  EXPECT_EQ(client->compare_set("d", "", "x").status().code(), StatusCode::kNoSpace);
  EXPECT_EQ(*client->count_keys(), 2);
  EXPECT_EQ(connect()->set("12345", "").code(), StatusCode::kPeerLost);
  EXPECT_EQ(connect()->set("1", "123456789").code(), StatusCode::kPeerLost);
  EXPECT_EQ(*client->count_keys(), 2);
}

TEST_F(AuthenticatedStoreTest, LimitsConnections) {
  serve({.connections = 2});
  const auto first = connect(), second = connect();
  const auto third = StoreClient::connect("127.0.0.1", port_, kSecret, kPatience);
  EXPECT_EQ(third.status().code(), StatusCode::kPeerLost);
  EXPECT_TRUE(first->set("key", "value").ok());
  EXPECT_EQ(*second->get("key"), "value");
}

// Much more than sockets buffer, of a client that asks ten times before it reads.
TEST_F(AuthenticatedStoreTest, KeepsAtMostOneReplyOfClientThatDoesNotRead) {
  serve();
  const std::string value(size_t{8} << 20, 'v');
  ASSERT_TRUE(connect()->set("key", value).ok());
  const RawClient client(port_);
  const std::string nonces = client.receive(40).substr(8) + std::string(32, 'c');
  client.send(std::string(32, 'c') + hmac_sha256(kSecret, "client" + nonces));
  ASSERT_EQ(client.receive(32).size(), 32u);
  std::string get = set_request("key", "");
  get[0] = '\2';
  for (char i = 0; i < 10; ++i) client.send(get + tag("client", nonces, i, get));
  EXPECT_TRUE(*connect()->has("key"));  // others are served
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(client.receive(5), std::string("\1\0\0\x80\0", 5));
    EXPECT_EQ(client.receive(value.size()), value);
    EXPECT_EQ(client.receive(32).size(), 32u);
  }
}

TEST_F(AuthenticatedStoreTest, AddsFromManyThreads) {
  serve();
  const auto shared = connect();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        const auto own = connect();
        for (int n = 0; n < 50; ++n) {
          EXPECT_TRUE(own->add("sum", 1).ok());
          EXPECT_TRUE(shared->add("sum", 2).ok());
        }
      });
  }
  EXPECT_EQ(*shared->add("sum", 0), 4 * 50 * 3);
  EXPECT_EQ(*shared->get("sum"), "600");
}

TEST_F(AuthenticatedStoreTest, TellsClientsThatItHasEnded) {
  serve();
  const auto client = connect();
  server_.reset();
  EXPECT_EQ(client->get("key").status().code(), StatusCode::kPeerLost);
  EXPECT_EQ(client->get("key").status().code(), StatusCode::kPeerLost);
}

// ---- secret

class SecretTest : public ::testing::Test {
 protected:
  const test::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "group_secret";
};

TEST_F(SecretTest, IsOneForAllProcessesAndReadableByOwnerOnly) {
  std::vector<std::string> secrets(8);
  {
    std::vector<std::jthread> threads;
    for (std::string& secret : secrets)
      threads.emplace_back([&] { secret = *read_or_create_secret(path_); });
  }
  EXPECT_EQ(secrets[0].size(), 64u);
  EXPECT_EQ(std::set<std::string>(secrets.begin(), secrets.end()).size(), 1u);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(*list_directory(folder_.path()), std::vector<std::string>{"group_secret"});
  EXPECT_EQ(*read_or_create_secret(path_), secrets[0]);
  EXPECT_NE(*read_or_create_secret(folder_ / "other"), secrets[0]);
}

// A process of the run that starts removes what a killed one has left, and can take it for that.
TEST_F(SecretTest, IsCreatedAgainIfItsTemporaryFileIsRemoved) {
  int removed = 0;
  for (int i = 0; i < 100; ++i) {
    std::jthread remover([&](const std::stop_token& stop) {
      while (!stop.stop_requested())
        for (const std::string& name : *list_directory(folder_.path()))
          if (name.starts_with(".group_secret") && std::filesystem::remove(folder_ / name)) {
            ++removed;
            return;
          }
    });
    const auto secret = read_or_create_secret(path_ + std::to_string(i));
    ASSERT_TRUE(secret.ok()) << secret.status().to_string();
    EXPECT_EQ(secret->size(), 64u);
  }
  std::cout << removed << " of 100 temporary files removed\n";
}

TEST_F(SecretTest, IsRejectedIfOthersCanReadOrItIsIncomplete) {
  ASSERT_TRUE(read_or_create_secret(path_).ok());
  for (const mode_t mode : {0640, 0604, 0620}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    const Status rejected = read_or_create_secret(path_).status();
    EXPECT_EQ(rejected.code(), StatusCode::kPermission);
    EXPECT_THAT(rejected.message(), HasSubstr(path_ + ": must belong to the user"));
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  std::ofstream(path_) << "";
  EXPECT_EQ(read_or_create_secret(path_).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stoker::group
