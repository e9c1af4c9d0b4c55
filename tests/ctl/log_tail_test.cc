#include "shared/view/log_tail.h"

#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::HasSubstr;
using view::LogTail;

class LogTailTest : public CtlTest {
 protected:
  std::string log() const { return layout().trainer_log(); }
  void append(const std::string& text) { std::ofstream(log(), std::ios::app) << text; }
  LogTail open(uint64_t lines) {
    auto tail = LogTail::open(log(), lines);
    EXPECT_TRUE(tail.ok()) << tail.status().to_string();
    return *std::move(tail);
  }
  static std::string more(LogTail& tail) {
    const auto text = tail.read_more();
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    return text.ok() ? *text : "";
  }
  // What `logs -f` prints of this log of a run that does `then` when the first line is printed, and ends.
  std::string follow(const std::string& text, const std::function<void()>& then) {
    write_file(log(), text);
    auto lock = lock_file(layout().lock_file(), "test");
    EXPECT_TRUE(lock.ok());
    // Does not depend on timing.
    struct StopAfterFirstLine : std::stringbuf {
      std::function<void()> then;
      int sync() override {
        if (then && str().find("one\n") != std::string::npos) std::exchange(then, {})();
        return 0;
      }
    } buffer;
    buffer.then = [&] {
      then();
      write_exit_status(run::RunOutcome::kStopped, 10);
      lock->fd.reset();
    };
    std::ostream out(&buffer);
    std::ostringstream err;
    const std::string root = layout().root();
    const std::array<const char*, 5> argv{"stokerctl", "--run-dir", root.c_str(), "logs", "-f"};
    EXPECT_EQ(run_stokerctl(5, argv.data(), kPiped, out, err), ExitCode::kSuccess);
    return buffer.str();
  }
};

TEST_F(LogTailTest, DoesNotSearchAllOfHugeSparseFile) {
  write_file(log(), "one\n");
  std::filesystem::resize_file(log(), uint64_t{1} << 40);
  append("two\n");
  LogTail tail = open(200);
  EXPECT_TRUE(tail.skip_to_last(4));
  EXPECT_EQ(more(tail), "two\n");
}

// As in `top`; a pipe has no colors.
TEST_F(LogTailTest, ColorsLevelsOnTerminal) {
  const std::string info = "2026-01-31T12:00:00.000Z info    one";
  const std::string warning = "2026-01-31T12:00:01.000Z warning two";
  const std::string error =
      R"({"time":"2026-01-31T12:00:02.000Z", "level":"error","event":"three"})";
  const std::string lines = info + "\n" + warning + "\n" + error + "\n";
  write_file(log(), lines);
  EXPECT_EQ(ctl({"logs"}).out, lines);
  EXPECT_EQ(ctl({"logs"}, kTerminal).out,
            info + "\n\x1b[33m" + warning + "\x1b[0m\n\x1b[31m" + error + "\x1b[0m\n");
}

TEST_F(LogTailTest, PrintsLastLines) {
  write_file(log(), "one\ntwo\nthree\n");
  EXPECT_EQ(ctl({"logs", "-n", "2"}).out, "two\nthree\n");
  EXPECT_EQ(ctl({"logs", "-n", "99"}).out, "one\ntwo\nthree\n");
  EXPECT_EQ(ctl({"logs", "-n", "0"}).out, "");
  write_file(log(), "one\ntwo\nthr");
  EXPECT_EQ(ctl({"logs", "-n", "2"}).out, "two\nthr");
  write_file(log(), "");
  EXPECT_EQ(ctl({"logs"}).out, "");
}

TEST_F(LogTailTest, PrintsNoControlCharacterOfLogs) {
  const run::RunLayout rank(layout().rank_dir(1));
  std::filesystem::create_directories(rank.logs_dir());
  const std::string line =
      "2026-01-31T12:00:00.000Z info    \x1b]0;t\x07\x1b[2J\r\u009b31m\u202e\x80";
  const std::string shown = "2026-01-31T12:00:00.000Z info    ?]0;t??[2J??31m??";
  for (const std::string end : {"\n", ""}) {
    write_file(log(), line + end);
    write_file(layout().evaluator_log(), line + end);
    write_file(rank.trainer_log(), line + end);
    EXPECT_EQ(ctl({"logs"}).out, shown + end);
    EXPECT_EQ(ctl({"logs", "--evaluator"}).out, shown + end);
    EXPECT_EQ(ctl({"logs", "--rank", "1"}).out, shown + end);
  }
  write_file(log(), line + "\n");
  EXPECT_EQ(ctl({"logs", "--all"}).out, "rank 0  " + shown + "\n");
}

TEST_F(LogTailTest, CountsLinesAcrossReadBoundaries) {
  std::string text;
  for (int i = 0; i < 60'000; ++i) text += "line " + std::to_string(i) + "\n";
  write_file(log(), text);
  for (const size_t lines : {1u, 20'000u, 59'999u, 60'000u}) {
    const std::string out = ctl({"logs", "-n", std::to_string(lines)}).out;
    EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), static_cast<std::ptrdiff_t>(lines));
    EXPECT_TRUE(text.ends_with(out));
  }
}

TEST_F(LogTailTest, ReturnsAppendedLines) {
  write_file(log(), "one\n");
  LogTail tail = open(10);
  EXPECT_EQ(more(tail), "one\n");
  EXPECT_EQ(more(tail), "");
  append("two\n");
  EXPECT_EQ(more(tail), "two\n");
}

TEST_F(LogTailTest, LosesNothingWhenLogIsRotated) {
  write_file(log(), "one\n");
  LogTail tail = open(10);
  EXPECT_EQ(more(tail), "one\n");
  append("two\n");
  std::filesystem::rename(log(), log() + ".1");
  EXPECT_EQ(more(tail), "two\n");
  EXPECT_EQ(more(tail), "") << "the new file does not exist yet";
  write_file(log(), "three\n");
  EXPECT_EQ(more(tail), "three\n");
  write_file(log(), "4\n");  // truncated and rewritten
  EXPECT_EQ(more(tail), "4\n");
}

TEST_F(LogTailTest, ReturnsLineWhenItIsComplete) {
  write_file(log(), "one\ntw");
  LogTail tail = open(2);
  EXPECT_EQ(more(tail), "one\n");
  EXPECT_EQ(*tail.read_rest(), "tw");
  append("o\nthr");
  EXPECT_EQ(*tail.read_rest(), "two\nthr");
  EXPECT_EQ(more(tail), "two\n");
  // Nothing is appended to it any more.
  std::filesystem::rename(log(), log() + ".1");
  write_file(log(), "four\n");
  EXPECT_EQ(more(tail), "thr\nfour\n");
  EXPECT_EQ(*tail.read_rest(), "");
}

TEST_F(LogTailTest, ReturnsLongLineInParts) {
  const std::string line(600'000, 'x');
  write_file(log(), line + "\nshort\n");
  LogTail tail = open(2);
  std::string text;
  for (std::string part = more(tail); !part.empty(); part = more(tail)) text += part;
  EXPECT_EQ(text, line + "\nshort\n");
}

// A full disk has no room for all of a line.
TEST_F(LogTailTest, ContinuesAfterPartOfLineIsRemoved) {
  write_file(log(), "one\ntwo\nthr");
  LogTail tail = open(2);
  EXPECT_EQ(more(tail), "two\n");
  std::filesystem::resize_file(log(), 8);
  EXPECT_EQ(more(tail), "");
  append("4\n");
  EXPECT_EQ(more(tail), "4\n");
  append("fiv");
  EXPECT_EQ(more(tail), "");
  std::filesystem::resize_file(log(), 10);
  append("6\n");
  EXPECT_EQ(more(tail), "6\n");
  append("seven");
  EXPECT_EQ(more(tail), "");
  std::filesystem::resize_file(log(), 0);
  append("8\n");
  EXPECT_EQ(more(tail), "8\n") << "truncated and rewritten";
}

TEST(MergeByTimeTest, OrdersLinesByTimeAndKeepsThatOfEachPart) {
  EXPECT_EQ(view::merge_by_time({{.source = "rank 0",
                                  .text = "2026-01-31T12:00:01.500Z info    b\n"
                                          "continued\n"
                                          "2026-01-31T12:00:03.000Z info    d\n"},
                                 {.source = "rank 1",
                                  .text = "2026-01-31T12:00:01.250Z info    a\n"
                                          "2026-01-31T12:00:02.000Z info    c\n"}}),
            "rank 1  2026-01-31T12:00:01.250Z info    a\n"
            "rank 0  2026-01-31T12:00:01.500Z info    b\n"
            "rank 0  continued\n"
            "rank 1  2026-01-31T12:00:02.000Z info    c\n"
            "rank 0  2026-01-31T12:00:03.000Z info    d\n");
  // A clock that was set back does not change the order of a log.
  EXPECT_EQ(
      view::merge_by_time({{.source = "rank 0",
                            .text = "{\"time\":\"2026-01-31T12:00:05.000Z\",\"event\":\"a\"}\n"
                                    "{\"time\":\"2026-01-31T12:00:01.000Z\",\"event\":\"b\"}\n"}}),
      "rank 0  {\"time\":\"2026-01-31T12:00:05.000Z\",\"event\":\"a\"}\n"
      "rank 0  {\"time\":\"2026-01-31T12:00:01.000Z\",\"event\":\"b\"}\n");
  EXPECT_EQ(view::merge_by_time({}), "");
}

TEST_F(LogTailTest, PrintsLogOfOneRankOrOfAll) {
  const run::RunLayout rank(layout().rank_dir(1));
  std::filesystem::create_directories(rank.logs_dir());
  write_file(log(), "2026-01-31T12:00:02.000Z info    two\n");
  write_file(rank.trainer_log(), "2026-01-31T12:00:01.000Z info    one\n");
  EXPECT_EQ(ctl({"logs", "--rank", "0"}).out, "2026-01-31T12:00:02.000Z info    two\n");
  EXPECT_EQ(ctl({"logs", "--rank", "1"}).out, "2026-01-31T12:00:01.000Z info    one\n");
  EXPECT_EQ(ctl({"logs", "--all"}).out,
            "rank 1  2026-01-31T12:00:01.000Z info    one\n"
            "rank 0  2026-01-31T12:00:02.000Z info    two\n");
  EXPECT_THAT(ctl({"logs", "--rank", "2"}).err,
              HasSubstr("no such log; the run directory has no rank 2"));
  // It exited before it opened its log.
  std::filesystem::create_directories(layout().rank_dir(2));
  EXPECT_THAT(ctl({"logs", "--rank", "2"}).err,
              HasSubstr("no such log; stokerd has not run in this directory yet"));
  EXPECT_NE(ctl({"logs", "--rank", "1", "--all"}).code, 0);
}

TEST_F(LogTailTest, CountsLinesOfAllRanksTogether) {
  const run::RunLayout rank(layout().rank_dir(1));
  std::filesystem::create_directories(rank.logs_dir());
  std::string even, odd, all;
  // More than one read returns.
  for (int minute = 10; minute < 60; ++minute) {
    for (int second = 10; second < 60; ++second) {
      const std::string text = "2026-01-31T12:" + std::to_string(minute) + ":" +
                               std::to_string(second) + ".000Z info    " + std::string(200, 'x') +
                               "\n";
      (second % 2 == 0 ? even : odd) += text;
      all += (second % 2 == 0 ? "rank 0  " : "rank 1  ") + text;
    }
  }
  write_file(log(), even + "2026-01-31T12:59:59.500Z incompl");
  write_file(rank.trainer_log(), odd);
  for (const size_t lines : {0u, 1u, 3u, 2499u, 2500u, 9999u}) {
    const std::string out = ctl({"logs", "--all", "-n", std::to_string(lines)}).out;
    EXPECT_EQ(std::count(out.begin(), out.end(), '\n'),
              static_cast<std::ptrdiff_t>(std::min<size_t>(lines, 2500)));
    EXPECT_TRUE(all.ends_with(out)) << lines;
  }
}

TEST_F(LogTailTest, StopsFollowingWhenRunIsFinished) {
  write_file(log(), "one\n");
  write_exit_status(run::RunOutcome::kFinished, 10);
  EXPECT_EQ(ctl({"logs", "-f"}).out, "one\n");
}

TEST_F(LogTailTest, FollowsLiveRunUntilItEnds) {
  EXPECT_EQ(follow("one\n", [&] { append("two\n"); }), "one\ntwo\n");
}

TEST_F(LogTailTest, PrintsNoLineThatFullDiskCuts) {
  EXPECT_EQ(follow("one\ntw",
                   [&] {
                     std::filesystem::resize_file(log(), 4);
                     append("three\nincomplete");
                   }),
            "one\nthree\nincomplete")
      << "that of a run that has ended is printed";
}

TEST_F(LogTailTest, ReadsEvaluatorLogOnRequest) {
  EXPECT_THAT(ctl({"logs", "--evaluator"}).err, HasSubstr("stoker-eval has not been started"));
  write_file(layout().evaluator_log(), "evaluated\n");
  EXPECT_EQ(ctl({"logs", "--evaluator"}).out, "evaluated\n");
  const CommandResult missing = ctl({"logs"});
  EXPECT_EQ(missing.code, 78);
  EXPECT_THAT(missing.err,
              HasSubstr("stokerd.log: no such log; stokerd has not run in this directory"));
}

// A copy of a run can be without its logs.
TEST_F(LogTailTest, TellsStateOfRunWithoutLogs) {
  write_exit_status(run::RunOutcome::kFinished, 10);
  const std::vector<std::vector<std::string>> commands = {
      {"logs"}, {"logs", "--rank", "0"}, {"logs", "--all"}};
  for (const auto& words : commands) {
    const CommandResult missing = ctl(words);
    EXPECT_EQ(missing.code, 78);
    EXPECT_THAT(missing.err, HasSubstr("stokerd.log: no such log; finished at step 10"));
  }
}

TEST_F(LogTailTest, RejectsDirectoryAsLogFile) {
  std::filesystem::create_directories(log());
  const CommandResult result = ctl({"logs"});
  EXPECT_EQ(result.code, 78);
  EXPECT_THAT(result.err, HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace stoker::ctl
