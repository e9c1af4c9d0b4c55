// FaultyFiles: the real file system with a log of all operations and with fault injection. From the
// log it can derive the state of the disk after a power loss.
//
// Operations are numbered from 1. After a simulated kill, all later operations fail without effect,
// so that the disk stays as a real kill leaves it. A sync is logged but not executed, so that tests
// do not wait for the disk.
//
// Threads: every method may be called from any thread.
#pragma once

#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "shared/base/file.h"

namespace stoker::test {

struct Operation {
  enum class Kind {
    kOpen,
    kWrite,
    kReserve,
    kReadAt,
    kSync,
    kSyncDirectory,
    kMakeDirectory,
    kRename,
    kRemoveFile,
    kRemoveTree,
    kFreeBytes
  };
  Kind kind;
  std::string path;
  std::string to;                    // kRename
  int flags = 0;                     // kOpen
  uint64_t handle = 0;               // kOpen, kWrite, kSync: identifies the open file description
  std::string content;               // kWrite: the bytes that reached the file
  std::vector<std::string> removed;  // kRemoveTree: the removed entries, in order
  bool done = false;                 // the operation took full effect
};

std::string to_string(const Operation& operation);  // "rename /a to /b"

enum class Survival {
  kNothing,     // synced data only: names through their directory, bytes through their file
  kNamesOnly,   // all names but only synced bytes, as if the journal was written before the data
  kSome,        // each change that was not synced survives at random
  kEverything,  // state after a kill, which the kernel survives
};

// DiskModel: the contents of a directory tree, and which of them can be lost in a power loss.
//
// POSIX guarantees little: the bytes of a file survive after fsync() of the file, a directory entry
// after fsync() of the directory. Each change that was not synced survives or is lost
// independently of the others, in any order; a rename within one directory is a single change. Not
// modeled: symbolic and hard links, modes, times.
class DiskModel {
 public:
  // Everything below `root` counts as synced.
  explicit DiskModel(std::string root);

  void apply(const Operation& operation);  // ignored outside of the root
  // Writes the surviving files to `directory`, which must not exist; it corresponds to the root.
  void materialize(Survival survival, uint64_t seed, const std::string& directory) const;

 private:
  // Directory change. `from` and `to`: rename; only `from`: removed name; only `to`: added name.
  struct Change {
    std::string from;
    std::string to;
    uint64_t node = 0;
  };
  using Names = std::map<std::string, uint64_t>;
  struct Node {
    bool is_directory = false;
    std::string bytes;
    std::string synced_bytes;
    bool has_failed_sync = false;  // a sync failed, so the kernel can have dropped the dirty pages
    Names names;
    Names synced_names;
    std::vector<Change> unsynced;
  };
  struct Handle {
    uint64_t node = 0;
    uint64_t position = 0;
    bool appends = false;
  };
  struct Location {
    uint64_t directory;
    std::string name;
  };

  uint64_t add(bool is_directory);
  void load_directory(const std::string& path, uint64_t node);
  // nullopt if its directory does not exist
  std::optional<Location> find_location(const std::string& path) const;
  std::optional<uint64_t> find_node(const std::string& path) const;
  void open(const Operation& operation);
  void write(const Operation& operation);
  void rename(const std::string& from, const std::string& to);
  void remove(const std::string& path);
  void change(uint64_t directory, Change change);
  static void apply_change(const Change& change, Names& names);
  void write_surviving(uint64_t node, Survival survival, std::mt19937_64& random,
                       const std::string& path) const;

  std::string root_;
  std::vector<Node> nodes_;  // 0 is the root
  std::map<uint64_t, Handle> handles_;
};

struct Fault {
  // How much is done before the error: kHalf is the first half of a write or half of the entries of
  // a tree; kAll completes the operation but still returns the error.
  enum class Extent { kNothing, kHalf, kAll };

  int error = EIO;
  Extent extent = Extent::kNothing;
  bool from_here_on = false;  // all later operations fail as well, without effect
};

class FaultyFiles final : public FileSystem {
 public:
  // Everything below `root` counts as synced at construction. Faults affect all paths, power loss
  // only this tree.
  explicit FaultyFiles(const std::string& root);

  void fail_at(uint64_t operation, Fault fault);
  void kill_at(uint64_t operation, Fault::Extent extent = Fault::Extent::kNothing) {
    fail_at(operation, {EIO, extent, true});
  }
  void heal();  // removes all faults
  void set_free_bytes(uint64_t bytes);
  // From now on flock() fails with EBADF for files that are opened without O_CREAT.
  void fail_locks(bool fail);

  std::vector<Operation> operations() const;
  // Writes the disk state after a power loss following the first `operations` operations to
  // `directory`, which must not exist.
  void simulate_power_loss(uint64_t operations, Survival survival, uint64_t seed,
                           const std::string& directory) const;

  Result<UniqueFd> open(const std::string& path, int flags, mode_t mode = 0640) override;
  Status write(int fd, std::span<const std::byte> bytes, const std::string& path) override;
  Status reserve(int fd, uint64_t bytes, const std::string& path) override;
  Result<size_t> read_at(int fd, uint64_t offset, std::span<std::byte> bytes,
                         const std::string& path) override;
  Status sync(int fd, const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Status make_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_noreplace(const std::string& from, const std::string& to) override;
  Status remove_file(const std::string& path) override;
  Status remove_tree(const std::string& path) override;
  Result<uint64_t> free_bytes(const std::string& path) override;

 private:
  // The fault of the next operation, if any. Requires mutex_.
  std::optional<Fault> next_fault();
  // Logs `operation` and executes it unless a fault is due. `act` returns a Status.
  template <typename Act>
  Status perform(Operation operation, const Act& act);

  const DiskModel initial_disk_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Operation> operations_;
  std::map<uint64_t, Fault> faults_;
  std::optional<Fault> persistent_fault_;
  std::map<int, uint64_t> handles_;  // by descriptor: the handle of its latest open
  std::optional<uint64_t> free_bytes_;
  bool fails_locks_ = false;
};

}  // namespace stoker::test
