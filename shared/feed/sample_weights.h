// Sample weights: the numbers by which samples of sets with sample_weights_path are drawn, through the
// life of a run.
//
// stokerd reads the users' files when it starts and keeps what it read beside the index, by the
// ticket from which on it holds; readers and `stokerctl show-batch` take what is kept. So a file may
// be replaced at any time, its numbers come in at the next start, and what was drawn before can
// still be told.
//
// Threads: any; snapshot_sample_weights() by the one stokerd of the run directory only.
// Errors:  those of sample_weights_file.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/dataset/dataset.h"

namespace stoker::feed {

inline constexpr uint64_t kLatestTicket = ~uint64_t{0};

using SampleWeights = std::map<std::string, std::vector<double>>;  // by the set's name

// From the users' files. `data` is data.train.
Result<SampleWeights> read_sample_weights(const config::Config& config,
                                          const dataset::Dataset& data);
// `ticket` is the first that is drawn by them.
Status snapshot_sample_weights(const SampleWeights& weights, const std::string& index_dir,
                               uint64_t ticket);
// Those that hold for the ticket. kNotFound: none were kept for it.
Result<SampleWeights> load_sample_weights(const config::Config& config,
                                          const std::string& index_dir, uint64_t ticket);

}  // namespace stoker::feed
