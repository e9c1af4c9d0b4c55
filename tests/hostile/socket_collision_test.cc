// Several runs with one control.socket: started together, killed, stopped, restarted, and next to
// other programs on that path. A run never loses its socket, and a command never reaches another
// run.
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/control/socket_path.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class SocketCollisionTest : public RunTest {
 protected:
  std::string socket_path() const { return path("shared.sock"); }

  // Trains until it is ended, in the run directory and with the log of this name.
  Process daemon(const std::string& name) const {
    return Process({program("stokerd"), "--config", write_config(small_config()), "--run-dir",
                    path(name), "--set", "control.socket=" + socket_path(), "--set",
                    "train.max_steps=1000000000", "--set", "feed.num_workers=1"},
                   path(name + ".out"));
  }
  ::testing::AssertionResult is_listening(const std::string& name) const {
    if (wait_until(30s, [&] { return has_line(name, "control socket listening"); }))
      return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << name << " does not listen:\n" << log_of(name);
  }
  bool has_line(const std::string& name, const std::string& event) const {
    return log_of(name).find(event) != std::string::npos;
  }

  struct Output {
    int code = -1;
    std::string text;
  };
  Output run_program(const std::vector<std::string>& argv) const {
    const std::string log = path("program.out");
    fs::remove(log);
    Process process(argv, log);
    const auto exit = process.wait(30s);
    return {exit ? exit->code : -1, text_of(log)};
  }
  Output stokerctl(const std::string& run, const std::string& command) const {
    return run_program({program("stokerctl"), "--run-dir", path(run), command});
  }
  void expect_exit_78(Process& process, const std::string& name,
                      const testing::Matcher<std::string>& why) const {
    const auto exit = process.wait(30s);
    ASSERT_TRUE(exit.has_value()) << name << " is running";
    EXPECT_EQ(exit->code, 78) << log_of(name);
    EXPECT_THAT(log_of(name), why);
  }
  static std::string pid_text(const Process& process) {
    return "(pid " + std::to_string(process.pid()) + ")";
  }
  // The second text is that of a daemon that does not reply within two seconds.
  static testing::Matcher<std::string> names_process(const Process& process,
                                                     const std::string& run = "") {
    return AnyOf(HasSubstr(run + pid_text(process)),
                 HasSubstr("process " + std::to_string(process.pid()) + " listens there"));
  }
  ino_t socket_inode() const {
    struct stat found {};
    return ::lstat(socket_path().c_str(), &found) == 0 ? found.st_ino : 0;
  }
  UniqueFd bind_socket() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = control::SocketAddress::of(socket_path());
    EXPECT_EQ(::bind(fd.get(), address->get(), address->length()), 0);
    return fd;
  }
};

TEST_F(SocketCollisionTest, SecondRunExitsWith78AndFirstKeepsItsSocket) {
  Process first = daemon("a");
  ASSERT_TRUE(is_listening("a"));
  const ino_t inode = socket_inode();
  for (int start = 0; start < 2; ++start) {  // as a service manager that restarts it
    Process second = daemon("b");
    expect_exit_78(second, "b", names_process(first, fs::canonical(path("a")).string() + " "));
  }
  EXPECT_EQ(socket_inode(), inode);
  EXPECT_THAT(stokerctl("b", "stop").text, HasSubstr("the run has ended"));
  const Output status = stokerctl("a", "status");
  EXPECT_EQ(status.code, 0) << status.text;
  EXPECT_THAT(status.text, HasSubstr(fs::canonical(path("a")).string()));
}

TEST_F(SocketCollisionTest, CommandsForKilledRunDoNotReachItsSuccessor) {
  {
    Process killed = daemon("a");
    ASSERT_TRUE(is_listening("a"));
    killed.signal(SIGKILL);
    ASSERT_TRUE(killed.wait(30s).has_value());
  }
  ASSERT_TRUE(fs::is_socket(path("a/control.sock"))) << "the link and the socket remain";
  Process successor = daemon("b");
  ASSERT_TRUE(is_listening("b"));

  const Output stop = stokerctl("a", "stop");
  EXPECT_EQ(stop.code, 69) << stop.text;
  EXPECT_THAT(stop.text, HasSubstr(fs::canonical(path("a")).string()));
  EXPECT_THAT(stop.text, HasSubstr(fs::canonical(path("b")).string() + " " + pid_text(successor)));
  fs::create_directory_symlink(path("b"), path("link-to-b"));
  EXPECT_EQ(stokerctl("link-to-b", "status").code, 0);

  Process restarted = daemon("a");
  expect_exit_78(restarted, "a", names_process(successor));
  EXPECT_FALSE(has_line("b", "control command")) << log_of("b");
  successor.signal(SIGTERM);
  const auto end = successor.wait(30s);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0);
  EXPECT_FALSE(fs::exists(fs::symlink_status(socket_path())));
  Process again = daemon("a");
  EXPECT_TRUE(wait_until(30s, [&] { return stokerctl("a", "status").code == 0; })) << log_of("a");
}

TEST_F(SocketCollisionTest, OneOfSimultaneousStartsReplacesStaleSocket) {
  bind_socket().reset();
  const std::vector<std::string> names = {"a", "b", "c"};
  std::vector<Process> daemons;
  daemons.reserve(names.size());
  for (const std::string& name : names) daemons.push_back(daemon(name));
  size_t winner = 0;
  ASSERT_TRUE(wait_until(60s, [&] {
    size_t num_ended = 0;
    for (size_t i = 0; i < daemons.size(); ++i) {
      if (daemons[i].wait(0ms).has_value())
        ++num_ended;
      else
        winner = i;
    }
    return num_ended + 1 == daemons.size() && is_listening(names[winner]);
  }));
  for (size_t i = 0; i < daemons.size(); ++i)
    if (i != winner) expect_exit_78(daemons[i], names[i], names_process(daemons[winner]));
  EXPECT_EQ(stokerctl(names[winner], "status").code, 0);
}

TEST_F(SocketCollisionTest, StoppedDaemonKeepsItsSocket) {
  Process stopped = daemon("a");
  ASSERT_TRUE(is_listening("a"));
  stopped.signal(SIGSTOP);
  Process second = daemon("b");
  expect_exit_78(second, "b",
                 HasSubstr("process " + std::to_string(stopped.pid()) + " listens there"));
  stopped.signal(SIGCONT);
  EXPECT_EQ(stokerctl("a", "status").code, 0);
}

TEST_F(SocketCollisionTest, SocketOfSilentProgramIsNotReplaced) {
  const UniqueFd silent = bind_socket();
  ASSERT_EQ(::listen(silent.get(), 4), 0);
  const ino_t inode = socket_inode();
  Process daemon = this->daemon("a");
  expect_exit_78(daemon, "a",
                 HasSubstr("process " + std::to_string(::getpid()) + " listens there"));
  EXPECT_EQ(socket_inode(), inode);
}

TEST_F(SocketCollisionTest, CommandsReachRunThroughBindMount) {
  fs::create_directories(path("mount"));
  const std::string mount = "mount --bind '" + path("a") + "' '" + path("mount") + "'";
  fs::create_directories(path("a"));
  if (run_program({"unshare", "-m", "sh", "-c", mount}).code != 0)
    GTEST_SKIP() << "mount namespaces are not permitted here";
  Process daemon = this->daemon("a");
  ASSERT_TRUE(is_listening("a"));
  const Output status = run_program(
      {"unshare", "-m", "sh", "-c",
       mount + " && exec '" + program("stokerctl") + "' --run-dir '" + path("mount") + "' status"});
  EXPECT_EQ(status.code, 0) << status.text;
}

}  // namespace
}  // namespace stoker::test
