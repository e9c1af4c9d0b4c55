#include "shared/control/thread_table.h"

#include <gtest/gtest.h>

#include "shared/base/clock.h"

namespace stoker::control {
namespace {

using namespace std::chrono_literals;

TEST(ThreadTableTest, ReturnsWhatWasRendered) {
  const auto now = system_clock().monotonic();
  ThreadList list{.threads = {}, .library_threads = 3};
  list.threads.push_back({.name = "examples/enqueue-0",
                          .tid = 4712,
                          .is_queue_thread = true,
                          .queue = "examples",
                          .operation = "enqueue_many 3/6",
                          .state = ThreadState::kWaiting,
                          .since = now - 90s});
  list.threads.push_back(
      {.name = "a \"b\"\n\xff", .state = ThreadState::kNotStarted, .since = now});
  const ThreadTable table = make_thread_table(list);
  EXPECT_GE(table.rows[0].seconds, 90);
  EXPECT_TRUE(parse_iso8601(table.rows[0].since).has_value());
  const std::string json = to_json(table);
  EXPECT_EQ(json.find('\n'), std::string::npos);
  const auto parsed = parse_thread_table(json);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->library_threads, 3u);
  ASSERT_EQ(parsed->rows.size(), 2u);
  const ThreadRow& row = parsed->rows[0];
  EXPECT_EQ(row.name, "examples/enqueue-0");
  EXPECT_EQ(row.tid, 4712);
  EXPECT_TRUE(row.is_queue_thread);
  EXPECT_EQ(row.queue, "examples");
  EXPECT_EQ(row.operation, "enqueue_many 3/6");
  EXPECT_EQ(row.state, ThreadState::kWaiting);
  EXPECT_EQ(row.since, table.rows[0].since);
  EXPECT_EQ(row.seconds, table.rows[0].seconds);
  EXPECT_EQ(parsed->rows[1].state, ThreadState::kNotStarted);
  EXPECT_EQ(parsed->rows[1].name, "a \"b\"\n\xef\xbf\xbd");
}

TEST(ThreadTableTest, RejectsOtherReplies) {
  const std::string row =
      R"({"name":"a","tid":1,"is_queue_thread":false,"queue":"","operation":"","state":"running",)"
      R"("since":"","duration_seconds":1})";
  EXPECT_TRUE(parse_thread_table(R"({"threads":[)" + row + R"(],"library_threads":0})").ok());
  for (const std::string& text :
       {std::string("nonsense"), std::string("{}"), std::string(R"({"threads":[]})"),
        std::string(R"({"threads":{},"library_threads":0})"),
        std::string(R"({"threads":[{}],"library_threads":0})"),
        R"({"threads":[)" + row + R"(],"library_threads":-1})"})
    EXPECT_EQ(parse_thread_table(text).status().code(), StatusCode::kCorrupt) << text;
  std::string unknown = row;
  unknown.replace(unknown.find("running"), 7, "dancing");
  EXPECT_EQ(
      parse_thread_table(R"({"threads":[)" + unknown + R"(],"library_threads":0})").status().code(),
      StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stoker::control
