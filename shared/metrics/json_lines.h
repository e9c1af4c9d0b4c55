// JsonLinesFile: appends rows to a file, one JSON object a line, each in one write.
//
// Threads:  one; readers of the file may be in any process and see whole lines, but for the last
//           one of a writer that is just writing or was killed.
// Blocking: for the disk; sync() until the bytes are on it.
// Errors:   kNoSpace, kIoError, kPermission. After a failed append the file is as it was before it.
// Crash:    kill -9 may leave a torn last line; open() cuts it off and logs it. A power cut may
//           lose what was not synced.
#pragma once

#include <cstdint>
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
  // Creates the file where it is missing. `files` must outlive this object.
  static Result<std::unique_ptr<JsonLinesFile>> open(FileSystem& files, const std::string& path);

  Status append(const MetricsRecord& record) { return append_line(to_json(record)); }
  Status append_line(std::string_view json);  // without the newline
  uint64_t size() const { return size_; }     // bytes, after the last line
  const std::string& path() const { return path_; }

  // For a run that goes on from `step`: cuts off the rows of later steps, which will be reported
  // again. Returns how many. Rows must stand in the order of their steps, as a run writes them.
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
  bool has_partial_record_ =
      false;  // a failed write left bytes behind that could not be cut off at once
};

struct RecordsRead {
  std::vector<MetricsRecord> records;
  bool has_partial_line = false;  // the last line has no end yet, and is left out
};
// kCorrupt: with path and line number. kNotFound, kIoError. kInvalidArgument: larger than 1 GiB.
Result<RecordsRead> read_records(const std::string& path);

}  // namespace stoker::metrics
