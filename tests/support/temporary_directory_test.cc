#include "tests/support/temporary_directory.h"

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

namespace stoker::test {
namespace {

namespace fs = std::filesystem;

TEST(TemporaryDirectoryTest, IsBelowDirectoryOfTests) {
  const TemporaryDirectory parent;
  const char* const before = std::getenv("TEST_TMPDIR");
  const std::string saved = before != nullptr ? before : "";
  ::setenv("TEST_TMPDIR", parent.path().c_str(), 1);
  std::string path;
  {
    const TemporaryDirectory directory;
    path = directory.path();
    EXPECT_TRUE(fs::is_directory(path));
  }
  before != nullptr ? ::setenv("TEST_TMPDIR", saved.c_str(), 1) : ::unsetenv("TEST_TMPDIR");
  EXPECT_EQ(fs::path(path).parent_path(), parent.path());
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace stoker::test
