// SpoolFolder: files that other programs rename into a folder, in the order of their names.
//
// A file must be complete when its name appears: write it under a name that starts with a dot, or in
// another folder of the file system, then rename it. Names that start with a dot and subfolders are
// ignored. The next file is the one with the lowest name among those that were there about 100 ms
// before and were not taken. A file ".end" ends the stream when all others were taken.
//
// If producers use each name once, and each name is above those before it (a time or a counter of
// constant width), the order of the files does not depend on when they appear or when the folder is
// listed. Otherwise it does: a lower name that appears late comes as soon as it is listed, and a name
// that was used again after the others of its list. A resumed run keeps the order of the files that it
// had taken.
//
// A taken file remains until archive() moves it to the subfolder "done", when no checkpoint needs it
// any more. stoker deletes and replaces no file. A file with the name of a taken one, but another
// identity (size or time), is another file.
//
// Threads:  one at a time, except is_waiting(), polls() and is_taken(), which any thread may call.
// Blocking: next() until a file appears, the end, or a stop, which it notices within 100 ms.
// Errors:   kCancelled (stop), kNotFound, kPermission, kIoError; each names the folder or the file.
// Sandbox:  open() is called before the system call filter of a worker process is installed, next()
//           may be called after it. archive() is called by stokerd.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/data/stream/source_wait.h"

namespace stoker::data::stream {

// How a folder is listed. Tests have others.
struct FolderListing {
  std::function<Result<std::vector<std::string>>(const std::string&)> list = list_directory;
  std::chrono::milliseconds max_age{100};  // of a list that has further names
};

// Of the last component of a path, the same in all processes: a file of one folder in 8 bytes.
uint64_t hash_of_name(std::string_view path);

class SpoolFolder {
 public:
  static constexpr char kDone[] = "done";
  static constexpr char kEnd[] = ".end";

  struct File {
    std::string path;
    uint64_t identity = 0;  // ByteInput::identity() of the shard
  };
  using Taken = std::unordered_map<uint64_t, uint64_t>;  // identities by hash_of_name()
  // `taken`: of a run that is resumed.
  static Result<std::unique_ptr<SpoolFolder>> open(std::string path, Taken taken = {},
                                                   FolderListing listing = {});
  SpoolFolder(const SpoolFolder&) = delete;
  SpoolFolder& operator=(const SpoolFolder&) = delete;

  // The next file, which is then taken; nullopt at the end.
  Result<std::optional<File>> next(const std::stop_token& stop);
  // Whether a file with this hash_of_name() was taken, and was in the folder when it was listed last.
  bool is_taken(uint64_t name_hash) const;
  bool is_waiting() const { return waiting_.is_waiting(); }
  uint64_t polls() const { return waiting_.polls(); }  // as ByteInput::polls()

  // Moves a taken file to the subfolder "done" of its folder, which is created. A file that is not
  // there any more, or was replaced, is no error: a crash can repeat the call. kAlreadyExists:
  // "done" has a file of this name; the file remains.
  static Status archive(FileSystem& files, const File& file);
  // Where archive() moves a file.
  static std::string archived_path(const std::string& path);
  // archive() of all files of the folder that are in `taken`; the first error, after the others.
  static Status archive_all(FileSystem& files, const std::string& path, const Taken& taken);

 private:
  using Clock = std::chrono::steady_clock;

  SpoolFolder(std::string path, Taken taken, FolderListing listing);
  // Lists the folder.
  Status update_names();
  // The first of names_ that was not taken; nullopt: none.
  Result<std::optional<File>> take_name();

  // Constant after construction.
  const std::string path_;
  const FolderListing listing_;

  SourceWait waiting_;

  // Used by the thread that calls next().
  FolderWatch watch_;
  std::vector<std::string> names_;  // as listed, from the last to the first
  Clock::time_point expiry_;        // of names_
  bool has_end_ = false;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  Taken taken_;
};

}  // namespace stoker::data::stream
