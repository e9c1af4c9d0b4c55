// Runs of others: what they leave in place of the files of a run, and who may write to it.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunOfOthersTest : public RunTest {
 protected:
  std::string config_;
};

TEST_F(RunOfOthersTest, DirectoryThatAnybodyMayWriteToIsRefused) {
  config_ = write_config(small_config());
  fs::create_directories(run_dir());
  ASSERT_EQ(::chmod(run_dir().c_str(), 0777), 0);
  EXPECT_EQ(train(config_, run_dir()).code, 78);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("chmod o-w " + run_dir()));
  ASSERT_EQ(::chmod(run_dir().c_str(), 0750), 0);
  EXPECT_EQ(train(config_, run_dir()).code, 0);
  ASSERT_EQ(::chmod((run_dir() + "/eval").c_str(), 0777), 0);
  Process evaluation = evaluator(run_dir(), {"--once"});
  EXPECT_EQ(code_of(evaluation), 78);
  EXPECT_THAT(log_of("stoker-eval"), HasSubstr("chmod o-w " + run_dir() + "/eval"));
}

TEST_F(RunOfOthersTest, FilesAreForOwnerAndGroupWhateverTheUmask) {
  config_ = write_config(small_config());
  const mode_t before = ::umask(0);
  const Exit exit = train(config_, run_dir());
  Process evaluation = evaluator(run_dir(), {"--once"});
  const int code = code_of(evaluation);
  ::umask(before);
  EXPECT_EQ(exit.code, 0);
  EXPECT_EQ(code, 0);
  for (const auto& entry : fs::recursive_directory_iterator(run_dir())) {
    struct stat info {};
    ASSERT_EQ(::lstat(entry.path().c_str(), &info), 0);
    if (S_ISLNK(info.st_mode)) continue;
    EXPECT_EQ(info.st_mode & 0027u, 0u) << entry.path();
  }
  struct stat info {};
  ASSERT_EQ(::stat((run_dir() + "/logs/stokerd.log").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0640u);
}

}  // namespace
}  // namespace stoker::test
