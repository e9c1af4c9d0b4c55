// DatasetUnderTest: a data set laid out in files whose bytes may be anything, and what must hold of it
// all the same.
//
// The promises, each of which ends the process when it is broken:
//   - scan, inspect, open and read end with a Status: a message on one line, and a code that blames
//     the file (not kInternal, not kOutOfMemory);
//   - a sample is not larger than the files can justify, and nothing is written beside it;
//   - the same sample has the same bytes each time, also through an index that was written and read,
//     and when they were read ahead;
//   - a label is smaller than the number of classes.
//
// Threads: one.
// Owner:   the folder goes away with the object.
#pragma once

#include <string>
#include <string_view>

#include "shared/config/dataset_config.h"
#include "tests/support/temporary_directory.h"

namespace stoker::fuzz {

class DatasetUnderTest {
 public:
  DatasetUnderTest();

  std::string path(const std::string& name) const { return folder_ / name; }
  // Replaces the file.
  void write(const std::string& name, std::string_view content);
  // True where the set opens and at least one of its samples can be read.
  bool check(const config::DatasetConfig& config) const;

 private:
  test::TemporaryDirectory folder_;
};

}  // namespace stoker::fuzz
