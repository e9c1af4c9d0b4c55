#include "tests/support/temporary_directory.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace stoker::test {

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "stoker-test-XXXXXX").string();
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
