#include "ctl/run_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "shared/control/trainer_status.h"
#include "tests/ctl/fake_daemon.h"
#include "tests/ctl/run_fixture.h"
#include "tests/support/unprivileged_user.h"

namespace stoker::ctl {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
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
    make_removable();
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
    return read_all(fd);
  }
  static std::string read_all(const UniqueFd& fd) {
    std::string all;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
      all.append(buffer, static_cast<size_t>(n));
    return all;
  }

  // What a write, a change of attributes or a replacement changes, by path: inode, mode, owner, links,
  // size, times but that of the last access, and contents.
  static std::map<std::string, std::string> state_of(const std::string& directory) {
    std::map<std::string, std::string> entries;
    const auto add = [&](const std::string& path) {
      struct stat info {};
      EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
      std::ostringstream text;
      text << info.st_ino << " " << info.st_mode << " " << info.st_uid << " " << info.st_nlink
           << " " << info.st_size;
      for (const timespec& time : {info.st_mtim, info.st_ctim})
        text << " " << time.tv_sec << "." << time.tv_nsec;
      if (S_ISREG(info.st_mode)) text << "\n" << std::ifstream(path, std::ios::binary).rdbuf();
      entries[path] = text.str();
    };
    add(directory);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
      add(entry.path());
    return entries;
  }
  // Other users can read and connect, and no user can write, except root.
  static void make_read_only(const std::string& directory) {
    namespace fs = std::filesystem;
    for (const auto& entry : fs::recursive_directory_iterator(directory))
      fs::permissions(entry.path(), entry.is_directory() ? fs::perms(0555)
                                    : entry.is_socket()  ? fs::perms(0666)
                                                         : fs::perms(0444));
    fs::permissions(directory, fs::perms(0555));
  }

  // Undoes make_read_only() for folders.
  void make_removable() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_.path()))
      if (entry.is_directory() && !entry.is_symlink())
        std::filesystem::permissions(entry, std::filesystem::perms(0755));
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

// Of a run that has ended and of one that trains, with every request that there is, by a process that may
// write and by one that may not.
TEST_F(RunServerTest, ChangesNothingInRuns) {
  write_train_metrics(20);
  write_eval(200, 0.5);
  write_file(layout().config_file(), "train:\n  max_steps: 200\n");
  write_file(layout().trainer_log(), "2026-01-31T12:00:00.000Z info    daemon started pid=1\n");
  write_file(layout().eval_dir() + "/artifacts/step-000000200.val.generated.txt", "generated\n");
  std::filesystem::create_directories(path("runs"));
  std::filesystem::copy(layout().root(), path("runs/finished"),
                        std::filesystem::copy_options::recursive);
  std::filesystem::rename(layout().root(), path("runs/live"));
  const run::RunLayout live(path("runs/live"));
  ASSERT_TRUE(run::write_exit_status(default_file_system(), run::RunLayout(path("runs/finished")),
                                     {.outcome = run::RunOutcome::kFinished, .step = 200})
                  .ok());
  const auto lock = lock_file(live.lock_file(), "pid=1");
  ASSERT_TRUE(lock.ok());
  const auto identity = control::identify_run(live.root());
  ASSERT_TRUE(identity.ok());
  FakeDaemon daemon(
      live.control_socket(),
      [](const std::string&) {
        return R"({"id":2,"result":)" + control::to_json(control::TrainerStatus()) + "}";
      },
      control::HelloReply{.stoker_version = "1", .role = "read", .run = *identity});

  const auto request_everything = [&] {
    std::string answers;
    for (const std::string target :
         {"/", "/healthz", "/v1/runs", "/v1/run?run=live", "/v1/run?run=finished", "/v1/run",
          "/v1/curves?run=live", "/v1/curves?run=finished", "/v1/curves",
          "/v1/artifacts/step-000000200.val.generated.txt?run=live",
          "/v1/artifacts/step-000000200.val.generated.txt?run=finished"}) {
      const std::string answer = get(target);
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 ")) << target;
      answers += answer;
    }
    EXPECT_TRUE(wait_for(send("/v1/events?run=live"), "event: status\ndata: {"));
    return answers;
  };
  start(path("runs"));
  auto before = state_of(path("runs"));
  const std::string answers = request_everything();
  EXPECT_THAT(answers, AllOf(HasSubstr("\"state\":\"running\""),
                             HasSubstr("\"state\":\"finished\""), HasSubstr("generated")));
  EXPECT_EQ(state_of(path("runs")), before);

  make_read_only(path("runs"));
  std::filesystem::permissions(root_.path(), std::filesystem::perms(0755));
  before = state_of(path("runs"));
  {
    const test::UnprivilegedUser user;
    ASSERT_NE(::eaccess(path("runs/finished/config.yaml").c_str(), W_OK), 0);
    request_everything();
  }
  EXPECT_EQ(state_of(path("runs")), before);
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
