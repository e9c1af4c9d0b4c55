#include "tests/support/temporary_directory.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace stoker::test {
namespace {

// As testing::TempDir().
std::string default_parent() {
  const char* const parent = std::getenv("TEST_TMPDIR");
  return parent != nullptr && *parent != '\0' ? parent
                                              : std::filesystem::temp_directory_path().string();
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() : TemporaryDirectory(default_parent()) {}

TemporaryDirectory::TemporaryDirectory(const std::string& parent) {
  std::string pattern = parent + "/stoker-test-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    std::perror(pattern.c_str());
    std::abort();
  }
  path_ = std::filesystem::canonical(pattern).string();
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string quick_folder() {
  constexpr uintmax_t kMinFreeBytes = 512 << 20;
  const char* const memory = "/dev/shm";
  std::error_code error;
  const auto space = std::filesystem::space(memory, error);
  const bool is_usable =
      !error && space.available >= kMinFreeBytes && ::access(memory, W_OK | X_OK) == 0;
  return is_usable ? memory : std::filesystem::temp_directory_path().string();
}

void copy_tree(const std::string& from, const std::string& to) {
  using std::filesystem::copy_options;
  std::filesystem::copy(from, to, copy_options::recursive | copy_options::copy_symlinks);
}

void write_whole(const std::string& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  out << content << std::flush;
  if (out) return;
  std::perror(path.c_str());
  std::abort();
}

}  // namespace stoker::test
