#include "shared/base/machine.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/cgroup.h"
#include "tests/support/temporary_directory.h"

namespace stoker {
namespace {

using ::testing::MatchesRegex;

class MachineTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text) const {
    std::ofstream(folder_ / "file") << text;
    return folder_ / "file";
  }
  const std::string cores_ = std::to_string(num_usable_cores()) + " x ";
  const test::TemporaryDirectory folder_;
};

TEST_F(MachineTest, DescribesProcessorOfFirstCore) {
  EXPECT_EQ(describe_processor(write("processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\n"
                                     "model name\t: AMD EPYC\n\n"
                                     "processor\t: 1\nmodel name\t: other\n")),
            cores_ + "AMD EPYC, family 25, model 17");
}

TEST_F(MachineTest, UsesArchitectureOfProcessorWithoutName) {
  EXPECT_THAT(describe_processor(write("processor\t: 0\nBogoMIPS\t: 50.00\n")),
              MatchesRegex(cores_ + "[a-z0-9_]+"));
  EXPECT_THAT(describe_processor(folder_ / "missing"), MatchesRegex(cores_ + "[a-z0-9_]+"));
}

TEST_F(MachineTest, DescribesDistributionAndKernel) {
  EXPECT_THAT(describe_system(write("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n")),
              MatchesRegex("Debian GNU/Linux 12 \\(bookworm\\), Linux [0-9].*"));
  EXPECT_THAT(describe_system(write("PRETTY_NAME=Alpine\n")),
              MatchesRegex("Alpine, Linux [0-9].*"));
  EXPECT_THAT(describe_system(folder_ / "missing"), MatchesRegex("Linux [0-9].*"));
}

TEST_F(MachineTest, ReplacesControlCharacters) {
  EXPECT_THAT(describe_system(write("PRETTY_NAME=\"a\x1b[31m\"\n")),
              MatchesRegex("a\\?\\[31m, Linux [0-9].*"));
}

}  // namespace
}  // namespace stoker
