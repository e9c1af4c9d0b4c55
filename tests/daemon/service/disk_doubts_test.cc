#include "daemon/service/disk_doubts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::service {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(DiskDoubts, FaultRow25ThereAreNoneAboutADiskOfThisMachine) {
  constexpr int64_t kExt4 = 0xef53;
  EXPECT_THAT(disk_doubts({.lock_is_seen = true, .kind = kExt4}), IsEmpty());
}

TEST(DiskDoubts, FaultRow25LocksThatDoNotLockAreTold) {
  EXPECT_THAT(disk_doubts({.lock_is_seen = false}),
              ElementsAre(HasSubstr("locks (flock) do not work there")));
}

TEST(DiskDoubts, FaultRow25ANetworkIsNamedWithWhatToSet) {
  EXPECT_THAT(disk_doubts({.lock_is_seen = true, .kind = 0x6969}),
              ElementsAre(AllOf(HasSubstr("NFS"), HasSubstr("checkpoint.min_age_seconds"))));
}

TEST(DiskDoubts, ALockThatIsHeldIsSeenAndOneThatIsNotIsNot) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "LOCK";
  {
    const auto lock = lock_file(path, "me");
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(look_at_disk(path).lock_is_seen);
    EXPECT_NE(look_at_disk(path).kind, 0);
  }
  EXPECT_FALSE(look_at_disk(path).lock_is_seen);
}

}  // namespace
}  // namespace stoker::service
