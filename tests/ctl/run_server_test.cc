#include "ctl/run_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "shared/control/trainer_status.h"
#include "tests/ctl/fake_daemon.h"
#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class RunServerTest : public CtlTest {
 protected:
  void TearDown() override {
    if (thread_.joinable()) {
      boost::asio::post(io_, [this] { server_->stop(); });
      thread_.join();
    }
    CtlTest::TearDown();
  }
  void start(const std::string& directory) {
    server_ =
        std::make_unique<RunServer>(io_, system_clock(), config::HttpListen{.address = "127.0.0.1"},
                                    directory, http::HttpLimits{.event_interval = 20ms});
    ASSERT_TRUE(server_->start().ok());
    thread_ = std::thread([this] { io_.run(); });
  }
  UniqueFd send(const std::string& target) const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = htons(server_->port()), .sin_addr = {}, .sin_zero = {}};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval timeout{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string request =
        "GET " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    return fd;
  }
  std::string get(const std::string& target) const {
    const UniqueFd fd = send(target);
    std::string all;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
      all.append(buffer, static_cast<size_t>(n));
    return all;
  }

  // Reads until `text` has arrived; false after the timeout of the socket.
  static bool wait_for(const UniqueFd& fd, const std::string& text) {
    std::string all;
    char c = 0;
    while (::recv(fd.get(), &c, 1, 0) == 1)
      if ((all += c).ends_with(text)) return true;
    return false;
  }

  boost::asio::io_context io_{1};
  std::unique_ptr<RunServer> server_;
  std::thread thread_;
};

TEST_F(RunServerTest, ServesRunsBelowDirectory) {
  write_train_metrics(20);
  write_file(path("other/a b/metrics/train.jsonl"), "");
  start(root_.path());
  const std::string runs = get("/v1/runs");
  EXPECT_THAT(runs, HasSubstr("\"name\":\"run\""));
  EXPECT_THAT(runs, HasSubstr("\"name\":\"other/a b\""));
  EXPECT_THAT(get("/v1/curves?run=run"), HasSubstr("\"step\":[10,20,"));
  EXPECT_THAT(get("/v1/run?run=other%2Fa+b"), HasSubstr("\"name\":\"other/a b\""));
  EXPECT_THAT(get("/"), HasSubstr("<!doctype html>"));
  EXPECT_THAT(get("/healthz"), HasSubstr("\r\n\r\nok\n"));
}

TEST_F(RunServerTest, SendsStatusWhileDaemonRuns) {
  write_train_metrics(20);
  const auto run = control::identify_run(layout().root());
  ASSERT_TRUE(run.ok());
  control::TrainerStatus status;
  status.feed.ready_batches = 5;
  std::optional<FakeDaemon> daemon(
      std::in_place, layout().control_socket(),
      [&](const std::string&) { return R"({"id":2,"result":)" + control::to_json(status) + "}"; },
      control::HelloReply{.stoker_version = "1", .role = "read", .run = *run});
  start(root_.path());
  const UniqueFd events = send("/v1/events?run=run");
  EXPECT_TRUE(wait_for(events, "event: status\ndata: {"));
  EXPECT_TRUE(wait_for(events, R"("ready_batches":5)"));
  daemon.reset();
  std::filesystem::remove(layout().control_socket());
  EXPECT_TRUE(wait_for(events, "event: status\ndata: null\n"));
}

TEST_F(RunServerTest, ReadsNothingOutsideOfRuns) {
  write_train_metrics(20);
  write_file(path("secret/metrics/train.jsonl"), "");
  write_file(path("secret/config.yaml"), "a secret\n");
  write_file(path("secret/logs/stokerd.log"), "2026-01-31T12:00:00.000Z error a secret\n");
  std::filesystem::remove(layout().config_file());
  std::filesystem::remove_all(layout().logs_dir());
  std::filesystem::create_symlink(path("secret/config.yaml"), layout().config_file());
  std::filesystem::create_symlink(path("secret/logs"), layout().logs_dir());
  start(layout().root());
  for (const char* const target :
       {"/v1/run?run=../secret", "/v1/run?run=%2e%2e%2fsecret", "/v1/run?run=/etc",
        "/v1/artifacts/..%2f..%2fconfig.yaml?run=run", "/etc/passwd", "/../secret"})
    EXPECT_THAT(get(target),
                ::testing::AnyOf(StartsWith("HTTP/1.1 404 "), StartsWith("HTTP/1.1 400 ")))
        << target;
  // What links out of a run lead to.
  for (const char* const target : {"/v1/run?run=run", "/v1/runs"}) {
    const std::string answer = get(target);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 ")) << target;
    EXPECT_THAT(answer, Not(HasSubstr("a secret"))) << target;
  }
}

}  // namespace
}  // namespace stoker::ctl
