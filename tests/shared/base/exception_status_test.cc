#include "shared/base/exception_status.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <future>
#include <iterator>
#include <new>
#include <stdexcept>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

Status status_of_errno(int error) {
  return to_status(std::system_error(error, std::generic_category(), "thread"));
}

// 70 is for defects: what the system refuses has the code of its errno.
TEST(ExceptionStatusTest, HasTheCodeOfTheSystem) {
  EXPECT_EQ(to_status(std::bad_alloc()).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(to_status(std::logic_error("x")).code(), StatusCode::kInternal);
  EXPECT_EQ(status_of_errno(ENOSPC).code(), StatusCode::kNoSpace);
  EXPECT_EQ(status_of_errno(EIO).code(), StatusCode::kIoError);
  EXPECT_EQ(status_of_errno(ENOMEM).code(), StatusCode::kOutOfMemory);
  const std::filesystem::filesystem_error gone("open", "data/a.csv",
                                               std::error_code(ENOENT, std::generic_category()));
  EXPECT_EQ(to_status(gone).code(), StatusCode::kNotFound);
  EXPECT_THAT(to_status(gone).message(), HasSubstr("data/a.csv"));
  EXPECT_EQ(to_status(std::system_error(std::make_error_code(std::future_errc::no_state))).code(),
            StatusCode::kInternal)
      << "no errno";
}

TEST(ExceptionStatusTest, NamesTheLimitOfThreads) {
  const Status status = status_of_errno(EAGAIN);
  EXPECT_EQ(status.code(), StatusCode::kBusy);
  EXPECT_EQ(exit_code_for(status), ExitCode::kLocked);
  EXPECT_THAT(status.message(), HasSubstr("a limit on processes and threads is reached"));
  EXPECT_THAT(describe_thread_limits(), AnyOf(HasSubstr("ulimit -u"), HasSubstr("TasksMax="),
                                              HasSubstr("kernel.threads-max")));
}

TEST(ThreadLimitTest, PermitsSomeThreads) { EXPECT_TRUE(check_thread_limit(3).ok()); }

// In a child process, which becomes a user without other processes: the limit does not apply to root.
TEST(ThreadLimitDeathTest, CountsThreadsThatTheSystemPermits) {
  constexpr uid_t kUnused = 64327;
  const auto check_under_limit = [] {
    if (::getuid() == 0 && ::setresuid(kUnused, kUnused, kUnused) != 0) ::_exit(2);
    // ThreadSanitizer has a thread of its own, which starts with the first other one.
    if (!check_thread_limit(1).ok()) ::_exit(5);
    const auto running =
        static_cast<rlim_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                                          std::filesystem::directory_iterator()));
    const rlim_t most = running + 3;
    const rlimit limit{.rlim_cur = ::getuid() == kUnused ? most : 1, .rlim_max = most};
    if (::setrlimit(RLIMIT_NPROC, &limit) != 0) ::_exit(3);
    // Three of them are permitted each time: the threads of the call before are gone.
    for (int i = 0; ::getuid() == kUnused && i < 100; ++i)
      if (!check_thread_limit(3).ok()) ::_exit(4);
    const Status status = check_thread_limit(20);
    std::fputs(status.message().c_str(), stderr);
    ::_exit(status.code() == StatusCode::kBusy ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(check_under_limit(), testing::ExitedWithCode(0),
              "needs 20 more processes and threads, and can start [0-3]: .* of user [0-9]+ "
              "\\(ulimit -u, LimitNPROC= of a service\\)");
}

}  // namespace
}  // namespace stoker
