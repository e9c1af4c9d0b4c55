// sample_split: the parts of data.NAME.split that are no ranges of positions (data.NAME.split_by).
//
// Each sample has a place in [0, 1), a hash of data.NAME.split_seed and of what identifies it: its file
// below data.NAME.path and the offset there, or its group. A part consists of the samples whose place is
// in [from, to). So it does not depend on other samples, and no sample changes its part when data is
// added. kStratified orders the samples of each class by their places, and a part is a range of
// each order.
//
// The places determine the samples of runs: never change them.
//
// Threads: functions of their arguments.
// Errors:  kInvalidArgument, naming the key: no sample is chosen; kStratified without known labels.
//          Those of Dataset::read_labels().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/index.h"

namespace stoker::data {

// The hash of a name: FNV-1a of 64 bits, then mix64().
uint64_t name_hash(std::string_view name);

// The hash of what identifies a sample: its file, by a name, and its offset there.
class SourceHash {
 public:
  using NameOf = std::function<std::string(const std::string& file)>;
  explicit SourceHash(NameOf name_of) : name_of_(std::move(name_of)) {}
  uint64_t operator()(const SampleSource& source);

 private:
  const NameOf name_of_;
  std::string file_;  // the last one
  uint64_t file_hash_ = name_hash("");
};

// Whether the texts of all records are one stream, whose blocks are the samples.
bool is_cut_into_blocks(const config::DatasetConfig& config);

// For DatasetFormatOps::fingerprint_text: equal parts have equal texts. Empty for kPosition.
std::string split_text(const DatasetRequest& request);

// For configurations for which splits_samples() holds. The numbers of the samples in `whole`, which is
// opened with `index` and has all samples; increasing.
Result<std::vector<uint64_t>> choose_samples(const DatasetRequest& request,
                                             const files::Index& index, const Dataset& whole);
// For those for which splits_files() holds.
Result<files::FileTable> choose_files(const DatasetRequest& request, const files::FileTable& files);

}  // namespace stoker::data
