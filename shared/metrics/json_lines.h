// JsonLinesFile: appends records to a file, one JSON object per line, each with one write().
//
// Threads:  one. Any process can read the file; it sees complete lines, except that the last one
//           can be partial during a write or after a crash of the writer.
// Blocking: append() and truncate_after_step() block on the disk; sync() until the bytes are
//           durable.
// Errors:   kNoSpace, kIoError, kPermission. A failed append leaves the file unchanged.
// Crash:    kill -9 can leave a partial last line; open() truncates it and logs that. A power
//           failure can lose what was not synced.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/metrics/metrics_record.h"

namespace stoker::metrics {

inline constexpr uint64_t kMaxLineBytes = 1 << 20;

class JsonLinesFile {
 public:
  // Creates the file, durably, if it does not exist. `files` must outlive this object.
  static Result<std::unique_ptr<JsonLinesFile>> open(FileSystem& files, const std::string& path);

  Status append(const MetricsRecord& record) { return append_line(to_json(record)); }
  Status append_line(std::string_view json);  // without the newline
  uint64_t size() const { return size_; }     // bytes up to the end of the last line
  const std::string& path() const { return path_; }

  // For a run that resumes from `step`: truncates the records of later steps, which will be
  // reported again, and returns their number. Records must be in step order, as a run writes them.
  Result<uint64_t> truncate_after_step(uint64_t step);

  Status sync() { return files_.sync(fd_.get(), path_); }

 private:
  JsonLinesFile(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  Status remove_partial_line();
  Status truncate_file(uint64_t bytes);

  FileSystem& files_;
  const std::string path_;
  UniqueFd fd_;
  uint64_t size_ = 0;
  bool has_partial_record_ = false;  // a failed write left bytes that are not truncated yet
};

// Calls `on_record` with each record and the number of its line; memory does not depend on the size of
// the file. An unterminated last line is ignored. kCorrupt: with path and line number. kNotFound,
// kIoError; the errors of `on_record`.
Status for_each_record(
    const std::string& path,
    const std::function<Status(const MetricsRecord& record, uint64_t line)>& on_record);

struct RecordsRead {
  std::vector<MetricsRecord> records;
  bool has_partial_line = false;  // the last line is unterminated and was ignored
};
// All of them, for files that this program has written.
Result<RecordsRead> read_records(const std::string& path);

}  // namespace stoker::metrics
