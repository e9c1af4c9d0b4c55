// LoopDisk: an ext4 file system in a file, whose power a test can cut.
//
// The kernel's own shutdown ioctl is used: from that instant on nothing more reaches the disk, and
// what was not written is lost; the next mount replays the journal, as after a real cut.
//
// Threads:  one.
// Blocking: for the disk.
// Owner:    the mount; it is seen by this process and its children only, and goes with them.
// Errors:   every method throws std::system_error.
#pragma once

#include <optional>
#include <string>

namespace stoker::test {

class LoopDisk {
 public:
  enum class Cut {
    kNothingFlushed,  // what no sync has asked for is lost
    kJournalFlushed,  // names and sizes reach the disk, file contents need not
  };

  // Why none can be made here (root, loop devices, ext4), in one line; nothing where they can.
  // Moves this process into a mount namespace of its own.
  static std::optional<std::string> unavailable_reason();

  // A new file system in `image`, mounted at `directory`, which is made.
  static void format(const std::string& image);
  LoopDisk(std::string image, std::string directory);
  ~LoopDisk();
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;

  void cut_power(Cut cut);
  // After a cut, when no process uses it any more.
  void power_on();

 private:
  void mount();
  void unmount();

  const std::string image_;
  const std::string directory_;
};

}  // namespace stoker::test
