// describe_batch: lists the samples that a step trains on and where they come from.
//
// Reads only what the run directory stores (configuration, index, sample weights), because the
// sample plan is a pure function of them. Samples that could not be read are replaced in the same
// way as the workers replaced them.
//
// The size of an image, which a random region depends on, is read by a worker process
// (shared/feed/sandboxed_dataset.h) unless feed.num_processes is 0.
//
// Threads: stateless functions; they access only their arguments and the file system.
// Errors:  kNotFound: the run has no configuration or index yet; kInvalidArgument, kCorrupt,
//          kMismatch: these are invalid or do not belong together; kIoError, kPermission; those of
//          starting the worker process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ctl/terminal.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

struct SampleDescription {
  uint64_t ticket = 0;  // sequence number of the micro-batch
  uint64_t row = 0;     // index within the micro-batch
  uint64_t epoch = 0;
  uint64_t dataset_epoch = 0;  // epoch of the sample's own dataset
  uint64_t sample = 0;
  std::string file;  // empty: synthetic
  uint64_t offset = 0;
  std::string dataset;     // for mixtures: the name of the sample's dataset
  std::string transforms;  // random transforms applied to the sample; empty: none
  // For variable-length sequences: the own length, and the padded length in this batch.
  uint64_t length = 0;
  uint64_t padded_to = 0;
  std::optional<uint64_t> maybe_replaced_sample;  // the planned sample that could not be read
};

struct BatchDescription {
  uint64_t step = 0;
  uint64_t steps = 0;  // train.max_steps
  uint64_t size = 0;   // number of samples in data.train
  std::vector<SampleDescription> samples;
};

// `step` (at least 1) is the step that advances the run from step - 1 to step.
Result<BatchDescription> describe_batch(const run::RunLayout& layout, uint64_t step);
std::string render_batch(const BatchDescription& description, const TextStyle& style);
// One JSON object on one line, without a newline.
std::string to_json(const BatchDescription& description);

}  // namespace stoker::ctl
