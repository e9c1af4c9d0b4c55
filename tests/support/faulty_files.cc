#include "tests/support/faulty_files.h"

#include <fcntl.h>

#include <filesystem>
#include <utility>

namespace stoker::test {
namespace {

using Kind = Operation::Kind;
using Extent = Fault::Extent;

Status error_of(const Fault& fault, const Operation& operation) {
  return Status::from_errno(fault.error, to_string(operation));
}

// The model keeps the books of what is synced, so the real disk need not be waited for.
Status is_open(int fd, const std::string& path) {
  if (::fcntl(fd, F_GETFD) >= 0) return {};
  return Status::from_errno(errno, "fsync " + path);
}

// The entries of a tree, contents before their directory, the tree itself last.
std::vector<std::string> entries_of(const std::filesystem::path& path) {
  std::vector<std::string> entries;
  const auto facts = std::filesystem::symlink_status(path);
  if (!std::filesystem::exists(facts)) return entries;
  if (std::filesystem::is_directory(facts)) {
    const auto names = list_directory(path.string());
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>{})
      for (std::string& entry : entries_of(path / name)) entries.push_back(std::move(entry));
  }
  entries.push_back(path.string());
  return entries;
}

}  // namespace

FaultyFiles::FaultyFiles(const std::string& root) : before_(root) {}

void FaultyFiles::fail_at(uint64_t operation, Fault fault) {
  const std::lock_guard lock(mutex_);
  faults_[operation] = fault;
}

void FaultyFiles::heal() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  lasting_.reset();
  free_bytes_.reset();
}

void FaultyFiles::set_free_bytes(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  free_bytes_ = bytes;
}

std::vector<Operation> FaultyFiles::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

void FaultyFiles::cut_power(uint64_t operations, Survival survival, uint64_t seed,
                            const std::string& directory) const {
  const std::lock_guard lock(mutex_);
  DiskModel disk = before_;
  for (uint64_t i = 0; i < operations && i < operations_.size(); ++i) disk.apply(operations_[i]);
  disk.materialise(survival, seed, directory);
}

std::optional<Fault> FaultyFiles::next_fault() {
  if (lasting_) return lasting_;
  const auto found = faults_.find(operations_.size() + 1);
  if (found == faults_.end()) return std::nullopt;
  if (found->second.from_here_on) lasting_ = Fault{found->second.error, Extent::kNothing, true};
  return found->second;
}

template <typename Act>
Status FaultyFiles::perform(Operation operation, const Act& act) {
  const std::lock_guard lock(mutex_);
  const auto fault = next_fault();
  Status status;
  if (!fault || fault->extent == Extent::kAll) {
    status = act();
    operation.done = status.ok();
  }
  if (fault) status = error_of(*fault, operation);
  operations_.push_back(std::move(operation));
  return status;
}

Result<UniqueFd> FaultyFiles::open(const std::string& path, int flags, mode_t mode) {
  const std::lock_guard lock(mutex_);
  Operation operation{.kind = Kind::kOpen, .path = path, .flags = flags};
  operation.handle = operations_.size() + 1;
  const auto fault = next_fault();
  std::optional<Result<UniqueFd>> opened;
  if (!fault || fault->extent == Extent::kAll) {
    opened = default_file_system().open(path, flags, mode);
    operation.done = opened->ok();
    if (opened->ok()) handles_[(*opened)->get()] = operation.handle;
  }
  operations_.push_back(operation);
  if (fault) return error_of(*fault, operation);
  return *std::move(opened);
}

Status FaultyFiles::write(int fd, std::span<const std::byte> bytes, const std::string& path) {
  const std::lock_guard lock(mutex_);
  Operation operation{.kind = Kind::kWrite, .path = path, .handle = handles_[fd]};
  const auto fault = next_fault();
  size_t fits = bytes.size();
  if (fault && fault->extent == Extent::kHalf) fits /= 2;
  if (fault && fault->extent == Extent::kNothing) fits = 0;
  Status status = default_file_system().write(fd, bytes.first(fits), path);
  operation.content.assign(reinterpret_cast<const char*>(bytes.data()), fits);
  operation.done = status.ok() && fits == bytes.size();
  if (fault) status = error_of(*fault, operation);
  operations_.push_back(std::move(operation));
  return status;
}

Status FaultyFiles::reserve(int fd, uint64_t bytes, const std::string& path) {
  return perform({.kind = Kind::kReserve, .path = path},
                 [&] { return default_file_system().reserve(fd, bytes, path); });
}

Result<size_t> FaultyFiles::read_at(int fd, uint64_t offset, std::span<std::byte> bytes,
                                    const std::string& path) {
  size_t got = 0;
  STOKER_RETURN_IF_ERROR(perform({.kind = Kind::kReadAt, .path = path}, [&]() -> Status {
    STOKER_ASSIGN_OR_RETURN(got, default_file_system().read_at(fd, offset, bytes, path));
    return {};
  }));
  return got;
}

Status FaultyFiles::sync(int fd, const std::string& path) {
  uint64_t handle = 0;
  {
    const std::lock_guard lock(mutex_);
    handle = handles_[fd];
  }
  return perform({.kind = Kind::kSync, .path = path, .handle = handle},
                 [&] { return is_open(fd, path); });
}

Status FaultyFiles::sync_directory(const std::string& path) {
  return perform({.kind = Kind::kSyncDirectory, .path = path},
                 [&] { return default_file_system().open(path, O_RDONLY | O_DIRECTORY).status(); });
}

Status FaultyFiles::make_directory(const std::string& path) {
  return perform({.kind = Kind::kMakeDirectory, .path = path},
                 [&] { return default_file_system().make_directory(path); });
}

Status FaultyFiles::rename(const std::string& from, const std::string& to) {
  return perform({.kind = Kind::kRename, .path = from, .to = to},
                 [&] { return default_file_system().rename(from, to); });
}

Status FaultyFiles::rename_noreplace(const std::string& from, const std::string& to) {
  return perform({.kind = Kind::kRename, .path = from, .to = to},
                 [&] { return default_file_system().rename_noreplace(from, to); });
}

Status FaultyFiles::remove_file(const std::string& path) {
  return perform({.kind = Kind::kRemoveFile, .path = path},
                 [&] { return default_file_system().remove_file(path); });
}

Status FaultyFiles::remove_tree(const std::string& path) {
  const std::lock_guard lock(mutex_);
  Operation operation{.kind = Kind::kRemoveTree, .path = path};
  const auto fault = next_fault();
  std::vector<std::string> entries = entries_of(path);
  if (fault && fault->extent == Extent::kHalf) entries.resize(entries.size() / 2);
  if (fault && fault->extent == Extent::kNothing) entries.clear();
  Status status;
  for (const std::string& entry : entries) {
    std::error_code error;
    std::filesystem::remove(entry, error);
    if (error) status = Status::from_errno(error.value(), "remove " + entry);
    if (error) break;
    operation.removed.push_back(entry);
  }
  operation.done = status.ok() && !fault;
  if (fault) status = error_of(*fault, operation);
  operations_.push_back(std::move(operation));
  return status;
}

Result<uint64_t> FaultyFiles::free_bytes(const std::string& path) {
  uint64_t bytes = 0;
  STOKER_RETURN_IF_ERROR(perform({.kind = Kind::kFreeBytes, .path = path}, [&]() -> Status {
    STOKER_ASSIGN_OR_RETURN(bytes, default_file_system().free_bytes(path));
    if (free_bytes_) bytes = *free_bytes_;
    return {};
  }));
  return bytes;
}

}  // namespace stoker::test
