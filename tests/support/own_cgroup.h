// OwnCgroup: a control group below that of this process, for tests of its limits. With cgroup v2, below the
// nearest group above whose children have the controller: the group of a process has none there. Removed
// with the object, when no process is left in it.
//
// Threads: one.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "shared/base/cgroup.h"

namespace stoker::test {

class OwnCgroup {
 public:
  // A core of CPU time.
  static OwnCgroup with_one_core() {
    OwnCgroup group("cpu");
    group.is_ready_ = group.is_v2_ ? group.write("cpu.max", "100000 100000")
                                   : group.write("cpu.cfs_period_us", "100000") &&
                                         group.write("cpu.cfs_quota_us", "100000");
    return group;
  }
  // A limit on memory, without swap.
  static OwnCgroup with_memory(uint64_t bytes) {
    OwnCgroup group("memory");
    const std::string limit = std::to_string(bytes);
    group.is_ready_ =
        group.is_v2_
            ? group.write("memory.max", limit) && group.write("memory.swap.max", "0")
            : group.write("memory.limit_in_bytes", limit) && group.write("memory.swappiness", "0");
    return group;
  }
  OwnCgroup(OwnCgroup&& other) noexcept
      : directory_(std::move(other.directory_)), is_v2_(other.is_v2_), is_ready_(other.is_ready_) {
    other.directory_.clear();
  }
  OwnCgroup& operator=(OwnCgroup&&) = delete;
  ~OwnCgroup() {
    if (directory_.empty()) return;
    // Children of a process that was killed need a moment to end.
    for (int attempt = 0; attempt < 500; ++attempt) {
      std::error_code error;
      std::filesystem::remove(directory_, error);
      if (!error) return;
      ::usleep(10'000);
    }
  }

  // False: this machine or user permits no such group.
  bool is_ready() const { return is_ready_; }
  // Of this process; for a child after fork().
  bool enter() const { return add(::getpid()); }
  // Moves a process here. Its memory so far counts for its previous group.
  bool add(pid_t pid) const { return write("cgroup.procs", std::to_string(pid)); }
  // How many processes the kernel has killed because of the limit on memory.
  uint64_t oom_kills() const {
    std::ifstream file(directory_ + (is_v2_ ? "/memory.events" : "/memory.oom_control"));
    std::string name;
    for (uint64_t value = 0; file >> name >> value;)
      if (name == "oom_kill") return value;
    return 0;
  }
  std::string processes_file() const { return directory_ + "/cgroup.procs"; }

 private:
  explicit OwnCgroup(const std::string& controller) {
    const auto found = find_cgroup(controller);
    if (!found) return;
    is_v2_ = found->is_v2;
    for (const std::string& parent : found->directories) {
      if (is_v2_ && !has_controller(parent, controller)) continue;
      directory_ = parent + "/stoker-test-" + std::to_string(::getpid());
      std::error_code error;
      std::filesystem::create_directory(directory_, error);
      return;
    }
  }
  static bool has_controller(const std::string& parent, const std::string& controller) {
    std::ifstream file(parent + "/cgroup.subtree_control");
    for (std::string name; file >> name;)
      if (name == controller) return true;
    return false;
  }
  bool write(const std::string& file, const std::string& text) const {
    if (directory_.empty() || !std::filesystem::exists(directory_ + "/" + file)) return false;
    return static_cast<bool>(std::ofstream(directory_ + "/" + file) << text << std::flush);
  }

  std::string directory_;
  bool is_v2_ = false;
  bool is_ready_ = false;
};

}  // namespace stoker::test
