#include "tests/reliability/acknowledged_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(AcknowledgedCheckpointsTest, AreReadFromLogOfAllProcesses) {
  const std::string first = "Z info    checkpoint saved step=10 bytes=1 path=/run/step-000000010\n";
  const std::string second =
      "Z info    run resumed step=10\nZ info    checkpoint saved step=30 bytes=1\n";
  EXPECT_THAT(acknowledged_steps(first + second), ElementsAre(10, 30));
  EXPECT_THAT(acknowledged_steps("Z info    checkpoint saved step=4"), IsEmpty())
      << "the number can be incomplete";
}

TEST(AcknowledgedCheckpointsTest, AreLostUnlessVisibleOrDeletedByRetention) {
  EXPECT_TRUE(none_lost({}, {}, 2));
  EXPECT_TRUE(none_lost({10, 20, 30}, {20, 30}, 2));
  EXPECT_TRUE(none_lost({10, 20, 30}, {10, 20, 30}, 2)) << "before retention";
  EXPECT_TRUE(none_lost({10, 20}, {10, 20, 30}, 2)) << "crash before the acknowledgment";
  EXPECT_FALSE(none_lost({10, 20, 30}, {20}, 2)) << "the newest is missing";
  EXPECT_FALSE(none_lost({10}, {}, 2));
  EXPECT_FALSE(none_lost({10, 20}, {30}, 2)) << "both are missing, only one is newer";
  // Of an earlier process; the newest acknowledged one is visible.
  EXPECT_FALSE(none_lost({10, 20, 30}, {30}, 2));
  EXPECT_FALSE(none_lost({10, 20, 30, 40}, {20, 40}, 2));
}

}  // namespace
}  // namespace stoker::test
