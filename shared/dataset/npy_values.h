// npy values: rows of an array as the values of a tensor.
//
// Threads: functions of their arguments; each thread has memory of its own for a row.
// Errors:  those of NpyRows; kCorrupt where a label is not one that the index knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "shared/base/status.h"
#include "shared/dataset/npy_rows.h"
#include "shared/dataset/scan_progress.h"

namespace stoker::dataset {

// The first numbers of a row, as many as fit into `out`, as F32.
Status read_npy_floats(const NpyRows& rows, uint64_t row, std::span<std::byte> out);
// A row's only number, I64, below `classes`.
Status read_npy_class(const NpyRows& rows, uint64_t row, uint64_t classes,
                      std::span<std::byte> out);
// The only numbers of so many rows, as they are.
Status read_npy_labels(const NpyRows& rows, uint64_t row, std::span<int64_t> labels);
// The first numbers of a row, as many as fit into `out`, as I64: below `classes`, or -100.
Status read_npy_classes(const NpyRows& rows, uint64_t row, uint64_t classes,
                        std::span<std::byte> out);

// Calls `on_number` with each whole number of an array, in order, and the row that it is in.
using OnNumber = std::function<Status(const NpyRows& rows, uint64_t row, int64_t number)>;
Status for_each_npy_number(const NpyRows& rows, const ScanProgress& progress, std::string_view what,
                           const OnNumber& on_number);

}  // namespace stoker::dataset
