// Requests as bytes over real sockets; the io_context runs in a thread of the test.
#include "daemon/monitoring/monitoring_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/clock.h"
#include "shared/http/http_server.h"
#include "shared/http/peer_user.h"
#include "shared/run/run_layout.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/unprivileged_user.h"

namespace stoker::monitoring {
namespace {

using namespace std::chrono_literals;
using http::HttpLimits;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Client {
 public:
  // `receive_bytes`: of the kernel's buffer; 0: its default.
  explicit Client(uint16_t port, int receive_bytes = 0)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0)
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect_to(address);
  }
  explicit Client(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    connect_to(address);
  }
  void send(const std::string& bytes) {
    (void)::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // All bytes until the server closes the connection.
  std::string read_all() {
    std::string all;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(fd_.get(), buffer, sizeof buffer, 0)) > 0;)
      all.append(buffer, static_cast<size_t>(n));
    return all;
  }
  std::string read_until(const std::string& end) {
    std::string all;
    char byte = 0;
    while (!all.ends_with(end) && ::recv(fd_.get(), &byte, 1, 0) == 1) all += byte;
    return all;
  }
  std::string ask(const std::string& bytes) {
    send(bytes);
    return read_all();
  }

 private:
  template <typename Address>
  void connect_to(const Address& address) {
    const timeval timeout{.tv_sec = 100, .tv_usec = 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  UniqueFd fd_;
};

std::string request(const std::string& method, const std::string& path,
                    const std::string& host = "localhost") {
  return method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n";
}

class MonitoringServerTest : public ::testing::Test {
 protected:
  ~MonitoringServerTest() override {
    if (!thread_.joinable()) return;
    boost::asio::post(io_, [this] {
      if (server_) server_->stop();
    });
    work_.reset();
    thread_.join();
  }
  void start(HttpLimits limits = {}, UniqueFd unix_socket = {}, std::string unix_path = {}) {
    config::HttpListen listen{.unix_path = unix_path, .address = "127.0.0.1"};
    server_ =
        std::make_unique<MonitoringServer>(io_, system_clock(),
                                           MonitoringOptions{.listen = listen,
                                                             .version = "1.2.3",
                                                             .run_dir = run_dir_,
                                                             .status = [this] { return status_; },
                                                             .limits = limits});
    const Status started = server_->start(std::move(unix_socket));
    ASSERT_TRUE(started.ok()) << started.to_string();
    thread_ = std::thread([this] { io_.run(); });
  }
  std::string ask(const std::string& bytes) { return Client(server_->port()).ask(bytes); }
  bool is_served_eventually(const std::string& path) {
    return test::eventually([&] { return ask(request("GET", path)).starts_with("HTTP/1.1 200 "); });
  }

  std::string run_dir_ = ::testing::TempDir() + "stoker-no-run";
  control::TrainerStatus status_;
  boost::asio::io_context io_{1};
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_{
      io_.get_executor()};
  std::unique_ptr<MonitoringServer> server_;
  std::thread thread_;
};

TEST_F(MonitoringServerTest, AnswersWithMetricsAndStatus) {
  status_.step = 12;
  status_.state = control::TrainerState::kTraining;
  start();
  const std::string metrics = ask(request("GET", "/metrics"));
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(metrics, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(metrics, HasSubstr("\nstoker_step 12\n"));
  const std::string status = ask(request("GET", "/v1/status?pretty"));
  const auto object = boost::json::parse(status.substr(status.find("\r\n\r\n") + 4)).as_object();
  EXPECT_EQ(object.at("step"), 12);
  EXPECT_THAT(ask(request("GET", "/healthz")), HasSubstr("\r\n\r\nok\n"));
  EXPECT_THAT(ask(request("GET", "/other")), StartsWith("HTTP/1.1 404 "));
}

TEST_F(MonitoringServerTest, IsReadyWhileTraining) {
  start();
  EXPECT_THAT(ask(request("GET", "/readyz")), StartsWith("HTTP/1.1 503 "));
  boost::asio::post(io_, [this] { status_.waiting_for = "the index of data.train: 34 %"; });
  EXPECT_THAT(ask(request("GET", "/readyz")),
              HasSubstr("\r\n\r\nstarting: waiting for the index of data.train: 34 %\n"));
  boost::asio::post(io_, [this] { status_.state = control::TrainerState::kPaused; });
  const std::string paused = ask(request("GET", "/readyz"));
  EXPECT_THAT(paused, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(paused, HasSubstr("paused"));
}

TEST_F(MonitoringServerTest, AnswersHeadWithHeaderOnly) {
  start();
  const std::string answer = ask(request("HEAD", "/healthz"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(MonitoringServerTest, RejectsOtherMethodsAndBodies) {
  start();
  for (const char* const method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
    EXPECT_THAT(ask(request(method, "/metrics")), StartsWith("HTTP/1.1 405 ")) << method;
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(
      ask("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
      StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(ask("\x16\x03\x01 no HTTP\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
}

TEST_F(MonitoringServerTest, ServesPageThatLoadsNothingElse) {
  start();
  const std::string answer = ask(request("GET", "/"));
  const std::string header = answer.substr(0, answer.find("\r\n\r\n"));
  EXPECT_THAT(header, HasSubstr("Content-Type: text/html"));
  EXPECT_THAT(header,
              HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'sha256-"));
  EXPECT_LE(answer.size(), size_t{1} << 20);
}

TEST_F(MonitoringServerTest, AnswersWithFilesOfRun) {
  start();
  EXPECT_THAT(ask(request("GET", "/v1/runs")), HasSubstr("\"name\":\"stoker-no-run\""));
  EXPECT_THAT(ask(request("GET", "/v1/run")), HasSubstr("\"evaluations\":[]"));
  EXPECT_THAT(ask(request("GET", "/v1/curves")), HasSubstr("\"columns\""));
  EXPECT_THAT(ask(request("HEAD", "/v1/run")), Not(HasSubstr("evaluations")));
  for (const char* const name : {"", "x.png", "..%2f..%2fetc%2fpasswd", "step-000000001.a.b.png"})
    EXPECT_THAT(ask(request("GET", std::string("/v1/artifacts/") + name)),
                StartsWith("HTTP/1.1 404 "));
}

TEST_F(MonitoringServerTest, SendsEvents) {
  start({.event_interval = 10ms});
  Client client(server_->port());
  client.send(request("GET", "/v1/events"));
  const std::string header = client.read_until("\r\n\r\n");
  EXPECT_THAT(header, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(header, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(client.read_until("\"step\":0,"), HasSubstr("event: status\ndata: {"));
  boost::asio::post(io_, [this] { status_.step = 7; });
  EXPECT_THAT(client.read_until("\"step\":7,"), HasSubstr("event: status\n"));
  EXPECT_THAT(ask(request("HEAD", "/v1/events")), HasSubstr("text/event-stream"));
}

TEST_F(MonitoringServerTest, LimitsEventStreams) {
  start({.event_streams = 2, .event_interval = 10ms});
  std::vector<std::unique_ptr<Client>> open;
  for (int i = 0; i < 2; ++i) {
    open.push_back(std::make_unique<Client>(server_->port()));
    open.back()->send(request("GET", "/v1/events"));
    open.back()->read_until("event: status");
  }
  EXPECT_THAT(ask(request("GET", "/v1/events")), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(ask(request("GET", "/healthz")), StartsWith("HTTP/1.1 200 "));
  open.clear();
  EXPECT_TRUE(test::eventually([&] {
    Client client(server_->port());
    client.send(request("GET", "/v1/events"));
    return client.read_until("\r\n").starts_with("HTTP/1.1 200 ");
  }));
}

TEST_F(MonitoringServerTest, ClosesEventStreamThatIsNotRead) {
  status_.device = std::string(1 << 20, 'x');
  start({.connections = 1, .event_bytes = 8 << 20, .event_interval = 1ms});
  Client client(server_->port());
  client.send(request("GET", "/v1/events"));
  EXPECT_THAT(client.read_until("\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(is_served_eventually("/healthz")) << "the only connection is not closed";
}

TEST_F(MonitoringServerTest, EndsEventStreamOfClientThatSendsMore) {
  start({.event_interval = 1ms});
  Client client(server_->port());
  client.send(request("GET", "/v1/events"));
  client.read_until("event: status");
  client.send("x");
  EXPECT_THAT(client.read_all(), Not(HasSubstr("HTTP/1.1")));  // until it is closed
}

// The first client does not read an artifact of more bytes than the kernel buffers.
TEST_F(MonitoringServerTest, LimitsBytesOfAnswersThatAreSent) {
  const test::TemporaryDirectory directory;
  run_dir_ = directory.path();
  const run::RunLayout layout(run_dir_);
  std::filesystem::create_directories(layout.eval_artifacts_dir());
  std::ofstream(layout.eval_artifacts_dir() + "/step-000000001.val.generated.txt")
      << std::string(7 << 20, 'x');
  start({.answer_bytes = 1});
  auto first = std::make_unique<Client>(server_->port(), 4096);
  first->send(request("GET", "/v1/artifacts/step-000000001.val.generated.txt"));
  EXPECT_THAT(first->read_until("\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(request("GET", "/v1/run")), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(ask(request("GET", "/healthz")), StartsWith("HTTP/1.1 200 "));  // has no files
  first.reset();
  EXPECT_TRUE(is_served_eventually("/v1/run")) << "the server does not see that the client is gone";
}

class HttpServerTest : public ::testing::Test {
 protected:
  ~HttpServerTest() override {
    if (!thread_.joinable()) return;
    boost::asio::post(io_, [this] { server_->stop(); });
    thread_.join();
  }
  void start(http::HttpSite site, HttpLimits limits) {
    server_ = std::make_unique<http::HttpServer>(
        io_, system_clock(), config::HttpListen{.unix_path = {}, .address = "127.0.0.1"},
        std::move(site), limits);
    ASSERT_TRUE(server_->start().ok());
    thread_ = std::thread([this] { io_.run(); });
  }
  boost::asio::io_context io_{1};
  std::unique_ptr<http::HttpServer> server_;
  std::thread thread_;
};

// Both requests are accepted before the first answer is written.
TEST_F(HttpServerTest, LimitsBytesOfAnswersThatWereQueued) {
  std::atomic<int> requests = 0;
  const auto read = [&requests] {
    for (int seen = requests; seen < 2; seen = requests) requests.wait(seen);
    return http::HttpAnswer{.body = std::string(8 << 20, 'x')};
  };
  start({.answer =
             [&](const http::HttpRequest&) {
               ++requests;
               requests.notify_all();
               return read;
             }},
        {.answer_bytes = 1});
  Client first(server_->port(), 4096), second(server_->port(), 4096);
  for (Client* const client : {&first, &second}) client->send(request("GET", "/"));
  std::vector<std::string> answers{first.read_until("\r\n"), second.read_until("\r\n")};
  std::ranges::sort(answers);
  EXPECT_THAT(answers[0], StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answers[1], StartsWith("HTTP/1.1 503 "));
}

TEST_F(HttpServerTest, AnswersAfterFunctionOfSiteThrew) {
  const auto read = [number = 0]() mutable {
    if (++number == 1) throw std::runtime_error("no memory");
    if (number == 2) throw number;  // of no type that the server knows
    return http::HttpAnswer{.body = "ok\n"};
  };
  const auto shared = std::make_shared<std::function<http::HttpAnswer()>>(read);
  start({.answer = [shared](const http::HttpRequest&) { return [shared] { return (*shared)(); }; }},
        {});
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(Client(server_->port()).ask(request("GET", "/")), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(Client(server_->port()).ask(request("GET", "/")), StartsWith("HTTP/1.1 200 "));
}

// A name that an attacker's DNS server resolves to 127.0.0.1.
TEST_F(MonitoringServerTest, RejectsHostsOfOtherSites) {
  start();
  for (const char* const host :
       {"attacker.example", "localhost.attacker.example", "127.0.0.1.example:80"})
    EXPECT_THAT(ask(request("GET", "/v1/status", host)), StartsWith("HTTP/1.1 403 ")) << host;
  for (const char* const host : {"localhost", "LOCALHOST:9750", "127.0.0.1:9750", "127.0.0.2",
                                 "[::1]:9750", "[0:0:0:0:0:0:0:1]"})
    EXPECT_THAT(ask(request("GET", "/v1/status", host)), StartsWith("HTTP/1.1 200 ")) << host;
}

TEST_F(MonitoringServerTest, RejectsRequestsWithoutHostOrWithTwo) {
  start();
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nConnection: close\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nHost: localhost\r\nHost: attacker.example\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("GET / HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MonitoringServerTest, PermitsNoUseByOtherSites) {
  start();
  const std::string answer = ask(request("GET", "/v1/status"));
  EXPECT_THAT(answer, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff"));
  EXPECT_THAT(answer, HasSubstr("Cross-Origin-Resource-Policy: same-origin"));
  EXPECT_THAT(answer, Not(HasSubstr("Access-Control-Allow-Origin")));
}

TEST_F(MonitoringServerTest, KeepsConnectionsOpen) {
  start();
  Client client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(client.read_until("ok\n"), StartsWith("HTTP/1.1 200 ")) << i;
  }
}

TEST_F(MonitoringServerTest, LimitsHeaders) {
  start();
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(9000, 'x')),
              StartsWith("HTTP/1.1 431 "));
}

TEST_F(MonitoringServerTest, LimitsTimeToSendRequest) {
  start({.header_time = test::scaled(2s), .idle_time = test::scaled(50ms)});
  Client slow(server_->port());
  slow.send("GET / HTTP/1.1\r\nHost: loc");
  Client idle(server_->port());
  idle.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(idle.read_all(), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(slow.read_all(), StartsWith("HTTP/1.1 408 "));
}

// Only the time of a request can end these connections.
TEST_F(MonitoringServerTest, LimitsTimeToSendEachRequest) {
  start({.header_time = test::scaled(50ms), .idle_time = 24h});
  for (const int requests : {0, 1, 3}) {
    Client client(server_->port());
    for (int i = 0; i < requests; ++i) {
      client.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
      EXPECT_THAT(client.read_until("ok\n"), StartsWith("HTTP/1.1 200 ")) << requests;
    }
    client.send("G");
    EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 408 ")) << requests;
  }
  // Both requests arrive together, the second one incomplete.
  EXPECT_THAT(ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\n"),
              HasSubstr("ok\nHTTP/1.1 408 "));
  EXPECT_EQ(Client(server_->port()).read_all(), "") << "a connection without a request stays open";
}

// Answers that are being written are not ended for others of the same user.
TEST_F(MonitoringServerTest, LimitsConnections) {
  status_.device = std::string(16 << 20, 'x');
  start({.connections = 2, .write_time = 24h});
  std::vector<std::unique_ptr<Client>> open;
  for (int i = 0; i < 2; ++i) {
    open.push_back(std::make_unique<Client>(server_->port(), 4096));
    open.back()->send("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(open.back()->read_until("\r\n"), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_THAT(Client(server_->port()).read_all(), StartsWith("HTTP/1.1 503 "));
  open.clear();
  EXPECT_TRUE(is_served_eventually("/healthz"));
}

// Connections of another user that last for ever unless the server closes them: these are closed, and that
// of this user stays open.
TEST_F(MonitoringServerTest, ServesUserWhileAnotherHoldsConnections) {
  if (::geteuid() != 0) GTEST_SKIP() << "requires root";
  const std::string answered = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::vector<std::pair<std::string, std::string>> patterns{
      {"sends nothing", ""},
      {"incomplete header", "GET /healthz HTTP/1.1\r\nHos"},
      {"incomplete body", "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nb"},
      {"idle after an answer", answered},
      {"incomplete second header", answered + "G"},
      {"event stream that is not read", "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"answer that is not read", "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"}};
  status_.device = std::string(16 << 20, 'x');
  constexpr int kConnections = 4;
  start({.connections = kConnections,
         .event_streams = kConnections,
         .event_bytes = size_t{1} << 40,
         .header_time = 24h,
         .idle_time = 24h,
         .write_time = 24h,
         .event_interval = 1ms});
  Client mine(server_->port());
  std::vector<std::unique_ptr<Client>> held;
  for (const auto& [pattern, bytes] : patterns) {
    for (int i = 0; i < 2 * kConnections; ++i) {
      const test::UnprivilegedUser other;
      held.push_back(std::make_unique<Client>(server_->port(), 4096));
      held.back()->send(bytes);
    }
    mine.send(answered);
    EXPECT_THAT(mine.read_until("ok\n"), StartsWith("HTTP/1.1 200 ")) << pattern;
    EXPECT_THAT(ask(request("GET", "/healthz")), StartsWith("HTTP/1.1 200 ")) << pattern;
  }
}

TEST_F(MonitoringServerTest, SharesEventStreamsBetweenUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "requires root";
  start({.event_streams = 2, .write_time = 24h, .event_interval = 1ms});
  const auto open = [&] {
    auto client = std::make_unique<Client>(server_->port());
    client->send(request("GET", "/v1/events"));
    return client;
  };
  std::vector<std::unique_ptr<Client>> held;
  for (int i = 0; i < 2; ++i) {
    const test::UnprivilegedUser other;
    held.push_back(open());
    EXPECT_THAT(held.back()->read_until("event: status"), StartsWith("HTTP/1.1 200 "));
  }
  const auto mine = open();
  EXPECT_THAT(mine->read_until("event: status"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(held[0]->read_all(), Not(HasSubstr("HTTP/1.1"))) << "the oldest stream is not closed";
  {
    const test::UnprivilegedUser other;
    held.push_back(open());
    EXPECT_THAT(held.back()->read_until("\r\n"), StartsWith("HTTP/1.1 503 "));
  }
  EXPECT_THAT(mine->read_until("event: status"), HasSubstr("event: status"));
}

TEST_F(MonitoringServerTest, ClosesOldestIncompleteRequestOfSameUser) {
  start({.connections = 2, .header_time = 24h});
  std::vector<std::unique_ptr<Client>> open;
  for (int i = 0; i < 2; ++i) {
    open.push_back(std::make_unique<Client>(server_->port()));
    // The server has begun to read the second request when it answers the first one.
    open.back()->send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\n");
    EXPECT_THAT(open.back()->read_until("ok\n"), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_THAT(ask(request("GET", "/healthz")), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(open[0]->read_all(), StartsWith("HTTP/1.1 503 "));
  open[1]->send("Host: localhost\r\n\r\n");
  EXPECT_THAT(open[1]->read_until("ok\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MonitoringServerTest, ClosesConnectionThatIsIdleLongest) {
  start({.connections = 2});
  std::vector<std::unique_ptr<Client>> open;
  for (int i = 0; i < 3; ++i) {
    open.push_back(std::make_unique<Client>(server_->port()));
    open.back()->send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(open.back()->read_until("ok\n"), StartsWith("HTTP/1.1 200 ")) << i;
  }
  EXPECT_EQ(open[0]->read_all(), "");  // closed
  open[1]->send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(open[1]->read_until("ok\n"), StartsWith("HTTP/1.1 200 "));
}

// An answer of more bytes than the kernel buffers is not written while the client does not read.
TEST_F(MonitoringServerTest, LimitsTimeToReadAnswer) {
  status_.device = std::string(64 << 20, 'x');
  start({.connections = 1, .write_time = 1s});
  Client client(server_->port());
  client.send("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.read_until("\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(is_served_eventually("/healthz")) << "the only connection is not closed";
  EXPECT_LT(client.read_all().size(), size_t{64} << 20);
}

TEST_F(MonitoringServerTest, StopsWithIncompleteRequestsAndAnswers) {
  status_.device = std::string(16 << 20, 'x');
  start();
  Client reading(server_->port()), writing(server_->port());
  reading.send("GET /healthz HTTP/1.1\r\nHost:");
  writing.send("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(writing.read_until("\r\n"), StartsWith("HTTP/1.1 200 "));
  boost::asio::post(io_, [this] {
    server_->stop();
    server_.reset();
  });
  EXPECT_EQ(reading.read_all(), "");
  EXPECT_LT(writing.read_all().size(), size_t{16} << 20);
}

TEST_F(MonitoringServerTest, ServesUnixSocket) {
  const test::TemporaryDirectory directory("/tmp");
  const std::string path = directory / "http.sock";
  UniqueFd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listening.get(), 8), 0);
  start({}, std::move(listening), path);
  EXPECT_THAT(Client(path).ask(request("GET", "/healthz", "any.example")),
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(MonitoringServerTest, NamesAddressThatIsInUse) {
  start();
  MonitoringServer second(
      io_, system_clock(),
      MonitoringOptions{.listen = {.address = "127.0.0.1", .port = server_->port()},
                        .version = "1",
                        .status = [] { return control::TrainerStatus(); }});
  const Status status = second.start();
  EXPECT_EQ(status.code(), StatusCode::kBusy);  // systemd starts it again
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1:" + std::to_string(server_->port())));
}

// ---- user_of_peer()

// Both ends of a connection over `listening`, connected as another user if this is root.
template <typename Address>
std::optional<uid_t> connected_user(int family, const Address& address) {
  const UniqueFd listening(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Address bound = address;
  socklen_t bytes = sizeof bound;
  auto* const generic = reinterpret_cast<sockaddr*>(&bound);
  EXPECT_EQ(::bind(listening.get(), generic, bytes), 0);
  EXPECT_EQ(::listen(listening.get(), 1), 0);
  EXPECT_EQ(::getsockname(listening.get(), generic, &bytes), 0);
  UniqueFd client;
  {
    const test::UnprivilegedUser other;
    client = UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(client.get(), generic, bytes), 0);
  }
  const UniqueFd accepted(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return http::user_of_peer(accepted.get());
}

TEST(PeerUserTest, NamesUserThatConnects) {
  const uid_t user = ::geteuid() == 0 ? 65534 : ::geteuid();
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connected_user(AF_INET, v4), user);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  EXPECT_EQ(connected_user(AF_INET6, v6), user);
  sockaddr_un abstract{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string name = "stoker-peer-user-" + std::to_string(::getpid());
  name.copy(abstract.sun_path + 1, sizeof abstract.sun_path - 1);
  EXPECT_EQ(connected_user(AF_UNIX, abstract), user);
}

// The kernel says of such a socket that it is root's, whose share its user would take.
TEST(PeerUserTest, IsNullForPeerThatHasClosedItsSocket) {
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof address;
  const UniqueFd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listening.get(), generic, bytes), 0);
  ASSERT_EQ(::listen(listening.get(), 1), 0);
  ASSERT_EQ(::getsockname(listening.get(), generic, &bytes), 0);
  UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), generic, bytes), 0);
  client.reset();
  const UniqueFd accepted(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(accepted.valid());
  EXPECT_EQ(http::user_of_peer(accepted.get()), std::nullopt);
}

TEST(PeerUserTest, IsNullForSocketWithoutPeer) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(http::user_of_peer(socket.get()), std::nullopt);
  EXPECT_EQ(http::user_of_peer(-1), std::nullopt);
}

}  // namespace
}  // namespace stoker::monitoring
