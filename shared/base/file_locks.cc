#include "shared/base/file_locks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "shared/base/utf8.h"

namespace stoker {
namespace {

// /proc/locks has the device of the superblock, which is that of the mount. A Btrfs subvolume or a
// file of an overlay has another st_dev.
dev_t device_of_mount(const std::string& path, dev_t otherwise) {
  struct statx info {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_MNT_ID, &info) != 0 ||
      (info.stx_mask & STATX_MNT_ID) == 0)
    return otherwise;
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    unsigned long long id = 0;
    unsigned device_major = 0, device_minor = 0;
    if (std::sscanf(line.c_str(), "%llu %*u %u:%u", &id, &device_major, &device_minor) == 3 &&
        id == info.stx_mnt_id)
      return makedev(device_major, device_minor);
  }
  return otherwise;
}

// Valid UTF-8 without control characters, which another user's process can have in its arguments;
// cut at the end of a character.
std::string printable_command(std::string_view command) {
  constexpr size_t kMaxBytes = 200;
  const std::string valid = valid_utf8(command);
  std::string printable;
  for (std::string_view rest = valid; !rest.empty();) {
    const std::string_view character = rest.substr(0, utf8_character_bytes(rest));
    rest.remove_prefix(character.size());
    if (printable.size() + character.size() > kMaxBytes) return printable + "...";
    printable += is_control_character(character) ? " " : character;
  }
  return printable;
}

// The arguments of a process, separated by spaces; its name if it has none. Empty: no such process.
std::string command_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/";
  std::string command;
  for (const char* const name : {"cmdline", "comm"}) {
    std::ifstream file(folder + name);
    command.assign(std::istreambuf_iterator<char>(file), {});
    std::ranges::replace_if(
        command, [](unsigned char c) { return c < 0x20; }, ' ');
    while (!command.empty() && command.back() == ' ') command.pop_back();
    if (!command.empty()) break;
  }
  return printable_command(command);
}

}  // namespace

// Format of a line: "1: FLOCK  ADVISORY  READ 4711 fe:00:1234567 0 EOF"; device numbers are
// hexadecimal.
FileLocks FileLocks::read() {
  FileLocks locks;
  std::ifstream stream("/proc/locks");
  for (std::string line; std::getline(stream, line);) {
    char mode[8] = "";
    int pid = 0;
    unsigned device_major = 0, device_minor = 0;
    unsigned long inode = 0;
    const int read = std::sscanf(line.c_str(), "%*d: FLOCK %*s %7s %d %x:%x:%lu", mode, &pid,
                                 &device_major, &device_minor, &inode);
    if (read != 5) continue;
    locks.locks_.push_back({.device = makedev(device_major, device_minor),
                            .inode = inode,
                            .pid = pid,
                            .is_exclusive = std::string(mode) == "WRITE"});
  }
  return locks;
}

std::vector<FileLocks::Lock> FileLocks::find(const std::string& path) const {
  struct stat info {};
  if (locks_.empty() || ::stat(path.c_str(), &info) != 0) return {};
  const dev_t device = device_of_mount(path, info.st_dev);
  std::vector<Lock> found;
  std::ranges::copy_if(locks_, std::back_inserter(found), [&](const Lock& lock) {
    return lock.inode == info.st_ino && (lock.device == device || lock.device == info.st_dev);
  });
  return found;
}

bool FileLocks::is_locked(const std::string& path) const { return !find(path).empty(); }

std::optional<pid_t> FileLocks::find_exclusive_holder(const std::string& path) const {
  for (const Lock& lock : find(path))
    if (lock.is_exclusive && lock.pid > 0) return lock.pid;
  return std::nullopt;
}

std::string describe_lock_holder(const std::string& path) {
  const auto pid = FileLocks::read().find_exclusive_holder(path);
  if (!pid)
    return ::access("/proc/locks", R_OK) == 0 ? "another host or container" : "another process";
  std::string command = command_of(*pid);
  if (command.empty() && ::kill(*pid, 0) != 0 && errno == ESRCH)
    command = "it has exited; a process that it started holds the lock";
  if (command.empty()) command = "of another user";  // hidden, as by ProtectProc= of systemd
  return "pid " + std::to_string(*pid) + " (" + command + ")";
}

}  // namespace stoker
