// Valid checkpoints that are corrupted afterwards: all corruption is detected before anything is
// used, and the file is reported.
#include "shared/checkpoint/verify.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "shared/base/hash.h"
#include "shared/checkpoint/manifest.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"

namespace stoker::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CheckpointVerificationTest : public StoreFixture {
 protected:
  void SetUp() override {
    path_ = commit(5);
    ASSERT_EQ(files().size(), 5U);
    manifest_ = *parse_manifest(*read_file(path_ + "/manifest.json", 1 << 20), "m");
  }
  std::vector<std::string> files() const {
    const std::vector<std::string> files = files_in(path_);
    EXPECT_EQ(files.size(), 5U);
    return files;
  }
  void expect_corrupt(const std::string& file) {
    const auto opened = CheckpointStore::open_verified(path_);
    ASSERT_FALSE(opened.ok()) << file << ": not noticed";
    EXPECT_EQ(opened.status().code(), StatusCode::kCorrupt) << opened.status().to_string();
    EXPECT_THAT(opened.status().message(), HasSubstr(fs::path(file).filename().string()));
    EXPECT_THAT(opened.status().message(), HasSubstr(path_));
    EXPECT_EQ(opened.status().message().find('\n'), std::string::npos);
  }
  // In place: thousands of truncations would be slow because of syncs.
  static void overwrite(const std::string& file, const std::string& content) {
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out << content << std::flush;
    ASSERT_TRUE(out.good());
  }
  // Expects kCorrupt with this content of the file, and restores it.
  void with(const std::string& file, const std::string& content) {
    const std::string before = *read_file(file, 1 << 20);
    test::write_whole(file, content);
    expect_corrupt(file);
    test::write_whole(file, before);
  }
  // A manually edited manifest with matching checksums.
  void forge_manifest(const std::string& json) {
    const std::string checksums_path = path_ + "/SHA256SUMS";
    std::vector<Checksum> sums =
        *parse_checksums(*read_file(checksums_path, 1 << 20), checksums_path);
    for (Checksum& sum : sums)
      if (sum.name == "manifest.json") sum.sha256 = sha256_hex(json);
    test::write_whole(path_ + "/manifest.json", json);
    test::write_whole(checksums_path, format_checksums(sums));
  }

  std::string path_;
  Manifest manifest_;  // as committed
};

TEST_F(CheckpointVerificationTest, RejectsFlippedBitInAnyByteOfAnyFile) {
  for (const std::string& file : files()) {
    const std::string content = *read_file(file, 1 << 20);
    for (size_t at = 0; at < content.size(); ++at) {
      std::string flipped = content;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
      SCOPED_TRACE(file + " at byte " + std::to_string(at));
      overwrite(file, flipped);
      expect_corrupt(file);
      overwrite(file, content);
      if (HasFailure()) return;
    }
  }
  EXPECT_TRUE(is_complete(path_, 5));
}

TEST_F(CheckpointVerificationTest, RejectsTruncatedExtendedOrZeroedFiles) {
  for (const std::string& file : files()) {
    const std::string content = *read_file(file, 1 << 20);
    for (const size_t bytes : {size_t{0}, size_t{1}, content.size() / 2, content.size() - 1})
      with(file, content.substr(0, bytes));
    with(file, content + '\0');
    with(file, content + content);
    with(file, std::string(content.size(), '\0'));
  }
}

TEST_F(CheckpointVerificationTest, RejectsMissingFiles) {
  for (const std::string& file : files()) {
    const std::string content = *read_file(file, 1 << 20);
    fs::remove(file);
    expect_corrupt(file);
    test::write_whole(file, content);
  }
}

TEST_F(CheckpointVerificationTest, RejectsNonregularFilesWithoutBlocking) {
  for (const std::string& file : files()) {
    const std::string content = *read_file(file, 1 << 20);
    fs::remove(file);
    fs::create_directory(file);
    expect_corrupt(file);
    fs::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    expect_corrupt(file);
    fs::remove(file);
    test::write_whole(file, content);
  }
}

// A symlink to identical bytes is rejected too, because its target can change.
TEST_F(CheckpointVerificationTest, RejectsSymlinkedFiles) {
  for (const std::string& file : files()) {
    const std::string elsewhere = scratch_ / "elsewhere";
    fs::rename(file, elsewhere);
    fs::create_symlink(elsewhere, file);
    EXPECT_FALSE(CheckpointStore::open_verified(path_).ok()) << file;
    fs::remove(file);
    fs::rename(elsewhere, file);
  }
  EXPECT_TRUE(is_complete(path_, 5));
}

TEST_F(CheckpointVerificationTest, RejectsSwappedFiles) {
  const std::string model = path_ + "/model.safetensors";
  const std::string optim = path_ + "/optimizer.safetensors";
  fs::rename(model, scratch_ / "m");
  fs::rename(optim, model);
  fs::rename(scratch_ / "m", optim);
  expect_corrupt("model.safetensors");
}

TEST_F(CheckpointVerificationTest, RejectsFileFromAnotherStep) {
  const std::string other = commit(6);
  fs::copy_file(other + "/model.safetensors", path_ + "/model.safetensors",
                fs::copy_options::overwrite_existing);
  expect_corrupt("model.safetensors");
}

TEST_F(CheckpointVerificationTest, RejectsDirectoryRenamedToAnotherStep) {
  fs::rename(path_, path_of(9));
  path_ = path_of(9);
  expect_corrupt("manifest.json");
}

TEST_F(CheckpointVerificationTest, AcceptsCopyUnderNonStepName) {
  test::copy_tree(path_, scratch_ / "backup");
  EXPECT_TRUE(is_complete(scratch_ / "backup", 5));
  EXPECT_TRUE(is_complete((scratch_ / "backup") + "/", 5));
}

TEST_F(CheckpointVerificationTest, IgnoresAdditionalFiles) {
  test::write_whole(path_ + "/NOTES.txt", "the good one");
  EXPECT_TRUE(is_complete(path_, 5));
}

TEST_F(CheckpointVerificationTest, ReportsNotFoundOnMissingDirectory) {
  EXPECT_EQ(CheckpointStore::open_verified(path_of(9)).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(CheckpointStore::open_verified("").status().code(), StatusCode::kNotFound);
}

TEST_F(CheckpointVerificationTest, ReportsMismatchOnNewerFormat) {
  Manifest newer = manifest_;
  newer.format = kShardedFormat + 1;
  forge_manifest(to_json(newer));
  const auto opened = CheckpointStore::open_verified(path_);
  EXPECT_EQ(opened.status().code(), StatusCode::kMismatch) << opened.status().to_string();
}

TEST_F(CheckpointVerificationTest, RejectsInvalidManifestWithMatchingChecksums) {
  Manifest other = manifest_;
  other.files[0].name = "../" + CheckpointStore::checkpoint_name(5) + "/model.safetensors";
  forge_manifest(to_json(other));
  expect_corrupt("manifest.json");
  other = manifest_;
  other.files[0].bytes = ~uint64_t{0};
  forge_manifest(to_json(other));
  expect_corrupt("model.safetensors");
  other = manifest_;
  other.files.pop_back();
  forge_manifest(to_json(other));
  expect_corrupt("SHA256SUMS");
  other = manifest_;
  other.step = 6;
  forge_manifest(to_json(other));
  expect_corrupt("manifest.json");
  forge_manifest("[]");
  expect_corrupt("manifest.json");
}

TEST_F(CheckpointVerificationTest, RejectsOversizedChecksumFile) {
  fs::resize_file(path_ + "/SHA256SUMS", uint64_t{1} << 40);
  expect_corrupt("SHA256SUMS");
}

TEST_F(CheckpointVerificationTest, RejectsOversizedManifest) {
  fs::resize_file(path_ + "/manifest.json", uint64_t{1} << 40);
  expect_corrupt("manifest.json");
}

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
    std::filesystem::rename(file, scratch_ / "backup");
    EXPECT_EQ(quick_check(path_of(1)).status().code(), StatusCode::kCorrupt)
        << name << " is missing";
    std::filesystem::copy_file(scratch_ / "backup", file);
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
    EXPECT_EQ(quick_check(path_of(1)).status().code(), StatusCode::kCorrupt)
        << name << " is shorter";
    std::filesystem::rename(scratch_ / "backup", file);
    EXPECT_TRUE(quick_check(path_of(1)).ok()) << name;
  }
}

TEST_F(QuickCheckTest, ReportsErrorOnMissingDirectory) {
  EXPECT_FALSE(quick_check(path_of(3)).ok());
}

// Otherwise a quick check would prevent a deletion, and the other way round.
TEST_F(QuickCheckTest, AcquiresNoLockAndIgnoresExistingLock) {
  commit(1);
  const UniqueFd lock(::open((path_of(1) + "/SHA256SUMS").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(quick_check(path_of(1)).ok());
}

}  // namespace
}  // namespace stoker::checkpoint
