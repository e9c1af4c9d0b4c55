#include "ctl/class_report.h"

#include <boost/json.hpp>

#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::HasSubstr;

// All cats are classified correctly, most dogs are predicted as cats, and nothing is predicted as a
// bird.
class ClassReportCommandTest : public CtlTest {
 protected:
  void write_result(uint64_t step) {
    run::DatasetResult dataset{.dataset = "test", .samples = 20, .metrics = {{"loss", 1.0}}};
    dataset.classes = {
        {"cat", 10, 0.625, 1.0, 0.769}, {"dog", 8, 0.75, 0.375, 0.5}, {"bird", 2, 0.0, 0.0, 0.0}};
    dataset.confusion_matrix = {{10, 0, 0}, {5, 3, 0}, {1, 1, 0}};
    const run::EvalResult result{
        .step = step,
        .manifest_sha256 = "",
        .datasets = {{.dataset = "valid", .samples = 5, .metrics = {{"loss", 2.0}}}, dataset},
        .seconds = 1,
        .created = "2026-01-31T12:00:00.000Z"};
    ASSERT_TRUE(run::write_eval_result(default_file_system(), layout().eval_dir(), result).ok());
  }
  void SetUp() override {
    CtlTest::SetUp();
    write_file(layout().config_file(), "");
  }
};

TEST_F(ClassReportCommandTest, SortsWorstClassAndLargestConfusionFirst) {
  write_result(800);
  write_result(1200);
  const CommandResult result = ctl({"class-report"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out,
            "step 1 200, test\n"
            "  class  support  precision %  recall %  F1 %\n"
            "  -----  -------  -----------  --------  ----\n"
            "  bird         2          0.0       0.0   0.0\n"
            "  dog          8         75.0      37.5  50.0\n"
            "  cat         10         62.5     100.0  76.9\n"
            "\n"
            "  label  prediction  samples  % of label\n"
            "  -----  ----------  -------  ----------\n"
            "  dog    cat               5        62.5\n"
            "  bird   cat               1        50.0\n"
            "  bird   dog               1        50.0\n");
  EXPECT_EQ(ctl({"class-report", "800", "--dataset", "test"}).out.substr(0, 14), "step 800, test");
}

TEST_F(ClassReportCommandTest, WritesAllFieldsAsJson) {
  write_result(1200);
  const auto value = boost::json::parse(ctl({"--json", "class-report", "latest"}).out);
  EXPECT_EQ(value.at("step").to_number<int>(), 1200);
  EXPECT_EQ(value.at("per_class").as_array().size(), 3u);
  EXPECT_EQ(value.at("per_class").at(0).at("name").as_string(), "bird");
  EXPECT_EQ(value.at("confused").at(0).at("samples").to_number<int>(), 5);
  EXPECT_EQ(value.at("confused").at(0).at("fraction").to_number<double>(), 0.625);
}

TEST_F(ClassReportCommandTest, ReportsMissingResultStepOrDataset) {
  EXPECT_THAT(ctl({"class-report"}).err, HasSubstr("no evaluation yet"));
  EXPECT_NE(ctl({"class-report"}).code, 0);
  write_result(1200);
  EXPECT_THAT(ctl({"class-report", "1300"}).err, HasSubstr("no evaluation result for step 1300"));
  const CommandResult unknown = ctl({"class-report", "--dataset", "valid"});
  EXPECT_THAT(unknown.err, HasSubstr("no per-class metrics for dataset 'valid'"));
  EXPECT_THAT(unknown.err, HasSubstr("datasets: valid test"));
  EXPECT_EQ(ctl({"class-report", "newest"}).code, 64);
}

TEST_F(ClassReportCommandTest, ReportsCorruptResultFile) {
  write_file(run::eval_result_path(layout().eval_dir(), 7), "{\"step\":7,");
  const CommandResult result = ctl({"class-report", "7"});
  EXPECT_EQ(result.code, 74);
  EXPECT_THAT(result.err, HasSubstr("step-000000007.json"));
}

}  // namespace
}  // namespace stoker::ctl
