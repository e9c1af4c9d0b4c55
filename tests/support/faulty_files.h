// FaultyFiles: the real file system, which writes down every operation and fails where the test
// says; and from what it wrote down, the disk after a power cut.
//
// Operations are numbered from 1. A kill is an operation after which all others fail too: what the
// program still tries is without effect, and the disk stays as a kill leaves it. A sync is written
// down, but not carried out: the disk of the machine that runs the test need not be waited for.
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

// DiskModel: what a tree of files holds, and how much of it a power cut may take away.
//
// POSIX promises little: a file's bytes survive once the file was synced, a name in a directory once
// the directory was. Whatever was not synced may survive or not, each change for itself, in any
// order; a rename within one directory is one change.
// Lacks:   symbolic and hard links, modes, times.
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
  uint64_t handle = 0;               // kOpen, kWrite, kSync: which opening of the file
  std::string content;               // kWrite: the bytes that reached the file
  std::vector<std::string> removed;  // kRemoveTree: what went, in this order
  bool done = false;                 // the disk is changed as asked
};

std::string to_string(const Operation& operation);  // "rename /a to /b"

enum class Survival {
  kNothing,     // only what was synced: names by their directory, bytes by their file
  kNamesOnly,   // all names, but only synced bytes: a journal written before the data
  kSome,        // of each change that was not synced, a coin decides
  kEverything,  // what a kill leaves: the kernel lives on
};

class DiskModel {
 public:
  // All that stands below `root` counts as synced.
  explicit DiskModel(std::string root);

  void apply(const Operation& operation);  // outside of the root: no effect
  // Writes what survives into `directory`, which must not exist; it takes the place of the root.
  void materialise(Survival survival, uint64_t seed, const std::string& directory) const;

 private:
  struct Change {  // of a directory; from and to: a rename; one of them: a name gone, or come
    std::string from;
    std::string to;
    uint64_t node = 0;
  };
  using Names = std::map<std::string, uint64_t>;
  struct Node {
    bool is_directory = false;
    std::string bytes;
    std::string synced_bytes;
    bool lost = false;  // a sync failed: the kernel forgot which bytes were due
    Names names;
    Names synced_names;
    std::vector<Change> unsynced;
  };
  struct Handle {
    uint64_t node = 0;
    uint64_t position = 0;
    bool appends = false;
  };
  struct Place {
    uint64_t directory;
    std::string name;
  };

  uint64_t add(bool is_directory);
  void take_in(const std::string& path, uint64_t node);
  std::optional<Place> find_location(const std::string& path) const;  // its directory exists
  std::optional<uint64_t> find_node(const std::string& path) const;
  void open(const Operation& operation);
  void write(const Operation& operation);
  void rename(const std::string& from, const std::string& to);
  void remove(const std::string& path);
  void change(uint64_t directory, Change change);
  static void carry_out(const Change& change, Names& names);
  void put(uint64_t node, Survival survival, std::mt19937_64& coins, const std::string& path) const;

  std::string root_;
  std::vector<Node> nodes_;  // 0 is the root
  std::map<uint64_t, Handle> handles_;
};

struct Fault {
  // What is done before the error: of a write, the first half; of a tree, half of its entries;
  // kAll: everything, and yet an error comes back.
  enum class Extent { kNothing, kHalf, kAll };

  int error = EIO;
  Extent extent = Extent::kNothing;
  bool from_here_on = false;  // all later ones fail as well, with nothing done
};

class FaultyFiles final : public FileSystem {
 public:
  // What stands below `root` now counts as synced. Faults reach all paths, power cuts only these.
  explicit FaultyFiles(const std::string& root);

  void fail_at(uint64_t operation, Fault fault);
  void kill_at(uint64_t operation, Fault::Extent extent = Fault::Extent::kNothing) {
    fail_at(operation, {EIO, extent, true});
  }
  void heal();  // no faults from here on
  void set_free_bytes(uint64_t bytes);

  std::vector<Operation> operations() const;
  // The disk as a power cut after the first `operations` of them leaves it, at `directory`, which
  // must not exist.
  void cut_power(uint64_t operations, Survival survival, uint64_t seed,
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
  // The fault of the operation that is about to be written down, if any. Under mutex_.
  std::optional<Fault> next_fault();
  // Writes `operation` down and does it, unless a fault is due. `act` returns a Status.
  template <typename Act>
  Status perform(Operation operation, const Act& act);

  const DiskModel before_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Operation> operations_;
  std::map<uint64_t, Fault> faults_;
  std::optional<Fault> lasting_;
  std::map<int, uint64_t> handles_;  // by descriptor: its latest opening
  std::optional<uint64_t> free_bytes_;
};

}  // namespace stoker::test
