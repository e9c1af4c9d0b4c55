// warn_about_classes: logs what often is a mistake in the labels of an opened dataset: names that are
// numbers, and classes without samples.
//
// Threads:  functions of their arguments.
// Blocking: as count_classes().
#pragma once

#include <string>

#include "shared/config/dataset_config.h"
#include "shared/data/dataset.h"

namespace stoker::data::record {

// `name`: of the dataset in `datasets`.
void warn_about_classes(const std::string& name, const config::DatasetConfigs& datasets,
                        const Dataset& data);

}  // namespace stoker::data::record
