// LoopDisk: an ext4 file system in a file, for which a test can simulate a power cut.
//
// It uses the kernel's shutdown ioctl: from then on nothing reaches the disk and unwritten data is
// lost. The next mount replays the journal, as after a real power cut.
//
// Threads:   one.
// Blocking:  on disk I/O.
// Ownership: owns the mount, which is visible only to this process and its children and ends with
//            them.
// Errors:    every method throws std::system_error.
#pragma once

#include <optional>
#include <string>

namespace stoker::test {

class LoopDisk {
 public:
  enum class PowerLoss {
    kNothingFlushed,  // data that was not synced is lost
    kJournalFlushed,  // names and sizes are durable, file contents need not be
  };

  // Why loop disks are unavailable here (root, loop devices, ext4), in one line; empty if they are
  // available. Moves this process into its own mount namespace.
  static std::optional<std::string> unavailable_reason();

  // Creates a file system in `image` and mounts it at `directory`, which is created.
  static void format(const std::string& image);
  LoopDisk(std::string image, std::string directory);
  ~LoopDisk();
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;

  void simulate_power_loss(PowerLoss power_loss);
  // Remounts after a cut, when no process uses the disk any more.
  void power_on();

 private:
  void mount();
  void unmount();

  const std::string image_;
  const std::string directory_;
};

}  // namespace stoker::test
