// A library for LD_PRELOAD: pread() of one file at one offset fails several times, as set by
// FAIL_READS: "FILE OFFSET ERROR TIMES". ERROR 0: the process crashes, like a decoder. With
// CRASH_AFTER_READS: "N" it crashes after the N-th read() of pipes.
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/support/crashes.h"

namespace {

struct Failure {
  struct stat file {};
  off_t offset = -1;
  int error = 0;
  std::atomic<int> remaining{0};

  Failure() {
    const char* words = std::getenv("FAIL_READS");
    if (words == nullptr) return;
    std::istringstream in(words);
    std::string path;
    int times = 0;
    in >> path >> offset >> error >> times;
    remaining = times;
    if (::stat(path.c_str(), &file) != 0) offset = -1;
  }
  bool hits(int fd, off_t at) {
    struct stat info {};
    return at == offset && ::fstat(fd, &info) == 0 && info.st_ino == file.st_ino &&
           info.st_dev == file.st_dev && remaining.fetch_sub(1) > 0;
  }
};

ssize_t read_or_fail(const char* name, int fd, void* bytes, size_t count, off_t offset) {
  static Failure failure;
  if (failure.hits(fd, offset)) {
    if (failure.error == 0) stoker::test::write_invalid_address();
    errno = failure.error;
    return -1;
  }
  using Pread = ssize_t (*)(int, void*, size_t, off_t);
  return reinterpret_cast<Pread>(::dlsym(RTLD_NEXT, name))(fd, bytes, count, offset);
}

}  // namespace

extern "C" ssize_t read(int fd, void* bytes, size_t count) {
  using Read = ssize_t (*)(int, void*, size_t);
  static const auto real = reinterpret_cast<Read>(::dlsym(RTLD_NEXT, "read"));
  const ssize_t got = real(fd, bytes, count);
  const char* const number = std::getenv("CRASH_AFTER_READS");
  static std::atomic<int> num_reads{0};
  struct stat info {};
  if (number != nullptr && got > 0 && ::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode) &&
      ++num_reads == std::atoi(number))
    stoker::test::write_invalid_address();
  return got;
}

extern "C" ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  return read_or_fail("pread", fd, bytes, count, offset);
}
extern "C" ssize_t pread64(int fd, void* bytes, size_t count, off_t offset) {
  return read_or_fail("pread64", fd, bytes, count, offset);
}
