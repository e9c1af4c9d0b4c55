#include "shared/base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <limits>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

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
  while (text.size() < expected.size() && ::poll(&readable, 1, 60'000) == 1 &&
         ::read(reader.get(), &byte, 1) == 1)
    text += byte;
  EXPECT_EQ(text, expected);
}

TEST(LogTest, WritesTimeAndLevelToFile) {
  const test::TemporaryDirectory directory;
  const std::string file = directory / "test.log";
  ASSERT_TRUE(init_log({.level = LogLevel::kInfo, .file = file, .console = false}).ok());
  log_info("run resumed", {{"step", 3}});
  log_debug("checkpoint deleted");  // below the level
  log_warn("checkpoint skipped", {{"seconds", 1.5}});
  flush_log();
  const std::string text = *read_file(file, 1 << 20);
  const std::regex expected(
      R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    run resumed step=3\n[^\n]+Z warning checkpoint skipped seconds=1\.5\n)");
  EXPECT_TRUE(std::regex_match(text, expected)) << text;
  ASSERT_TRUE(init_log({.console = true}).ok());
}

TEST(LogTest, WritesJsonObjects) {
  const test::TemporaryDirectory directory;
  const std::string file = directory / "test.log";
  ASSERT_TRUE(init_log({.format = LogFormat::kJson, .file = file, .console = false}).ok());
  log_warn("sample read failed", {{"ticket", 3},
                                  {"path", "a \"b\"\n\u009b2J\xff"},
                                  {"is_last", true},
                                  {"ratio", 0.5},
                                  {"loss", std::numeric_limits<double>::quiet_NaN()}});
  flush_log();
  const std::string text = *read_file(file, 1 << 20);
  ASSERT_TRUE(text.ends_with("}\n")) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 1);
  boost::json::object object = boost::json::parse(text).as_object();
  EXPECT_EQ(object["time"].as_string().size(), std::string("2026-01-31T12:00:00.123Z").size());
  object.erase("time");
  EXPECT_EQ(object, (boost::json::object{{"level", "warning"},
                                         {"event", "sample read failed"},
                                         {"ticket", 3},
                                         {"path", "a \"b\"\n\\xc2\\x9b2J\\xff"},
                                         {"is_last", true},
                                         {"ratio", 0.5},
                                         {"loss", "nan"}}));
  ASSERT_TRUE(init_log({.console = true}).ok());
}

TEST(LogEventsTest, HaveOneRowEach) {
  std::set<std::string_view> names;
  for (const LogEventInfo& event : log_events::kAll) {
    EXPECT_TRUE(names.insert(event.name).second) << event.name;
    EXPECT_NE(event.levels, 0) << event.name;
    EXPECT_TRUE(event.meaning.ends_with('.')) << event.name;
  }
  EXPECT_TRUE(has_log_event("checkpoint saved", LogLevel::kInfo));
  EXPECT_FALSE(has_log_event("checkpoint saved", LogLevel::kError));
  EXPECT_FALSE(has_log_event("checkpoint lost", LogLevel::kInfo));
}

TEST(LogTest, WritesLastLineBeforeFlushReturns) {
  const test::TemporaryDirectory directory;
  const std::string file = directory / "test.log";
  ASSERT_TRUE(init_log({.level = LogLevel::kInfo, .file = file, .console = false}).ok());
  for (int i = 0; i < 100; ++i) {
    log_info("training resumed", {{"step", i}});
    flush_log();
    EXPECT_TRUE(read_file(file, 1 << 20)->ends_with("step=" + std::to_string(i) + "\n")) << i;
  }
  ASSERT_TRUE(init_log({.console = true}).ok());
}

TEST(LogTest, SetsCloseOnExecOnLogFiles) {
  namespace fs = std::filesystem;
  const test::TemporaryDirectory directory;
  const std::string file = directory / "test.log";
  ASSERT_TRUE(init_log({.file = file, .rotate_bytes = 100, .console = false}).ok());
  for (int i = 0; i < 10; ++i)
    log_info("training resumed", {{"step", i}});  // causes several rotations
  flush_log();
  int open = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    if (target != file && target != directory.path()) continue;
    ++open;
    EXPECT_NE(::fcntl(std::stoi(entry.path().filename().string()), F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(open, 2);  // the file and its directory
  ASSERT_TRUE(init_log({.console = true}).ok());
}

TEST(LogTest, ReportsErrorWhenFileCannotBeOpened) {
  EXPECT_FALSE(init_log({.file = "/proc/no/such/place.log", .console = false}).ok());
}

TEST(LogTest, ContinuesWithoutBlockingOnFullDisk) {
  ASSERT_TRUE(init_log({.file = "/dev/full", .console = false}).ok());
  for (int i = 0; i < 20000; ++i) log_info("training resumed", {{"step", i}});
  flush_log();
  ASSERT_TRUE(init_log({.console = true}).ok());
}

std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  std::istringstream text(*read_file(file, 1 << 20));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(LogTest, ContinuesFileThatCannotBeRotated) {
  namespace fs = std::filesystem;
  const test::TemporaryDirectory directory;
  const std::string logs = directory / "logs", moved = directory / "moved";
  fs::create_directories(logs + "/test.1.log/not a file");
  ASSERT_TRUE(
      init_log({.file = logs + "/test.log", .rotate_bytes = 100, .keep_files = 1, .console = false})
          .ok());
  for (int i = 0; i < 10; ++i) log_info("training resumed", {{"step", i}});
  flush_log();
  EXPECT_EQ(lines_of(logs + "/test.log").size(), 10u);
  EXPECT_FALSE(fs::exists(logs + "/test.log.new"));
  // Rotated by the next line for which it is possible, also in a directory that was moved.
  fs::remove_all(logs + "/test.1.log");
  fs::rename(logs, moved);
  log_info("training resumed", {{"step", 10}});
  flush_log();
  EXPECT_EQ(lines_of(moved + "/test.1.log").size(), 10u);
  EXPECT_EQ(lines_of(moved + "/test.log").size(), 1u);
  EXPECT_FALSE(fs::exists(logs));
  EXPECT_EQ(std::distance(fs::directory_iterator(moved), {}), 2);
  ASSERT_TRUE(init_log({.console = true}).ok());
}

class SmallDisk {
 public:
  SmallDisk()
      : is_mounted_(::mount("tmpfs", directory_.path().c_str(), "tmpfs", 0, "size=16k") == 0) {}
  ~SmallDisk() {
    if (is_mounted_) ::umount2(directory_.path().c_str(), MNT_DETACH);
  }
  bool is_mounted() const { return is_mounted_; }
  std::string operator/(const std::string& name) const { return directory_ / name; }

 private:
  const test::TemporaryDirectory directory_;
  const bool is_mounted_;
};

// The lines of steps from `first` to, without it, the returned one.
size_t expect_steps(const std::string& file, size_t first) {
  const std::regex complete(
      R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    training resumed step=\d+)");
  for (const std::string& line : lines_of(file)) {
    EXPECT_TRUE(std::regex_match(line, complete)) << line;
    EXPECT_TRUE(line.ends_with("=" + std::to_string(first))) << line;
    ++first;
  }
  return first;
}

// The disk has room for a part of the first line that is lost.
TEST(LogTest, WritesOnlyWholeLinesToFullDisk) {
  const SmallDisk disk;
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small tmpfs here";
  const std::string file = disk / "test.log";
  ASSERT_TRUE(init_log({.file = file, .console = false}).ok());
  for (size_t i = 0; i < 1000; ++i) log_info("training resumed", {{"step", i}});
  flush_log();
  ASSERT_TRUE(init_log({.console = true}).ok());
  EXPECT_GT(expect_steps(file, 0), 100u);
  EXPECT_TRUE(read_file(file, 1 << 20)->ends_with("\n"));
}

// Two files fill the disk, so the third one is empty.
TEST(LogTest, CountsLinesLostWhileRotatingOnFullDisk) {
  const SmallDisk disk;
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small tmpfs here";
  const std::string file = disk / "test.log";
  ASSERT_TRUE(
      init_log({.file = file, .rotate_bytes = 8000, .keep_files = 3, .console = false}).ok());
  constexpr size_t kLines = 1000;
  for (size_t i = 0; i < kLines; ++i) log_info("training resumed", {{"step", i}});
  flush_log();
  size_t num_lines = 0;
  for (const char* const name : {"test.2.log", "test.1.log"})
    num_lines = expect_steps(disk / name, num_lines);
  EXPECT_EQ(std::filesystem::file_size(file), 0u);
  EXPECT_FALSE(std::filesystem::exists(disk / "test.3.log"));

  ASSERT_TRUE(std::filesystem::remove(disk / "test.2.log"));
  for (const size_t step : {kLines, kLines + 1}) log_info("training resumed", {{"step", step}});
  flush_log();
  ASSERT_TRUE(init_log({.console = true}).ok());
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 3u);
  const std::string lost = std::to_string(kLines - num_lines);
  EXPECT_TRUE(lines[0].ends_with("Z warning log lines dropped count=" + lost + " total=" + lost +
                                 " reason=\"write: No space left on device\""))
      << lines[0];
  EXPECT_TRUE(lines[1].ends_with("training resumed step=" + std::to_string(kLines))) << lines[1];
  EXPECT_TRUE(lines[2].ends_with("training resumed step=" + std::to_string(kLines + 1)));
}

TEST(LogTest, CountsDroppedLinesOnce) {
  const test::TemporaryDirectory directory;
  const std::string file = directory / "test.log";
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  // Opened for both, so that the log opens it immediately, and waits when it is full.
  UniqueFd pipe(::open(file.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(init_log({.format = LogFormat::kJson, .file = file, .console = false}).ok());
  constexpr int kLines = 20000;
  for (int i = 0; i < kLines; ++i) log_info("training resumed", {{"step", i}});
  std::string text;
  std::atomic<bool> is_flushed = false;
  const auto read_available = [&] {
    char buffer[65536];
    for (ssize_t n = 1; n > 0;) {
      n = ::read(pipe.get(), buffer, sizeof buffer);
      if (n > 0) text.append(buffer, static_cast<size_t>(n));
    }
  };
  std::thread flush([&] {
    flush_log();
    is_flushed = true;
  });
  EXPECT_TRUE(test::eventually([&] {
    read_available();
    return is_flushed.load();
  }));
  flush.join();
  ASSERT_TRUE(init_log({.console = true}).ok());
  read_available();
  int64_t num_lines = 0, num_dropped = 0, num_reports = 0, num_before = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const boost::json::object object = boost::json::parse(line).as_object();
    if (object.at("event") == "log lines dropped") {
      num_dropped = object.at("total").as_int64();
      if (++num_reports == 1) num_before = num_dropped - object.at("count").as_int64();
    } else {
      ++num_lines;
    }
  }
  EXPECT_GT(num_reports, 0);
  EXPECT_LT(num_reports, 10);
  EXPECT_GE(num_lines + num_dropped, kLines);
  // Also the reports that were dropped; other tests in this process have dropped lines, too.
  EXPECT_TRUE(num_before > 0 || num_lines + num_dropped < kLines + 10);
}

// As with a journal that hangs.
TEST(LogTest, ContinuesWhileStandardErrorBlocks) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  const UniqueFd stderr_copy(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  ASSERT_TRUE(init_log({.console = true}).ok());
  const auto default_action = ::signal(SIGPIPE, SIG_IGN);
  ASSERT_EQ(::dup2(writer.get(), STDERR_FILENO), STDERR_FILENO);
  for (int i = 0; i < 20000; ++i) log_info("training resumed", {{"step", i}});
  flush_log();
  int waiting_bytes = 0;
  EXPECT_EQ(::ioctl(reader.get(), FIONREAD, &waiting_bytes), 0);
  EXPECT_GT(waiting_bytes, 0);
  reader.reset();  // the log's thread continues
  flush_log();
  ASSERT_EQ(::dup2(stderr_copy.get(), STDERR_FILENO), STDERR_FILENO);
  ::signal(SIGPIPE, default_action);
}

}  // namespace
}  // namespace stoker
