#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <sstream>
#include <thread>

#include <boost/json.hpp>

#include "ctl/evaluate_command.h"
#include "shared/run/evaluation_outcomes.h"
#include "shared/run/evaluation_requests.h"
#include "tests/ctl/run_fixture.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"

namespace stoker::ctl {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

class EvaluateCommandTest : public CtlTest {
 protected:
  void SetUp() override {
    CtlTest::SetUp();
    write_file(layout().config_file(),
               "data: {train: {format: text, path: x}}\nmodel: {name: gpt}\n");
    store_.emplace(layout().checkpoints_dir(), default_file_system());
    for (const uint64_t step : {200, 1000})
      ASSERT_TRUE(store_->commit(checkpoint::TrainerState(step).content()).ok());
  }
  std::vector<run::EvaluationRequest> pending() const {
    return run::read_evaluation_requests(layout())->pending;
  }
  // As the evaluator does.
  void finish(const run::EvaluationRequest& request, run::Outcome outcome,
              const std::string& reason) {
    std::ofstream(layout().evaluation_outcomes_file(), std::ios::app)
        << run::to_json_line({.step = request.step,
                              .manifest_sha256 = "m",
                              .outcome = outcome,
                              .reason = reason,
                              .request_id = request.id},
                             "now");
    std::filesystem::remove(request.path);
  }
  // Runs the command, and finishes its request.
  CommandResult wait_for(std::vector<std::string> words, run::Outcome outcome,
                         const std::string& reason) {
    std::jthread evaluator([&](const std::stop_token& stop) {
      while (!stop.stop_requested() && pending().empty()) std::this_thread::yield();
      for (const auto& request : pending()) finish(request, outcome, reason);
    });
    return ctl(std::move(words));
  }

  std::optional<checkpoint::CheckpointStore> store_;
};

TEST_F(EvaluateCommandTest, WritesRequestWithoutStokerd) {
  const CommandResult result = ctl({"evaluate", "latest"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("evaluation of step 1 000 requested; no stoker-eval is running"));
  ASSERT_EQ(pending().size(), 1u);
  EXPECT_EQ(pending()[0].step, 1000u);
  const auto json = boost::json::parse(ctl({"--json", "evaluate", "1000"}).out);
  EXPECT_EQ(json.at("request_id").as_string(), pending()[0].id) << "the same request";
  EXPECT_EQ(json.at("evaluator").as_string(), "not running");
}

TEST_F(EvaluateCommandTest, SaysNothingElseWhileEvaluatorRuns) {
  const auto lock = lock_file(layout().eval_lock_file(), "");
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(ctl({"evaluate", "200"}).out, "evaluation of step 200 requested\n");
}

TEST_F(EvaluateCommandTest, DryRunRequestsNothing) {
  EXPECT_EQ(ctl({"evaluate", "latest", "--dry-run"}).out,
            "evaluation of step 1 000 would be requested\n");
  EXPECT_EQ(ctl({"evaluate", "300", "--dry-run"}).code, 78);
  EXPECT_EQ(ctl({"evaluate", "200", "--dry-run", "--wait"}).code, 64);
  EXPECT_TRUE(pending().empty());
}

TEST_F(EvaluateCommandTest, FailsWithoutCheckpoint) {
  const CommandResult result = ctl({"evaluate", "300"});
  EXPECT_EQ(result.code, 78);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("no checkpoint of step 300; available steps: 200 1000\n"));
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1);
  EXPECT_TRUE(pending().empty());
  EXPECT_EQ(ctl({"evaluate"}).code, 64);
  EXPECT_EQ(ctl({"evaluate", "newest"}).code, 64);
}

TEST_F(EvaluateCommandTest, WaitsForMetrics) {
  write_eval(200, 1.25, "m");
  const CommandResult result =
      wait_for({"evaluate", "200", "--wait"}, run::Outcome::kEvaluated, "");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("step 200: valid loss 1.250, bits_per_byte 1.803\n"));
  EXPECT_THAT(result.err, HasSubstr("no stoker-eval is running"));
  const auto json = boost::json::parse(
      wait_for({"--json", "evaluate", "200", "--wait"}, run::Outcome::kEvaluated, "").out);
  EXPECT_EQ(json.at("step").to_number<int>(), 200);
}

// Calls a function after each drawn line.
class DrawnLines : public std::stringbuf {
 public:
  std::function<void()> on_flush;

 private:
  int sync() override {
    if (on_flush) on_flush();
    return 0;
  }
};

TEST_F(EvaluateCommandTest, WaitShowsProgressOnTerminal) {
  write_eval(200, 1.25, "m");
  const auto lock = lock_file(layout().eval_lock_file(), "evaluator");
  ASSERT_TRUE(lock.ok()) << lock.status().to_string();
  const auto write_progress = [&](const std::string& json) {
    write_file(layout().evaluation_progress_file(), json);
  };
  write_progress(R"({"step":1000,"done":5,"total":10})");
  DrawnLines drawn;
  int lines = 0;
  drawn.on_flush = [&] {
    if (++lines == 1) write_progress(R"({"step":200,"done":2500,"total":10000})");
    if (lines == 2) std::filesystem::remove(layout().evaluation_progress_file());
    if (lines == 3) finish(pending().at(0), run::Outcome::kEvaluated, "");  // the line was erased
  };
  std::ostream out(&drawn);
  std::ostringstream err;
  CommandLine command;
  command.selector = "200";
  command.wait = true;
  EXPECT_EQ(ctl::evaluate(layout(), command, {.out = out, .err = err, .style = kTerminal}, 1ms),
            ExitCode::kSuccess);
  EXPECT_THAT(
      drawn.str(),
      ::testing::AllOf(
          HasSubstr("\r\x1b[Kwaiting; evaluating step 1 000: 50 % of 10 samples"),
          HasSubstr("\r\x1b[Kevaluating step 200: 25 % of 10 000 samples\r\x1b[Kstep 200: ")));
  EXPECT_EQ(err.str(), "");
}

TEST_F(EvaluateCommandTest, WaitFailsWithReasonOfEvaluator) {
  const CommandResult corrupt =
      wait_for({"evaluate", "200", "--wait"}, run::Outcome::kCorrupt, "model.safetensors differs");
  EXPECT_EQ(corrupt.code, 65);
  EXPECT_THAT(corrupt.err, HasSubstr("step 200 was not evaluated: model.safetensors differs\n"));
  EXPECT_EQ(wait_for({"evaluate", "200", "--wait"}, run::Outcome::kSuperseded, "deleted").code, 78);
  EXPECT_EQ(wait_for({"evaluate", "200", "--wait"}, run::Outcome::kFailed, "no luck").code, 70);
}

TEST_F(EvaluateCommandTest, WaitEndsWhenRequestIsRemovedWithoutOutcome) {
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && pending().empty()) std::this_thread::yield();
    for (const auto& request : pending()) std::filesystem::remove(request.path);
  });
  const CommandResult result = ctl({"evaluate", "200", "--wait"});
  EXPECT_EQ(result.code, 78);
  EXPECT_THAT(result.err, HasSubstr("was removed without an outcome"));
}

TEST_F(EvaluateCommandTest, WaitFollowsRequestThatReplacedItsOwn) {
  write_eval(200, 1.25, "m");
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && pending().empty()) std::this_thread::yield();
    for (run::EvaluationRequest request : pending()) {
      request.id = "other";
      finish(request, run::Outcome::kEvaluated, "");
    }
  });
  EXPECT_EQ(ctl({"evaluate", "200", "--wait"}).code, 0);
}

TEST_F(EvaluateCommandTest, RetentionKeepsRequestedCheckpoint) {
  write_file(layout().config_file(),
             "data: {train: {format: text, path: x}}\nmodel: {name: gpt}\n"
             "checkpoint: {keep_last: 2, keep_unevaluated: 2}\n");
  ASSERT_TRUE(store_->commit(checkpoint::TrainerState(2000).content()).ok());
  EXPECT_THAT(ctl({"list"}).out, Not(HasSubstr("kept: unevaluated")));
  ASSERT_EQ(ctl({"evaluate", "200"}).code, 0);
  EXPECT_THAT(ctl({"list"}).out, ::testing::ContainsRegex(" 200 .* kept: unevaluated"));
}

TEST_F(EvaluateCommandTest, RequestOfRootHasNoGroupOfRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "for root only";
  constexpr uid_t kOwner = 65534;
  constexpr gid_t kGroup = 4242;
  ASSERT_EQ(::chown(layout().root().c_str(), kOwner, kOwner), 0);
  ASSERT_EQ(::chown(layout().eval_dir().c_str(), 0, kGroup), 0);
  ASSERT_EQ(::chmod(layout().eval_dir().c_str(), 0770), 0);
  ASSERT_EQ(::chmod(root_.path().c_str(), 0755), 0);
  std::vector<gid_t> before(static_cast<size_t>(::getgroups(0, nullptr)));
  ASSERT_GE(::getgroups(static_cast<int>(before.size()), before.data()), 0);
  ASSERT_EQ(::setgroups(1, &kGroup), 0);
  const CommandResult result = ctl({"evaluate", "200"});
  gid_t group = 0;
  const int num_groups = ::getgroups(1, &group);
  ASSERT_EQ(::setgroups(before.size(), before.data()), 0);
  EXPECT_EQ(result.code, 78) << result.out;
  EXPECT_THAT(result.err, HasSubstr("Permission denied"));
  EXPECT_EQ(num_groups, 1) << "the groups are not restored";
  EXPECT_EQ(group, kGroup);
}

TEST_F(EvaluateCommandTest, RequestFollowsNoLinkOutOfRun) {
  const std::string victim = path("victim");
  std::filesystem::create_directories(victim);
  std::filesystem::remove_all(layout().eval_dir());
  std::filesystem::create_directory_symlink(victim, layout().eval_dir());
  const CommandResult result = ctl({"evaluate", "200"});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr(layout().eval_dir()));
  EXPECT_TRUE(list_directory(victim)->empty());
}

TEST_F(EvaluateCommandTest, RequestOfRootBelongsToOwnerOfRun) {
  if (::geteuid() != 0) GTEST_SKIP() << "for root only";
  constexpr uid_t kOwner = 65534;
  ASSERT_EQ(::chown(layout().root().c_str(), kOwner, kOwner), 0);
  ASSERT_EQ(::chown(layout().eval_dir().c_str(), kOwner, kOwner), 0);
  ASSERT_EQ(::chmod(root_.path().c_str(), 0755), 0);
  ASSERT_EQ(ctl({"evaluate", "200"}).code, 0);
  struct stat info {};
  ASSERT_EQ(::stat(pending().at(0).path.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, kOwner);
}

}  // namespace
}  // namespace stoker::ctl
