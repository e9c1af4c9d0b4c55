// stoker-stacks on processes in states that a hung run can have.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::stacks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr uid_t kUnprivileged = 65534;

// A process that runs `body` and then waits for signals. Its children are in its process group.
class Target {
 public:
  explicit Target(const std::function<void()>& body = [] {}) {
    int ready[2];
    if (::pipe(ready) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ready_ = ready[1];
      body();
      say_ready();
      while (true) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    if (::read(ready[0], &byte, 1) != 1) std::abort();
    ::close(ready[0]);
  }
  ~Target() {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  // Async-signal-safe; called by the constructor if the body has not called it.
  static void say_ready() { (void)!::write(ready_, "r", 1); }

  pid_t pid() const { return pid_; }
  // Whether it gets into the state 'S', 'T', …: after it was traced, it runs for a moment.
  bool reaches(char state) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      if (text.at(text.rfind(')') + 2) == state) return true;
      std::this_thread::yield();
    }
    return false;
  }

 private:
  static inline int ready_ = -1;
  pid_t pid_ = -1;
};

struct Printed {
  std::string text;
  int code = 0;
};

Printed run(const std::string& command) {
  Printed printed;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  char bytes[4096];
  for (size_t got = 0; (got = std::fread(bytes, 1, sizeof(bytes), pipe)) > 0;)
    printed.text.append(bytes, got);
  printed.code = WEXITSTATUS(::pclose(pipe));
  return printed;
}

Printed stacks_of(pid_t pid) { return run(STOKER_STACKS " " + std::to_string(pid)); }

bool may_trace() {
  const Target target;
  return stacks_of(target.pid()).text.find("note: ") == std::string::npos;
}

class StacksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!may_trace()) GTEST_SKIP() << "ptrace is not permitted here";
  }
};

TEST_F(StacksTest, PrintsProcessAndItsChildren) {
  pid_t* const child = static_cast<pid_t*>(
      ::mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const Target target([child] {
    const pid_t pid = ::fork();
    if (pid == 0)
      while (true) ::pause();
    *child = pid;
  });
  const Printed printed = stacks_of(target.pid());
  EXPECT_EQ(printed.code, 0);
  EXPECT_THAT(
      printed.text,
      AllOf(StartsWith("process " + std::to_string(target.pid()) + " (stacks_test)"),
            HasSubstr("process " + std::to_string(*child) + " (stacks_test)"), HasSubstr("#0 "),
            HasSubstr("(libc.so.6+0x"), HasSubstr("S (sleeping)"), Not(HasSubstr("note: "))));
  ::munmap(child, sizeof(pid_t));
}

TEST_F(StacksTest, LeavesProcessAsItWas) {
  const Target running;
  stacks_of(running.pid());
  EXPECT_TRUE(running.reaches('S'));

  const Target stopped;
  ::kill(stopped.pid(), SIGSTOP);
  ASSERT_EQ(::waitpid(stopped.pid(), nullptr, WUNTRACED), stopped.pid());
  EXPECT_THAT(stacks_of(stopped.pid()).text,
              AllOf(HasSubstr("T (stopped)"), HasSubstr("Target::Target")));
  EXPECT_TRUE(stopped.reaches('T'));
}

// As on a file system whose server does not answer.
TEST_F(StacksTest, NamesThreadInUninterruptibleCall) {
  const Target target([] {
    // The parent of a vfork() waits in this way until the child ends.
    if (::vfork() == 0) {
      Target::say_ready();
      while (true) ::pause();
    }
  });
  const Printed printed = stacks_of(target.pid());
  EXPECT_EQ(printed.code, 0);
  EXPECT_THAT(printed.text, AllOf(HasSubstr("D (disk sleep)"),
                                  HasSubstr("stacks incomplete: it is in a system call that cannot "
                                            "be interrupted")));
}

TEST_F(StacksTest, ExplainsWhatIsNotPermitted) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  // The program in a folder that other users can read.
  const test::TemporaryDirectory folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  std::filesystem::copy_file(STOKER_STACKS, folder / "stoker-stacks");
  const std::string as_other_user =
      "setpriv --reuid=65534 --regid=65534 --clear-groups " + (folder / "stoker-stacks ");

  const Target of_root;
  EXPECT_THAT(run(as_other_user + std::to_string(of_root.pid())).text,
              HasSubstr("stacks incomplete: ptrace: Operation not permitted"));
  // As a worker process.
  const Target is_protected([] {
    if (::setresuid(kUnprivileged, kUnprivileged, kUnprivileged) != 0) std::abort();
    ::prctl(PR_SET_DUMPABLE, 0);
  });
  const Printed printed = run(as_other_user + std::to_string(is_protected.pid()));
  EXPECT_EQ(printed.code, 0);
  EXPECT_THAT(printed.text, AllOf(HasSubstr("only root may read its stacks"),
                                  HasSubstr("stacks_test, S (sleeping)")));
}

TEST(StacksUsageTest, RejectsInvalidArguments) {
  for (const std::string arguments : {"", "x", "1x", "0", "-1", "1 2", "99999999999999999999"})
    EXPECT_EQ(run(STOKER_STACKS " " + arguments).code, 64) << arguments;
  EXPECT_EQ(run(STOKER_STACKS " --help").code, 0);
}

TEST(StacksUsageTest, ReportsProcessThatHasEnded) {
  pid_t pid = 0;
  {
    const Target target;
    pid = target.pid();
  }
  const Printed printed = stacks_of(pid);
  EXPECT_EQ(printed.code, 66);
  EXPECT_THAT(printed.text, HasSubstr("has ended"));
}

}  // namespace
}  // namespace stoker::stacks
