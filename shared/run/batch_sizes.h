// BatchSizes: which tickets and how many samples each step of a run has, if --allow-batch-change has changed the
// batch size during the run. Part of the state in a checkpoint; RUN/batch_sizes.json is that of the present state.
//
// Threads: values; functions of their arguments and the file system. Only the stokerd of the run directory writes.
// Errors:  kCorrupt: not as to_json() writes it; kIoError, kPermission.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/config/training_config.h"

namespace stoker::run {

struct BatchSize {
  // The first step with it follows this many steps, starts with this ticket, and follows this many samples.
  uint64_t steps_before = 0;
  uint64_t first_ticket = 0;
  uint64_t samples_before = 0;
  uint64_t micro_batch_size = 0;
  uint64_t gradient_accumulation_steps = 0;

  uint64_t samples_per_step() const { return micro_batch_size * gradient_accumulation_steps; }
  // The first ticket of the step after `steps`, and the samples up to there.
  uint64_t ticket_after(uint64_t steps) const {
    return first_ticket + (steps - steps_before) * gradient_accumulation_steps;
  }
  uint64_t samples_after(uint64_t steps) const {
    return samples_before + (steps - steps_before) * samples_per_step();
  }
  bool operator==(const BatchSize&) const = default;
};
// In the order of their steps, the first from step 0 on. Empty: the configuration's for all steps.
using BatchSizes = std::vector<BatchSize>;

// The batch size of the step after `steps`.
BatchSize batch_size_at(const BatchSizes& sizes, uint64_t steps, const config::TrainConfig& config);
// From the step after `steps` on, whose first ticket is `ticket`, the batch size of `now` instead of `before`.
void change_batch_size(BatchSizes& sizes, const config::TrainConfig& before,
                       const config::TrainConfig& now, uint64_t steps, uint64_t ticket);

std::string to_json(const BatchSizes& sizes);  // an array
Result<BatchSizes> parse_batch_sizes(std::string_view json, const std::string& path_in_messages);

// `path`: RunLayout::batch_sizes_file(). Without a file empty, and no file if empty.
Result<BatchSizes> read_batch_sizes(const std::string& path);
Status write_batch_sizes(FileSystem& files, const std::string& path, const BatchSizes& sizes);

}  // namespace stoker::run
