#include "tests/support/disk_model.h"

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

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// What may stand in a file whose bytes are not all synced.
std::string some_of(const std::string& synced, const std::string& bytes, std::mt19937_64& coins) {
  if (synced == bytes) return bytes;
  switch (coins() % 4) {
    case 0:
      return synced;
    case 1:
      return bytes.substr(0, coins() % (bytes.size() + 1));
    case 2:
      return std::string(bytes.size(), '\0');  // the length, but not the blocks
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
  take_in(root_, add(true));
}

uint64_t DiskModel::add(bool is_directory) {
  nodes_.emplace_back().is_directory = is_directory;
  return nodes_.size() - 1;
}

void DiskModel::take_in(const std::string& path, uint64_t node) {
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_symlink()) continue;
    const uint64_t child = add(entry.is_directory());
    nodes_[node].names[entry.path().filename().string()] = child;
    if (entry.is_directory()) {
      take_in(entry.path().string(), child);
    } else {
      nodes_[child].bytes = nodes_[child].synced_bytes = content_of(entry.path());
    }
  }
  nodes_[node].synced_names = nodes_[node].names;
}

std::optional<DiskModel::Place> DiskModel::find_location(const std::string& path) const {
  const fs::path relative = fs::path(path).lexically_normal().lexically_relative(root_);
  if (relative.empty() || relative == "." || *relative.begin() == "..") return std::nullopt;
  uint64_t directory = 0;
  for (const auto& part : relative.parent_path()) {
    const auto found = nodes_[directory].names.find(part.string());
    if (found == nodes_[directory].names.end()) return std::nullopt;
    directory = found->second;
  }
  return Place{directory, relative.filename().string()};
}

std::optional<uint64_t> DiskModel::find_node(const std::string& path) const {
  if (fs::path(path).lexically_normal() == root_) return 0;
  const auto offset = find_location(path);
  if (!offset) return std::nullopt;
  const auto found = nodes_[offset->directory].names.find(offset->name);
  if (found == nodes_[offset->directory].names.end()) return std::nullopt;
  return found->second;
}

void DiskModel::apply(const Operation& operation) {
  using Kind = Operation::Kind;
  if (operation.kind == Kind::kWrite) return write(operation);
  if (operation.kind == Kind::kRemoveTree)
    for (const std::string& path : operation.removed) remove(path);
  if (operation.kind == Kind::kSync && handles_.contains(operation.handle)) {
    Node& node = nodes_[handles_[operation.handle].node];
    node.lost |= !operation.done;
    if (!node.lost) node.synced_bytes = node.bytes;
  }
  if (!operation.done) return;
  if (operation.kind == Kind::kOpen) open(operation);
  if (operation.kind == Kind::kRename) rename(operation.path, operation.to);
  if (operation.kind == Kind::kRemoveFile) remove(operation.path);
  if (operation.kind == Kind::kMakeDirectory) {
    if (const auto offset = find_location(operation.path))
      change(offset->directory, {"", offset->name, add(true)});
  }
  if (operation.kind == Kind::kSyncDirectory) {
    const auto node = find_node(operation.path);
    if (!node) return;
    nodes_[*node].synced_names = nodes_[*node].names;
    nodes_[*node].unsynced.clear();
  }
}

void DiskModel::open(const Operation& operation) {
  const auto offset = find_location(operation.path);
  if (!offset) return;
  auto node = find_node(operation.path);
  if (!node) {
    if ((operation.flags & O_CREAT) == 0) return;
    node = add(false);
    change(offset->directory, {"", offset->name, *node});
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
  const auto offset = find_location(path);
  if (node && offset) change(offset->directory, {offset->name, "", *node});
}

void DiskModel::change(uint64_t directory, Change change) {
  carry_out(change, nodes_[directory].names);
  nodes_[directory].unsynced.push_back(std::move(change));
}

// A change whose ground is missing, because another one did not survive, has no effect.
void DiskModel::carry_out(const Change& change, Names& names) {
  if (!change.from.empty()) {
    const auto found = names.find(change.from);
    if (found == names.end() || found->second != change.node) return;
    names.erase(found);
  }
  if (!change.to.empty()) names[change.to] = change.node;
}

void DiskModel::materialise(Survival survival, uint64_t seed, const std::string& directory) const {
  std::mt19937_64 coins(seed);
  put(0, survival, coins, directory);
}

void DiskModel::put(uint64_t index, Survival survival, std::mt19937_64& coins,
                    const std::string& path) const {
  const Node& node = nodes_[index];
  if (!node.is_directory) {
    if (survival == Survival::kEverything) return write_whole(path, node.bytes);
    const bool some = survival == Survival::kSome;
    return write_whole(path,
                       some ? some_of(node.synced_bytes, node.bytes, coins) : node.synced_bytes);
  }
  Names names = survival == Survival::kNothing || survival == Survival::kSome ? node.synced_names
                                                                              : node.names;
  if (survival == Survival::kSome) {
    for (const Change& change : node.unsynced)
      if (coins() % 2 == 0) carry_out(change, names);
  }
  fs::create_directory(path);
  for (const auto& [name, child] : names) put(child, survival, coins, path + "/" + name);
}

}  // namespace stoker::test
