// warn_about_overlap: logs that an evaluated dataset has samples that are trained on, so that its
// metrics are those of training: the same files without split, or with another split_by or split_seed.
//
// Threads:  functions of their arguments.
// Blocking: never; about 0.3 us per sample if the datasets can have files in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shared/config/dataset_config.h"
#include "shared/data/source.h"

namespace stoker::data::pipeline {

struct Overlap {
  uint64_t samples = 0;  // of `data` that are also in `other`; 0: none
  SampleSource first = {};
};

// Samples are equal if their files and offsets are. nullopt: unknown, because samples are parts of a
// stream of texts, or too many. `name` and `other_name`: of the datasets in `datasets`.
std::optional<Overlap> find_overlap(const config::DatasetConfigs& datasets, const std::string& name,
                                    const Dataset& data, const std::string& other_name,
                                    const Dataset& other);

// `train`: data.train.
void warn_about_overlap(const config::DatasetConfigs& datasets, const std::string& name,
                        const Dataset& data, const Source& train);

}  // namespace stoker::data::pipeline
