#include "daemon/group/recorded_group.h"

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::group {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

// Loses a rank in its sums if told so.
class FakeGroup final : public ProcessGroup {
 public:
  int rank() const override { return 1; }
  int world_size() const override { return 2; }
  Status broadcast(const at::Tensor&, int, const std::stop_token&) override { return {}; }
  Status all_reduce_ordered(const std::vector<at::Tensor>&, const std::stop_token&) override {
    return sum_;
  }
  Status all_gather(const at::Tensor&, const std::vector<int64_t>&,
                    const std::stop_token&) override {
    return {};
  }
  Status start_all_reduce(const at::Tensor&) override { return {}; }
  Status start_reduce_scatter(const at::Tensor&, const std::vector<int64_t>&) override {
    return {};
  }
  Status finish_sums(const std::stop_token&) override { return sum_; }
  Status check_same(const SharedSettings&, const std::stop_token&) override { return {}; }
  Result<std::string> text_of_chief(const std::string& text, const std::stop_token&) override {
    return text;
  }
  Result<std::vector<std::string>> gather(const std::string& text,
                                          const std::stop_token&) override {
    return std::vector{text, text};
  }
  Status send_text(const std::string&, const std::string&) override { return {}; }
  Result<std::string> receive_text(const std::string&, int) override { return std::string(); }
  Status check_rank(int) override { return {}; }
  Status check_newest() override { return {}; }
  std::string name_of(int rank) override { return "rank " + std::to_string(rank); }
  void report_failure(const Status&) override { was_written_ = read_file(record_, 1 << 20).ok(); }

  Status sum_;
  std::string record_;        // of the recorder
  bool was_written_ = false;  // when the failure was reported
};

class RecordedGroupTest : public testing::Test {
 protected:
  std::string written() const {
    auto text = read_file(recorder_.path(), 1 << 20);
    return text.ok() ? *text : "";
  }
  std::string recorded() const { return recorder_.to_jsonl(""); }
  void lose() { fake_->sum_ = Status(StatusCode::kPeerLost, "rank 0 exited"); }

  const test::TemporaryDirectory directory_;
  FlightRecorder recorder_{
      {.rank = 1, .world_size = 2, .path = directory_ / "flight_recorder.jsonl"}};
  FakeGroup* const fake_ = new FakeGroup;
  RecordedGroup group_{std::unique_ptr<ProcessGroup>(fake_), recorder_};
  const at::Tensor tensor_ = at::zeros({2, 3}, at::kDouble);
};

TEST_F(RecordedGroupTest, RecordsEachCollective) {
  group_.begin_step(5);
  EXPECT_TRUE(group_.all_reduce_ordered({tensor_, at::zeros({4}, at::kFloat)}, {}).ok());
  EXPECT_TRUE(group_.broadcast(tensor_, 0, {}).ok());
  EXPECT_TRUE(group_.all_gather(tensor_.view({-1}), {3, 6}, {}).ok());
  EXPECT_TRUE(group_.check_same({}, {}).ok());
  EXPECT_EQ(*group_.text_of_chief("text", {}), "text");
  EXPECT_EQ(group_.gather("text", {})->size(), 2u);
  const std::string text = recorded();
  EXPECT_THAT(text, HasSubstr(R"({"sequence":1,"operation":"all_reduce_ordered","step":5,)"
                              R"("state":"completed",)"));
  EXPECT_THAT(text, HasSubstr(R"("tensors":2,"bytes":64,"sizes":[6,4])"));
  for (const char* const operation :
       {"broadcast", "all_gather", "check_same", "text_of_chief", "gather"})
    EXPECT_THAT(text, HasSubstr(std::string("\"operation\":\"") + operation +
                                R"(","step":5,"state":"completed")"));
  EXPECT_EQ(written(), "");
}

TEST_F(RecordedGroupTest, RecordsSumsInTwoPartsUntilTheyAreFinished) {
  EXPECT_TRUE(group_.start_all_reduce(tensor_).ok());
  EXPECT_TRUE(group_.start_reduce_scatter(tensor_.view({-1}), {3, 6}).ok());
  EXPECT_THAT(recorded(), HasSubstr("\"operation\":\"reduce_scatter\""));
  EXPECT_THAT(recorded(), testing::Not(HasSubstr("completed")));
  EXPECT_TRUE(group_.finish_sums({}).ok());
  EXPECT_THAT(recorded(), testing::Not(HasSubstr("\"started\"")));
}

TEST_F(RecordedGroupTest, WritesFileWhenRankIsLost) {
  lose();
  const Status lost = group_.all_reduce_ordered({tensor_}, {});
  EXPECT_EQ(lost.code(), StatusCode::kPeerLost);
  EXPECT_EQ(lost.message(),
            "rank 0 exited; this rank's last collectives: " + directory_ / "flight_recorder.jsonl");
  EXPECT_THAT(written(), HasSubstr(R"("reason":"rank 0 exited","collectives":1})"));
  EXPECT_THAT(written(),
              HasSubstr(R"("operation":"all_reduce_ordered","step":0,"state":"started")"));
  // What follows does not replace the first reason.
  EXPECT_EQ(group_.finish_sums({}).message(), "rank 0 exited");
  group_.report_failure(Status(StatusCode::kInternal, "later"));
  EXPECT_THAT(written(), HasSubstr("\"collectives\":1}"));
}

TEST_F(RecordedGroupTest, WritesFileWhenSumInTwoPartsLosesRank) {
  EXPECT_TRUE(group_.start_all_reduce(tensor_).ok());
  lose();
  EXPECT_THAT(group_.finish_sums({}).message(), EndsWith("flight_recorder.jsonl"));
  EXPECT_THAT(written(), HasSubstr(R"("operation":"all_reduce","step":0,"state":"started")"));
}

TEST_F(RecordedGroupTest, WritesFileWhenThisRankFailsInTraining) {
  group_.report_failure(Status(StatusCode::kIoError, "disk"));
  EXPECT_EQ(written(), "") << "before training";
  group_.begin_step(1);
  group_.report_failure(Status(StatusCode::kIoError, "disk"));
  EXPECT_THAT(written(), HasSubstr(R"("reason":"I/O error: disk")"));
}

// Storage can be slow, and the others would take this rank for lost.
TEST_F(RecordedGroupTest, TellsTheOthersBeforeItWritesFile) {
  fake_->record_ = recorder_.path();
  group_.begin_step(1);
  group_.report_failure(Status(StatusCode::kIoError, "disk"));
  EXPECT_FALSE(fake_->was_written_);
  EXPECT_NE(written(), "");
}

TEST_F(RecordedGroupTest, NamesNoFileThatCouldNotBeWritten) {
  std::filesystem::create_directory(recorder_.path());
  lose();
  EXPECT_EQ(group_.all_reduce_ordered({tensor_}, {}).message(), "rank 0 exited");
}

TEST_F(RecordedGroupTest, WritesNoFileAfterTheEndOfTraining) {
  group_.begin_step(1);
  recorder_.end_training();
  lose();
  EXPECT_EQ(group_.all_reduce_ordered({tensor_}, {}).message(), "rank 0 exited");
  EXPECT_EQ(written(), "");
}

TEST_F(RecordedGroupTest, WritesNoFileWhenStopped) {
  fake_->sum_ = Status(StatusCode::kCancelled, "stopped");
  EXPECT_EQ(group_.all_reduce_ordered({tensor_}, {}).message(), "stopped");
  EXPECT_EQ(written(), "");
}

}  // namespace
}  // namespace stoker::group
