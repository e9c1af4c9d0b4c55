#include "daemon/service/durability_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::service {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(DurabilityCheckTest, ReportsNoWarningsForLocalDisk) {
  constexpr int64_t kExt4 = 0xef53;
  EXPECT_THAT(durability_warnings({.lock_is_seen = true, .kind = kExt4}), IsEmpty());
}

TEST(DurabilityCheckTest, WarnsWhenLocksDoNotWork) {
  EXPECT_THAT(durability_warnings({.lock_is_seen = false}),
              ElementsAre(HasSubstr("locks (flock) do not work there")));
}

TEST(DurabilityCheckTest, WarnsOnNetworkFileSystemWithSettingToChange) {
  EXPECT_THAT(durability_warnings({.lock_is_seen = true, .kind = 0x6969}),
              ElementsAre(AllOf(HasSubstr("NFS"), HasSubstr("checkpoint.min_age_seconds"))));
}

TEST(DurabilityCheckTest, DetectsWhetherLockIsHeld) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "LOCK";
  {
    const auto lock = lock_file(path, "me");
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(inspect_file_system(path).lock_is_seen);
    EXPECT_NE(inspect_file_system(path).kind, 0);
  }
  EXPECT_FALSE(inspect_file_system(path).lock_is_seen);
}

}  // namespace
}  // namespace stoker::service
