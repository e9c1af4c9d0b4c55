#include "daemon/server/file_requests.h"

#include <future>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "tests/support/temporary_directory.h"

namespace stoker::server {
namespace {

using ::testing::HasSubstr;

TEST(FileRequests, AnswersNextRequestAfterReplyThrew) {
  const test::TemporaryDirectory directory;
  const std::string log = directory / "test.log";
  ASSERT_TRUE(init_log({.file = log, .console = false}).ok());
  {
    FileRequests requests([](const auto&, const auto&) { return std::string("lines"); }, 2);
    std::promise<Result<std::string>> reply;
    requests.post(control::ReadLogs{}, [](const auto&) { throw std::runtime_error("broken"); });
    requests.post(control::ReadLogs{},
                  [&reply](Result<std::string> result) { reply.set_value(std::move(result)); });
    EXPECT_EQ(*reply.get_future().get(), "lines");
  }
  flush_log();
  EXPECT_THAT(*read_file(log, 1 << 20), HasSubstr("control command command=logs result="));
  EXPECT_THAT(*read_file(log, 1 << 20), HasSubstr("broken"));
  ASSERT_TRUE(init_log({.console = true}).ok());
}

}  // namespace
}  // namespace stoker::server
