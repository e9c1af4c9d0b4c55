#include "tests/support/faulty_files.h"

#include <fcntl.h>

#include <cassert>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "tests/support/temporary_directory.h"

namespace stoker::test {
namespace {

namespace fs = std::filesystem;

std::string read_content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Possible content of a file whose bytes are not all synced.
std::string partially_synced(const std::string& synced, const std::string& bytes,
                             std::mt19937_64& random) {
  if (synced == bytes) return bytes;
  switch (random() % 4) {
    case 0:
      return synced;
    case 1:
      return bytes.substr(0, random() % (bytes.size() + 1));
    case 2:
      return std::string(bytes.size(), '\0');  // the size was written, the blocks were not
    default:
      return bytes;
  }
}

}  // namespace

std::string to_string(const Operation& operation) {
  static const char* const kNames[] = {"open",        "write",          "reserve", "read",
                                       "sync",        "sync directory", "mkdir",   "rename",
                                       "remove file", "remove tree",    "statvfs"};
  std::string text = kNames[static_cast<size_t>(operation.kind)] + (" " + operation.path);
  if (!operation.to.empty()) text += " to " + operation.to;
  if (!operation.content.empty()) text += " " + std::to_string(operation.content.size()) + " bytes";
  return text;
}

DiskModel::DiskModel(std::string root) : root_(fs::path(root).lexically_normal().string()) {
  load_directory(root_, add(true));
}

uint64_t DiskModel::add(bool is_directory) {
  nodes_.emplace_back().is_directory = is_directory;
  return nodes_.size() - 1;
}

void DiskModel::load_directory(const std::string& path, uint64_t node) {
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_symlink()) continue;
    const uint64_t child = add(entry.is_directory());
    nodes_[node].names[entry.path().filename().string()] = child;
    if (entry.is_directory()) {
      load_directory(entry.path().string(), child);
    } else {
      nodes_[child].bytes = nodes_[child].synced_bytes = read_content(entry.path());
    }
  }
  nodes_[node].synced_names = nodes_[node].names;
}

std::optional<DiskModel::Location> DiskModel::find_location(const std::string& path) const {
  const fs::path relative = fs::path(path).lexically_normal().lexically_relative(root_);
  if (relative.empty() || relative == "." || *relative.begin() == "..") return std::nullopt;
  uint64_t directory = 0;
  for (const auto& component : relative.parent_path()) {
    const auto found = nodes_[directory].names.find(component.string());
    if (found == nodes_[directory].names.end()) return std::nullopt;
    directory = found->second;
  }
  return Location{directory, relative.filename().string()};
}

std::optional<uint64_t> DiskModel::find_node(const std::string& path) const {
  if (fs::path(path).lexically_normal() == root_) return 0;
  const auto location = find_location(path);
  if (!location) return std::nullopt;
  const auto found = nodes_[location->directory].names.find(location->name);
  if (found == nodes_[location->directory].names.end()) return std::nullopt;
  return found->second;
}

void DiskModel::apply(const Operation& operation) {
  using Kind = Operation::Kind;
  if (operation.kind == Kind::kWrite) return write(operation);
  if (operation.kind == Kind::kRemoveTree)
    for (const std::string& path : operation.removed) remove(path);
  if (operation.kind == Kind::kSync && handles_.contains(operation.handle)) {
    Node& node = nodes_[handles_[operation.handle].node];
    node.has_failed_sync |= !operation.done;
    if (!node.has_failed_sync) node.synced_bytes = node.bytes;
  }
  if (!operation.done) return;
  if (operation.kind == Kind::kOpen) open(operation);
  if (operation.kind == Kind::kRename) rename(operation.path, operation.to);
  if (operation.kind == Kind::kRemoveFile) remove(operation.path);
  if (operation.kind == Kind::kMakeDirectory) {
    if (const auto location = find_location(operation.path))
      change(location->directory, {"", location->name, add(true)});
  }
  if (operation.kind == Kind::kSyncDirectory) {
    const auto node = find_node(operation.path);
    if (!node) return;
    nodes_[*node].synced_names = nodes_[*node].names;
    nodes_[*node].unsynced.clear();
  }
}

void DiskModel::open(const Operation& operation) {
  const auto location = find_location(operation.path);
  if (!location) return;
  auto node = find_node(operation.path);
  if (!node) {
    if ((operation.flags & O_CREAT) == 0) return;
    node = add(false);
    change(location->directory, {"", location->name, *node});
  }
  if ((operation.flags & O_TRUNC) != 0) nodes_[*node].bytes.clear();
  handles_[operation.handle] = {*node, 0, (operation.flags & O_APPEND) != 0};
}

void DiskModel::write(const Operation& operation) {
  const auto found = handles_.find(operation.handle);
  if (found == handles_.end()) return;
  Handle& handle = found->second;
  std::string& bytes = nodes_[handle.node].bytes;
  if (handle.appends) handle.position = bytes.size();
  if (bytes.size() < handle.position + operation.content.size())
    bytes.resize(handle.position + operation.content.size());
  bytes.replace(handle.position, operation.content.size(), operation.content);
  handle.position += operation.content.size();
}

void DiskModel::rename(const std::string& from, const std::string& to) {
  const auto node = find_node(from);
  const auto old_location = find_location(from);
  const auto new_location = find_location(to);
  if (!node) return;
  if (old_location && new_location && old_location->directory == new_location->directory)
    return change(old_location->directory, {old_location->name, new_location->name, *node});
  if (new_location) change(new_location->directory, {"", new_location->name, *node});
  if (old_location) change(old_location->directory, {old_location->name, "", *node});
}

void DiskModel::remove(const std::string& path) {
  const auto node = find_node(path);
  const auto location = find_location(path);
  if (node && location) change(location->directory, {location->name, "", *node});
}

void DiskModel::change(uint64_t directory, Change change) {
  apply_change(change, nodes_[directory].names);
  nodes_[directory].unsynced.push_back(std::move(change));
}

// A change has no effect if it depends on another change that did not survive.
void DiskModel::apply_change(const Change& change, Names& names) {
  if (!change.from.empty()) {
    const auto found = names.find(change.from);
    if (found == names.end() || found->second != change.node) return;
    names.erase(found);
  }
  if (!change.to.empty()) names[change.to] = change.node;
}

void DiskModel::materialize(Survival survival, uint64_t seed, const std::string& directory) const {
  std::mt19937_64 random(seed);
  write_surviving(0, survival, random, directory);
}

void DiskModel::write_surviving(uint64_t index, Survival survival, std::mt19937_64& random,
                                const std::string& path) const {
  const Node& node = nodes_[index];
  if (!node.is_directory) {
    if (survival == Survival::kEverything) return write_whole(path, node.bytes);
    const bool some = survival == Survival::kSome;
    return write_whole(
        path, some ? partially_synced(node.synced_bytes, node.bytes, random) : node.synced_bytes);
  }
  Names names = survival == Survival::kNothing || survival == Survival::kSome ? node.synced_names
                                                                              : node.names;
  if (survival == Survival::kSome) {
    for (const Change& change : node.unsynced)
      if (random() % 2 == 0) apply_change(change, names);
  }
  fs::create_directory(path);
  for (const auto& [name, child] : names)
    write_surviving(child, survival, random, path + "/" + name);
}

namespace {

using Kind = Operation::Kind;
using Extent = Fault::Extent;

Status make_error(const Fault& fault, const Operation& operation) {
  return Status::from_errno(fault.error, to_string(operation));
}

// DiskModel tracks what is synced, so the real sync is skipped.
Status check_open(int fd, const std::string& path) {
  if (::fcntl(fd, F_GETFD) >= 0) return {};
  return Status::from_errno(errno, "fsync " + path);
}

// The entries of a tree in order of removal: contents before their directory, the root last.
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

FaultyFiles::FaultyFiles(const std::string& root) : initial_disk_(root) {}

void FaultyFiles::fail_at(uint64_t operation, Fault fault) {
  const std::lock_guard lock(mutex_);
  faults_[operation] = fault;
}

void FaultyFiles::heal() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  persistent_fault_.reset();
  free_bytes_.reset();
}

void FaultyFiles::set_free_bytes(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  free_bytes_ = bytes;
}

void FaultyFiles::fail_locks(bool fail) {
  const std::lock_guard lock(mutex_);
  fails_locks_ = fail;
}

std::vector<Operation> FaultyFiles::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

void FaultyFiles::simulate_power_loss(uint64_t operations, Survival survival, uint64_t seed,
                                      const std::string& directory) const {
  const std::lock_guard lock(mutex_);
  DiskModel disk = initial_disk_;
  for (uint64_t i = 0; i < operations && i < operations_.size(); ++i) disk.apply(operations_[i]);
  disk.materialize(survival, seed, directory);
}

std::optional<Fault> FaultyFiles::next_fault() {
  if (persistent_fault_) return persistent_fault_;
  const auto found = faults_.find(operations_.size() + 1);
  if (found == faults_.end()) return std::nullopt;
  if (found->second.from_here_on)
    persistent_fault_ = Fault{found->second.error, Extent::kNothing, true};
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
  if (fault) status = make_error(*fault, operation);
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
    // The kernel rejects flock() on an O_PATH descriptor with EBADF.
    const bool is_unlockable = fails_locks_ && (flags & O_CREAT) == 0;
    opened = default_file_system().open(path, is_unlockable ? O_PATH : flags, mode);
    operation.done = opened->ok();
    if (opened->ok()) handles_[(*opened)->get()] = operation.handle;
  }
  operations_.push_back(operation);
  if (fault) return make_error(*fault, operation);
  return *std::move(opened);
}

Status FaultyFiles::write(int fd, std::span<const std::byte> bytes, const std::string& path) {
  const std::lock_guard lock(mutex_);
  Operation operation{.kind = Kind::kWrite, .path = path, .handle = handles_[fd]};
  const auto fault = next_fault();
  size_t bytes_written = bytes.size();
  if (fault && fault->extent == Extent::kHalf) bytes_written /= 2;
  if (fault && fault->extent == Extent::kNothing) bytes_written = 0;
  Status status = default_file_system().write(fd, bytes.first(bytes_written), path);
  operation.content.assign(reinterpret_cast<const char*>(bytes.data()), bytes_written);
  operation.done = status.ok() && bytes_written == bytes.size();
  if (fault) status = make_error(*fault, operation);
  operations_.push_back(std::move(operation));
  return status;
}

Status FaultyFiles::reserve(int fd, uint64_t bytes, const std::string& path) {
  return perform({.kind = Kind::kReserve, .path = path},
                 [&] { return default_file_system().reserve(fd, bytes, path); });
}

Result<size_t> FaultyFiles::read_at(int fd, uint64_t offset, std::span<std::byte> bytes,
                                    const std::string& path) {
  size_t bytes_read = 0;
  STOKER_RETURN_IF_ERROR(perform({.kind = Kind::kReadAt, .path = path}, [&]() -> Status {
    STOKER_ASSIGN_OR_RETURN(bytes_read, default_file_system().read_at(fd, offset, bytes, path));
    return {};
  }));
  return bytes_read;
}

Status FaultyFiles::sync(int fd, const std::string& path) {
  uint64_t handle = 0;
  {
    const std::lock_guard lock(mutex_);
    handle = handles_[fd];
  }
  return perform({.kind = Kind::kSync, .path = path, .handle = handle},
                 [&] { return check_open(fd, path); });
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
  if (fault) status = make_error(*fault, operation);
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
