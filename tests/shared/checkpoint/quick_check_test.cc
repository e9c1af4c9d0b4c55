#include "shared/checkpoint/quick_check.h"

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>

#include "shared/base/sha256.h"
#include "tests/shared/checkpoint/store_fixture.h"

namespace stoker::checkpoint {
namespace {

class QuickCheckTest : public StoreFixture {};

TEST_F(QuickCheckTest, ReturnsManifestAndItsHash) {
  const std::string path = commit(7);
  const auto check = quick_check(path);
  ASSERT_TRUE(check.ok()) << check.status().to_string();
  EXPECT_EQ(check->manifest.step, 7U);
  EXPECT_EQ(check->manifest_sha256, CheckpointStore::open_verified(path)->manifest_sha256());
}

TEST_F(QuickCheckTest, ReportsCorruptOnMissingOrResizedFile) {
  for (const std::string& file : files_in(commit(1))) {
    const std::string name = std::filesystem::path(file).filename().string();
    std::filesystem::rename(file, scratch_ / "kept");
    EXPECT_EQ(quick_check(path_of(1)).status().code(), StatusCode::kCorrupt)
        << name << " is missing";
    std::filesystem::copy_file(scratch_ / "kept", file);
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
    EXPECT_EQ(quick_check(path_of(1)).status().code(), StatusCode::kCorrupt)
        << name << " is shorter";
    std::filesystem::rename(scratch_ / "kept", file);
    EXPECT_TRUE(quick_check(path_of(1)).ok()) << name;
  }
}

TEST_F(QuickCheckTest, ReportsErrorOnMissingDirectory) {
  EXPECT_FALSE(quick_check(path_of(3)).ok());
}

// Or a look at what may go would itself keep it from going, and the other way round.
TEST_F(QuickCheckTest, AcquiresNoLockAndIgnoresExistingLock) {
  commit(1);
  const UniqueFd lock(::open((path_of(1) + "/SHA256SUMS").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(quick_check(path_of(1)).ok());
}

}  // namespace
}  // namespace stoker::checkpoint
