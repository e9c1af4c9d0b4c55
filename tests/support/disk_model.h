// DiskModel: what a tree of files holds, and how much of it a power cut may take away.
//
// POSIX promises little: a file's bytes survive once the file was synced, a name in a directory once
// the directory was. Whatever was not synced may survive or not, each change for itself, in any
// order; a rename within one directory is one change.
//
// Threads: one object per thread.
// Lacks:   symbolic and hard links, modes, times.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

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

}  // namespace stoker::test
