// A library for LD_PRELOAD: a system call on some files never returns, as on a file system whose server
// does not answer. HANG_ON: "CALL TEXT"; CALL is open or fsync, and the path contains TEXT. Standard error
// says when it hangs: "hangs in CALL PATH".
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <string>

namespace {

void hang_if_selected(const std::string& call, const std::string& path) {
  const char* const setting = std::getenv("HANG_ON");
  if (setting == nullptr) return;
  const std::string words = setting;
  const size_t space = words.find(' ');
  if (words.substr(0, space) != call || path.find(words.substr(space + 1)) == std::string::npos)
    return;
  const std::string message = "hangs in " + call + " " + path + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, message.data(), message.size());
  while (true) ::pause();
}

int open_or_hang(const char* name, const char* path, int flags, mode_t mode) {
  hang_if_selected("open", path);
  using Open = int (*)(const char*, int, ...);
  return reinterpret_cast<Open>(::dlsym(RTLD_NEXT, name))(path, flags, mode);
}

mode_t mode_argument(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_or_hang("open", path, flags, mode);
}

extern "C" int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_or_hang("open64", path, flags, mode);
}

extern "C" int fsync(int fd) {
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (::readlink(link.c_str(), path, sizeof(path) - 1) > 0) hang_if_selected("fsync", path);
  using Fsync = int (*)(int);
  return reinterpret_cast<Fsync>(::dlsym(RTLD_NEXT, "fsync"))(fd);
}
