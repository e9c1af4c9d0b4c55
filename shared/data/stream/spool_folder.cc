#include "shared/data/stream/spool_folder.h"

#include <sys/inotify.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "shared/data/counter_rng.h"
#include "shared/data/files/file_table.h"
#include "shared/data/stream/byte_input.h"

namespace stoker::data::stream {
namespace {

// The identity of a regular file; nullopt: something else, or nothing, has the name.
Result<std::optional<uint64_t>> find_identity(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    // Not knowing whether there is a file must not end the stream without it.
    if (errno != ENOENT) return Status::from_errno(errno, "stat " + path);
    return std::optional<uint64_t>();
  }
  if (!S_ISREG(info.st_mode)) return std::optional<uint64_t>();
  return std::optional(shard_identity(files::stamp_of(info)));
}

}  // namespace

uint64_t hash_of_name(std::string_view path) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : path.substr(path.rfind('/') + 1))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return mix64(hash);
}

SpoolFolder::SpoolFolder(std::string path, Taken taken, FolderListing listing)
    : path_(std::move(path)),
      listing_(std::move(listing)),
      watch_(path_, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR),
      taken_(std::move(taken)) {}

Result<std::unique_ptr<SpoolFolder>> SpoolFolder::open(std::string path, Taken taken,
                                                       FolderListing listing) {
  STOKER_RETURN_IF_ERROR(listing.list(path).status());
  return std::unique_ptr<SpoolFolder>(
      new SpoolFolder(std::move(path), std::move(taken), std::move(listing)));
}

Result<std::optional<SpoolFolder::File>> SpoolFolder::next(const std::stop_token& stop) {
  for (bool had_end = false;; had_end = has_end_) {
    if (stop.stop_requested()) return stopped_reading(path_);
    waiting_.count_poll();
    if (names_.empty() || Clock::now() >= expiry_) STOKER_RETURN_IF_ERROR(update_names());
    STOKER_ASSIGN_OR_RETURN(auto file, take_name());
    if (file) return file;
    // The list that has ".end" can lack a file that appeared before it, because readdir() had passed
    // its place. The list after it is complete.
    if (had_end && has_end_) return std::optional<File>();
    if (!has_end_) watch_.wait(waiting_);
  }
}

Status SpoolFolder::update_names() {
  STOKER_ASSIGN_OR_RETURN(names_, listing_.list(path_));
  has_end_ = std::ranges::binary_search(names_, std::string(kEnd));
  std::erase_if(names_, [](const std::string& name) { return name.starts_with('.'); });
  std::ranges::reverse(names_);
  const std::lock_guard lock(mutex_);
  Taken present;
  // Names that were taken come last, because each costs a stat().
  std::stable_partition(names_.begin(), names_.end(), [&](const std::string& name) {
    const auto taken = taken_.find(hash_of_name(name));
    if (taken == taken_.end()) return false;
    present.insert(*taken);
    return true;
  });
  taken_ = std::move(present);
  expiry_ = Clock::now() + listing_.max_age;
  return {};
}

Result<std::optional<SpoolFolder::File>> SpoolFolder::take_name() {
  while (!names_.empty()) {
    const std::string name = std::move(names_.back());
    names_.pop_back();
    std::string path = join_path(path_, name);
    STOKER_ASSIGN_OR_RETURN(const auto identity, find_identity(path));
    if (!identity) continue;
    const std::lock_guard lock(mutex_);
    const auto [taken, is_new] = taken_.try_emplace(hash_of_name(name), *identity);
    if (!is_new && std::exchange(taken->second, *identity) == *identity) continue;
    return std::optional(File{.path = std::move(path), .identity = *identity});
  }
  return std::optional<File>();
}

bool SpoolFolder::is_taken(uint64_t name_hash) const {
  const std::lock_guard lock(mutex_);
  return taken_.contains(name_hash);
}

Status SpoolFolder::archive_all(FileSystem& files, const std::string& path, const Taken& taken) {
  STOKER_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(path));
  Status first;
  for (const std::string& name : names) {
    const auto file = taken.find(hash_of_name(name));
    if (file == taken.end() || name.starts_with('.')) continue;
    const Status archived =
        archive(files, {.path = join_path(path, name), .identity = file->second});
    if (first.ok()) first = archived;
  }
  return first;
}

std::string SpoolFolder::archived_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  return join_path(join_path(folder, kDone), path.substr(slash + 1));
}

Status SpoolFolder::archive(FileSystem& files, const File& file) {
  STOKER_ASSIGN_OR_RETURN(const auto identity, find_identity(file.path));
  if (identity != file.identity) return {};
  const std::string target = archived_path(file.path);
  const std::string done = target.substr(0, target.rfind('/'));
  const Status made = files.make_directory(done);
  if (!made.ok() && made.code() != StatusCode::kAlreadyExists) return made;
  const Status moved = files.rename_noreplace(file.path, target);
  if (moved.code() == StatusCode::kNotFound) return {};
  if (moved.code() != StatusCode::kAlreadyExists) return moved;
  return Status(StatusCode::kAlreadyExists,
                file.path + ": " + done +
                    " has a file of this name already; remove one of them, and let the producer "
                    "use each name once");
}

}  // namespace stoker::data::stream
