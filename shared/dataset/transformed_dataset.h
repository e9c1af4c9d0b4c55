// with_transforms: a data set whose pictures are changed at random while they are read, whatever format
// they are of.
//
// Threads, blocking, errors: as the set itself.
#pragma once

#include <memory>

#include "shared/base/status.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/format.h"
#include "shared/dataset/random_transforms.h"

namespace stoker::dataset {

// kInvalidArgument where a set without encoded pictures resizes them.
Status check_transforms(const DatasetRequest& request);

// The set itself where nothing is to be done to it. kInvalidArgument where it has transforms and its
// input is no picture, or one of another size than random_crop says.
Result<std::unique_ptr<Dataset>> with_transforms(const DatasetRequest& request,
                                                 std::unique_ptr<Dataset> dataset);

}  // namespace stoker::dataset
