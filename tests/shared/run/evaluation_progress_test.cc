#include "shared/run/evaluation_progress.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::run {
namespace {

using namespace std::chrono_literals;

class EvaluationProgressTest : public ::testing::Test {
 protected:
  EvaluationProgressTest() { std::filesystem::create_directory(layout_.eval_dir()); }

  const test::TemporaryDirectory directory_;
  const RunLayout layout_{directory_.path()};
  ManualClock clock_;
};

TEST_F(EvaluationProgressTest, IsWrittenOnceASecondAndRemovedAtEnd) {
  EXPECT_EQ(read_evaluation_progress(layout_), std::nullopt);
  {
    EvaluationProgressWriter writer(default_file_system(), clock_, layout_);
    writer.write({.step = 7, .done = 1, .total = 100});
    EXPECT_EQ(read_evaluation_progress(layout_), std::nullopt) << "a short evaluation has none";
    clock_.advance(1s);
    const EvaluationProgress second{.step = 7, .done = 20, .total = 100};
    writer.write(second);
    EXPECT_EQ(read_evaluation_progress(layout_), second);
    clock_.advance(999ms);
    writer.write({.step = 7, .done = 30, .total = 100});
    EXPECT_EQ(read_evaluation_progress(layout_), second);
    clock_.advance(1ms);
    const EvaluationProgress third{.step = 7, .done = 5, .total = 9};
    writer.write(third);
    EXPECT_EQ(read_evaluation_progress(layout_), third);
  }
  EXPECT_FALSE(std::filesystem::exists(layout_.evaluation_progress_file()));
}

TEST_F(EvaluationProgressTest, RemovesFileOfKilledEvaluatorAtStart) {
  std::ofstream(layout_.evaluation_progress_file()) << R"({"step":7,"done":1,"total":2})";
  ASSERT_NE(read_evaluation_progress(layout_), std::nullopt);
  const EvaluationProgressWriter writer(default_file_system(), clock_, layout_);
  EXPECT_EQ(read_evaluation_progress(layout_), std::nullopt);
}

TEST_F(EvaluationProgressTest, IgnoresFileThatIsBeingWritten) {
  for (const char* const text : {"", "{\"step\":7,\"do", "{\"step\":7}", "[]"}) {
    std::ofstream(layout_.evaluation_progress_file()) << text;
    EXPECT_EQ(read_evaluation_progress(layout_), std::nullopt) << text;
  }
}

TEST_F(EvaluationProgressTest, DoesNotFollowLink) {
  std::ofstream(directory_.path() + "/other") << "other";
  {
    EvaluationProgressWriter writer(default_file_system(), clock_, layout_);
    std::filesystem::create_symlink(directory_.path() + "/other",
                                    layout_.evaluation_progress_file());
    clock_.advance(1s);
    writer.write({.step = 7, .done = 1, .total = 2});
  }
  EXPECT_EQ(std::filesystem::file_size(directory_.path() + "/other"), 5u);
}

TEST_F(EvaluationProgressTest, DoesNotWaitForReaderOfFifo) {
  EvaluationProgressWriter writer(default_file_system(), clock_, layout_);
  ASSERT_EQ(::mkfifo(layout_.evaluation_progress_file().c_str(), 0600), 0);
  clock_.advance(1s);
  writer.write({.step = 7, .done = 1, .total = 2});
  EXPECT_EQ(read_evaluation_progress(layout_), std::nullopt);
}

}  // namespace
}  // namespace stoker::run
