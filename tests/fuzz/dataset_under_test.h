// DatasetUnderTest: a dataset in files with arbitrary bytes. Checks the invariants that hold for
// any content.
//
// A violated invariant aborts the process:
// - scan, inspect, open and read return a Status. An error has a one-line message and a code that
//   attributes it to the file (not kInternal, not kOutOfMemory);
// - the size of a sample is limited by the size of the files, and nothing is written out of bounds;
// - a sample has the same bytes on every read, also through an index that was written and read
//   back, and after prefetching;
// - a label is smaller than the number of classes.
//
// Threads:   one.
// Ownership: the folder is removed with the object.
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
  // True if the dataset opens and at least one of its samples can be read.
  bool check(const config::DatasetConfig& config) const;

 private:
  test::TemporaryDirectory folder_;
};

}  // namespace stoker::fuzz
