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
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "tests/support/disk_model.h"

namespace stoker::test {

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
