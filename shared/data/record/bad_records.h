// BadRecords: the records of a dataset that cannot be used and are left out when it is indexed, such as
// a line that is not JSON. They are logged, and listed in index/NAME.bad_records.jsonl; more than
// data.NAME.max_bad_record_rate are an error.
//
// Threads:  one at a time.
// Blocking: check() writes the list.
// Errors:   check(): the code of the first one, with its location and their number; those of files.
#pragma once

#include <cstdint>
#include <string>

#include "shared/base/status.h"
#include "shared/data/dataset_request.h"

namespace stoker::data::record {

class BadRecords {
 public:
  // `request` must outlive this object.
  BadRecords(const DatasetRequest& request, double max_rate)
      : request_(request), max_rate_(max_rate) {}

  struct Location {
    std::string path;
    std::string record;   // "line 7"
    uint64_t offset = 0;  // in the file
    std::string text;     // for messages: the setting, the path and the record
  };
  void add(const Location& location, const Status& why);
  uint64_t count() const { return count_; }

  // `seen`: the number of records so far, including the bad ones.
  bool are_too_many(uint64_t seen) const;
  Status check(uint64_t seen) const;

 private:
  const DatasetRequest& request_;
  const double max_rate_;
  uint64_t count_ = 0;
  Status first_;      // with its location
  std::string list_;  // JSON lines, those of the file
};

}  // namespace stoker::data::record
