// Runs scripts with recorded outcomes: the examples of docs/queues.md, and schedules whose outcomes
// were those of TensorFlow.
#include "tests/shared/queue/queue_script.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"

namespace stoker::queue {
namespace {

using ::testing::HasSubstr;

std::string read_text(const std::string& path) {
  const auto text = read_file(path, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return text.ok() ? *text : "";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) lines.push_back(line);
  return lines;
}

// A message is compared only where the expected outcome has one.
std::string comparable(const std::string& line, bool with_message) {
  boost::json::object outcome = boost::json::parse(line).as_object();
  if (!with_message) outcome.erase("message");
  return boost::json::serialize(outcome);
}

// Runs the operations in `text`, and compares their outcomes with those in it.
void replay(const std::string& text) {
  std::vector<std::string> expected;
  std::ostringstream out;
  QueueScript script(out);
  for (const std::string& line : lines_of(text)) {
    if (boost::json::parse(line).as_object().contains("id")) expected.push_back(line);
    const Status status = script.run_line(line);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  ASSERT_TRUE(script.finish().ok());
  const std::vector<std::string> actual = lines_of(out.str());
  for (size_t i = 0; i < std::max(actual.size(), expected.size()); ++i) {
    ASSERT_LT(i, actual.size()) << "missing: " << expected[i];
    ASSERT_LT(i, expected.size()) << "not expected: " << actual[i];
    const bool with_message = expected[i].find("\"message\"") != std::string::npos;
    EXPECT_EQ(comparable(actual[i], with_message), comparable(expected[i], with_message));
  }
}

TEST(QueueScriptTest, HasRecordedOutcomesOfTensorFlow) {
  size_t schedules = 0;
  for (const auto& entry : std::filesystem::directory_iterator(QUEUE_RECORDED_DIR)) {
    SCOPED_TRACE(entry.path().filename().string());
    replay(read_text(entry.path()));
    ++schedules;
  }
  EXPECT_GE(schedules, 24u);
}

TEST(QueueScriptTest, HasDocumentedOutcomes) {
  const std::string document = read_text(QUEUE_DOCUMENT);
  const std::string begin = "```json\n";
  size_t examples = 0;
  for (size_t at = 0; (at = document.find(begin, at)) != std::string::npos; ++examples) {
    at += begin.size();
    SCOPED_TRACE("example " + std::to_string(examples + 1));
    replay(document.substr(at, document.find("```", at) - at));
  }
  EXPECT_EQ(examples, 10u);
}

TEST(QueueScriptTest, RejectsInvalidLines) {
  std::ostringstream out;
  QueueScript script(out);
  EXPECT_EQ(script.run_line("[]").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(script.run_line("{").code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(script.run_line(R"({"op": "dequeue", "queue": "q", "at": "t"})").message(),
              HasSubstr("no queue 'q'"));
  EXPECT_THAT(script.run_line(R"({"op": "dequeue", "queue": "q"})").message(), HasSubstr("\"at\""));
}

TEST(QueueScriptTest, CancelsBlockedOperationsAtEnd) {
  std::ostringstream out;
  {
    QueueScript script(out);
    for (const char* const line :
         {R"({"op": "make", "queue": "q", "type": "FIFOQueue", "dtypes": ["I64"]})",
          R"({"op": "dequeue", "queue": "q", "at": "t"})",
          R"({"op": "dequeue", "queue": "q", "at": "t"})"})
      ASSERT_TRUE(script.run_line(line).ok());
    ASSERT_TRUE(script.finish().ok());
  }
  EXPECT_EQ(lines_of(out.str()),
            (std::vector<std::string>{R"({"id":2,"at":"t","op":"dequeue","blocked":true})"}));
}

}  // namespace
}  // namespace stoker::queue
