#include "shared/checkpoint/glance.h"

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>

#include "shared/base/sha256.h"
#include "tests/shared/checkpoint/store_fixture.h"

namespace stoker::checkpoint {
namespace {

class GlanceTest : public StoreFixture {};

TEST_F(GlanceTest, SeesTheManifestAndItsHash) {
  const std::string path = commit(7);
  const auto glance = glance_at(path);
  ASSERT_TRUE(glance.ok()) << glance.status().to_string();
  EXPECT_EQ(glance->manifest.step, 7U);
  EXPECT_EQ(glance->manifest_sha256, CheckpointStore::open_verified(path)->manifest_sha256());
}

TEST_F(GlanceTest, FindsWhatIsMissingOrHasAnotherSize) {
  for (const std::string& file : files_in(commit(1))) {
    const std::string name = std::filesystem::path(file).filename().string();
    std::filesystem::rename(file, scratch_ / "kept");
    EXPECT_EQ(glance_at(path_of(1)).status().code(), Code::kCorrupt) << name << " is missing";
    std::filesystem::copy_file(scratch_ / "kept", file);
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
    EXPECT_EQ(glance_at(path_of(1)).status().code(), Code::kCorrupt) << name << " is shorter";
    std::filesystem::rename(scratch_ / "kept", file);
    EXPECT_TRUE(glance_at(path_of(1)).ok()) << name;
  }
}

TEST_F(GlanceTest, ADirectoryThatIsGoneIsNoCheckpoint) { EXPECT_FALSE(glance_at(path_of(3)).ok()); }

// Or a look at what may go would itself keep it from going, and the other way round.
TEST_F(GlanceTest, NeitherHoldsNorMindsALock) {
  commit(1);
  const UniqueFd lock(::open((path_of(1) + "/SHA256SUMS").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(glance_at(path_of(1)).ok());
}

}  // namespace
}  // namespace stoker::checkpoint
