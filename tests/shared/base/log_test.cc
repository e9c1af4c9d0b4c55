#include "shared/base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <filesystem>
#include <regex>

#include <gtest/gtest.h>

#include "shared/base/file.h"

namespace stoker {
namespace {

TEST(LogTest, FormatsEventOnOneLineWithEscapedFields) {
  EXPECT_EQ(format_event("checkpoint saved", {{"step", 1200}, {"ms", 41.25}, {"path", "a b"}}),
            "checkpoint saved step=1200 ms=41.25 path=\"a b\"");
  EXPECT_EQ(format_event("odd", {{"v", "line\nbreak \"q\" \x01"}}),
            "odd v=\"line\\nbreak \\\"q\\\" \\x01\"");
  EXPECT_EQ(format_event("odd", {{"empty", ""}, {"flag", true}}), "odd empty=\"\" flag=true");
}

TEST(LogTest, EscapesControlCharactersAndInvalidUtf8) {
  EXPECT_EQ(format_event("e", {{"c1", "\u009b2J"}, {"bidi", "a\u202egpj"}, {"line", "\u2028"}}),
            "e c1=\\xc2\\x9b2J bidi=a\\xe2\\x80\\xaegpj line=\\xe2\\x80\\xa8");
  EXPECT_EQ(format_event("e", {{"raw", "\x9b[2J\xff\xc3"}, {"text", "naïve✓"}}),
            "e raw=\\x9b[2J\\xff\\xc3 text=naïve✓");
}

TEST(LogTest, ReplacesControlCharactersInProgressLine) {
  int terminal = -1, program_side = -1;
  if (::openpty(&terminal, &program_side, nullptr, nullptr, nullptr) != 0)
    GTEST_SKIP() << "no pseudoterminals on this machine";
  const UniqueFd reader(terminal), writer(program_side);
  const UniqueFd stderr_copy(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  ASSERT_EQ(::dup2(writer.get(), STDERR_FILENO), STDERR_FILENO);
  set_progress_line("waiting: /run\x1b[2J\u009b");
  set_progress_line("");
  ASSERT_EQ(::dup2(stderr_copy.get(), STDERR_FILENO), STDERR_FILENO);
  const std::string expected = "\r\033[Kwaiting: /run?[2J?\r\033[K";
  std::string text;
  pollfd readable{.fd = reader.get(), .events = POLLIN, .revents = 0};
  char byte = 0;
  while (text.size() < expected.size() && ::poll(&readable, 1, 10'000) == 1 &&
         ::read(reader.get(), &byte, 1) == 1)
    text += byte;
  EXPECT_EQ(text, expected);
}

TEST(LogTest, WritesTimeAndLevelToFile) {
  std::string directory = ::testing::TempDir() + "stoker-log-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string file = directory + "/test.log";
  ASSERT_TRUE(init_log({.level = LogLevel::kInfo, .file = file, .console = false}).ok());
  log_info("run started", {{"step", 3}});
  log_debug("below the level");
  log_warn("disk slow", {{"s", 1.5}});
  flush_log();
  const std::string text = *read_file(file, 1 << 20);
  const std::regex expected(
      R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    run started step=3\n[^\n]+Z warning disk slow s=1\.5\n)");
  EXPECT_TRUE(std::regex_match(text, expected)) << text;
  ASSERT_TRUE(init_log({.console = true}).ok());
  std::filesystem::remove_all(directory);
}

TEST(LogTest, WritesLastLineBeforeFlushReturns) {
  std::string directory = ::testing::TempDir() + "stoker-log-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string file = directory + "/test.log";
  ASSERT_TRUE(init_log({.level = LogLevel::kInfo, .file = file, .console = false}).ok());
  for (int i = 0; i < 300; ++i) {
    log_info("line", {{"number", i}});
    flush_log();
    EXPECT_TRUE(read_file(file, 1 << 20)->ends_with("number=" + std::to_string(i) + "\n")) << i;
  }
  ASSERT_TRUE(init_log({.console = true}).ok());
  std::filesystem::remove_all(directory);
}

TEST(LogTest, SetsCloseOnExecOnLogFiles) {
  namespace fs = std::filesystem;
  std::string directory = ::testing::TempDir() + "stoker-log-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string file = directory + "/test.log";
  ASSERT_TRUE(init_log({.file = file, .rotate_bytes = 100, .console = false}).ok());
  for (int i = 0; i < 10; ++i) log_info("line", {{"number", i}});  // causes several rotations
  flush_log();
  int open = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone).string() != file) continue;
    ++open;
    EXPECT_NE(::fcntl(std::stoi(entry.path().filename().string()), F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(open, 1);
  ASSERT_TRUE(init_log({.console = true}).ok());
  fs::remove_all(directory);
}

TEST(LogTest, ReportsErrorWhenFileCannotBeOpened) {
  EXPECT_FALSE(init_log({.file = "/proc/no/such/place.log", .console = false}).ok());
}

TEST(LogTest, ContinuesWithoutBlockingOnFullDisk) {
  ASSERT_TRUE(init_log({.file = "/dev/full", .console = false}).ok());
  for (int i = 0; i < 20000; ++i) log_info("event", {{"i", i}});
  flush_log();
  ASSERT_TRUE(init_log({.console = true}).ok());
}

}  // namespace
}  // namespace stoker
