#include "shared/feed/worker_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace stoker::feed {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::Key;

// The descriptors of a process and the files that they refer to.
std::map<int, std::string> descriptors_of(pid_t pid) {
  std::map<int, std::string> descriptors;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error))
    descriptors[std::stoi(entry.path().filename())] =
        std::filesystem::read_symlink(entry.path(), error);
  return descriptors;
}

TEST(WorkerProcessTest, InheritsNoOtherDescriptors) {
  const UniqueFd passed(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const UniqueFd low(::open("/dev/zero", O_RDONLY));
  const UniqueFd high(::fcntl(low.get(), F_DUPFD, 200));
  ASSERT_TRUE(passed.valid() && low.valid() && high.valid());
  // Any program that waits.
  const auto process = WorkerProcess::spawn("/bin/sleep", {"600"}, std::to_array({passed.get()}));
  ASSERT_TRUE(process.ok()) << process.status().to_string();
  std::map<int, std::string> descriptors;
  EXPECT_TRUE(test::eventually([&] {  // while it starts, it has its libraries open
    descriptors = descriptors_of(process->pid());
    return descriptors.size() == 4;
  }));
  ASSERT_THAT(descriptors, ElementsAre(Key(0), Key(1), Key(2), Key(3)));
  EXPECT_EQ(descriptors[STDIN_FILENO], "/dev/null");
  EXPECT_EQ(descriptors[STDOUT_FILENO], "/dev/null");
  EXPECT_EQ(descriptors[WorkerProcess::kFirstFd], "/dev/zero");
}

}  // namespace
}  // namespace stoker::feed
