#include "shared/run/evaluation_requests.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::run {
namespace {

class EvaluationRequestsTest : public ::testing::Test {
 protected:
  EvaluationRequest request(uint64_t step) {
    const auto made = request_evaluation(default_file_system(), layout_, step, clock_);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? *made : EvaluationRequest();
  }
  EvaluationRequests read() const {
    const auto read = read_evaluation_requests(layout_);
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    return read.ok() ? *read : EvaluationRequests();
  }

  const test::TemporaryDirectory folder_;
  const RunLayout layout_{folder_.path()};
  ManualClock clock_;
};

TEST_F(EvaluationRequestsTest, ReadsRequestsInStepOrder) {
  EXPECT_TRUE(read().pending.empty()) << "without the directory";
  const EvaluationRequest late = request(1000), early = request(5);
  EXPECT_EQ(read().pending, (std::vector{early, late}));
  EXPECT_TRUE(read().invalid.empty());
}

TEST_F(EvaluationRequestsTest, JoinsPendingRequestOfSameStep) {
  const EvaluationRequest first = request(5);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(request(5), first);
  std::filesystem::remove(first.path);  // finished
  EXPECT_NE(request(5).id, first.id);
}

TEST_F(EvaluationRequestsTest, ReportsFilesThatAreNoRequests) {
  const EvaluationRequest valid = request(5);
  const std::string folder = layout_.evaluation_requests_dir();
  for (const char* const text : {"", "not json", "[5]", R"({"step":5})", R"({"step":-5,"id":"a"})",
                                 R"({"step":5,"id":""})", R"({"step":"5","id":"a"})"}) {
    test::write_whole(folder + "/step-000000007.json", text);
    const EvaluationRequests requests = read();
    EXPECT_EQ(requests.pending, std::vector{valid});
    ASSERT_EQ(requests.invalid.size(), 1u) << text;
    EXPECT_EQ(requests.invalid[0].path, folder + "/step-000000007.json");
    EXPECT_NE(requests.invalid[0].reason, "");
  }
  test::write_whole(folder + "/step-000000007.json", std::string(1 << 20, ' '));
  std::filesystem::create_directory(folder + "/step-000000008.json");
  EXPECT_EQ(read().invalid.size(), 2u) << "too large, and not a file";
}

TEST_F(EvaluationRequestsTest, GivesEachRequestItsOwnId) {
  EXPECT_NE(request(5).id, request(6).id) << "in the same millisecond";
}

TEST_F(EvaluationRequestsTest, FollowsNoSymlinks) {
  const std::string target = request(5).path;
  const std::string folder = layout_.evaluation_requests_dir();
  std::filesystem::create_symlink(target, folder + "/step-000000006.json");
  EXPECT_EQ(read().pending.size(), 1u);
  ASSERT_EQ(read().invalid.size(), 1u);
  EXPECT_NE(read().invalid[0].reason.find("not a regular file"), std::string::npos);
  const test::TemporaryDirectory other;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory_symlink(other.path(), folder);
  EXPECT_EQ(read_evaluation_requests(layout_).status().code(), StatusCode::kPermission);
}

TEST_F(EvaluationRequestsTest, IgnoresOtherFiles) {
  (void)request(5);
  for (const char* const name :
       {"notes.txt", "step-old.json", "step-7.json", "step-0000000007.json",
        "step-000000007.json.bak", "step-000000007x.json"})
    test::write_whole(layout_.evaluation_requests_dir() + "/" + name, "mine");
  EXPECT_EQ(read().pending.size(), 1u);
  EXPECT_TRUE(read().invalid.empty());
}

TEST_F(EvaluationRequestsTest, ReplacesInvalidFileOfSameStep) {
  test::write_whole(request(5).path, "garbage");
  const EvaluationRequest again = request(5);
  EXPECT_EQ(read().pending, std::vector{again});
}

TEST_F(EvaluationRequestsTest, IgnoresFileThatIsBeingWritten) {
  const std::string path = request(5).path;
  std::filesystem::rename(path, temporary_path(path));
  EXPECT_TRUE(read().pending.empty());
  EXPECT_TRUE(read().invalid.empty());
}

}  // namespace
}  // namespace stoker::run
