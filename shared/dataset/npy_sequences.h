// NpySequences: rows of an array as sequences of various lengths: each has room for the longest, and is
// filled up to a length of its own.
//
//   `input` F32 [length, what a place has], `length` I64, and `label` I64, `labels` I64 or `target` F32
//   (sequence_layout.h). Labels that are as many as the places of a row are one for each place.
//
// Threads: as Dataset.
#pragma once

#include <memory>
#include <string>

#include "shared/dataset/dataset.h"
#include "shared/dataset/npy_index.h"
#include "shared/dataset/split_fraction.h"

namespace stoker::dataset {

// `index.lengths` has a length for each row.
std::unique_ptr<Dataset> make_npy_sequences(std::string fingerprint, NpyIndex index,
                                            SampleRange range);

}  // namespace stoker::dataset
