#include "tests/reliability/loop_disk.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::test {
namespace {

constexpr off_t kBytes = 16 << 20;
// FS_IOC_SHUTDOWN, which <linux/fs.h> does not define.
constexpr unsigned long kShutdown = _IOR('X', 125, uint32_t);

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::system_category(), what);
}

UniqueFd open_or_fail(const std::string& path, int flags) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (fd.get() < 0) fail("open " + path);
  return fd;
}

// Attaches a loop device to `image`; it is detached with its last user. Retries, because another
// process can take the free device first.
std::string attach(const std::string& image, UniqueFd& device) {
  const UniqueFd control = open_or_fail("/dev/loop-control", O_RDWR);
  const UniqueFd file = open_or_fail(image, O_RDWR);
  loop_config config{};
  config.fd = static_cast<uint32_t>(file.get());
  config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
  for (int tries = 0; tries < 50; ++tries) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) fail("find a free loop device");
    std::string path = "/dev/loop" + std::to_string(number);
    device = open_or_fail(path, O_RDWR);
    if (::ioctl(device.get(), LOOP_CONFIGURE, &config) == 0) return path;
    if (errno != EBUSY) break;
  }
  fail("attach " + image + " to a loop device");
}

}  // namespace

std::optional<std::string> LoopDisk::unavailable_reason() {
  if (::geteuid() != 0) return "only root can mount a disk and simulate a power loss";
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return "this machine does not permit a private mount namespace";
  try {
    TemporaryDirectory folder;
    format(folder / "image");
    LoopDisk disk(folder / "image", folder / "disk");
    disk.simulate_power_loss(PowerLoss::kNothingFlushed);
    disk.power_on();
    return std::nullopt;
  } catch (const std::system_error& error) {
    return std::string("no disk can be created here: ") + error.what();
  }
}

void LoopDisk::format(const std::string& image) {
  const UniqueFd file = open_or_fail(image, O_RDWR | O_CREAT | O_TRUNC);
  if (::ftruncate(file.get(), kBytes) != 0) fail("create " + image);
  const std::string command =
      "PATH=$PATH:/sbin:/usr/sbin mkfs.ext4 -q -F '" + image + "' >/dev/null 2>&1";
  errno = ENOENT;
  if (std::system(command.c_str()) != 0) fail("format with mkfs.ext4");
}

LoopDisk::LoopDisk(std::string image, std::string directory)
    : image_(std::move(image)), directory_(std::move(directory)) {
  ::mkdir(directory_.c_str(), 0700);
  mount();
}

LoopDisk::~LoopDisk() { ::umount2(directory_.c_str(), MNT_DETACH); }

void LoopDisk::simulate_power_loss(PowerLoss power_loss) {
  const UniqueFd root = open_or_fail(directory_, O_RDONLY | O_DIRECTORY);
  uint32_t mode = power_loss == PowerLoss::kJournalFlushed ? 1 : 2;
  if (::ioctl(root.get(), kShutdown, &mode) != 0) fail("simulate a power loss of " + directory_);
}

void LoopDisk::power_on() {
  unmount();
  mount();
}

void LoopDisk::mount() {
  UniqueFd device;
  const std::string path = attach(image_, device);
  if (::mount(path.c_str(), directory_.c_str(), "ext4", 0, nullptr) != 0) fail("mount " + path);
}

void LoopDisk::unmount() {
  // Child processes of a killed program can hold the mount for a moment longer.
  for (int tries = 0; tries < 2000; ++tries) {
    if (::umount(directory_.c_str()) == 0) return;
    if (errno != EBUSY) break;
    ::usleep(5000);
  }
  fail("unmount " + directory_);
}

}  // namespace stoker::test
