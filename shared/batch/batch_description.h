// describe_batch: lists the samples that a step trains on and where they come from.
//
// Reads only what the run directory stores (configuration, index, sample weights), because the
// sample plan is a pure function of them. Samples that could not be read are replaced in the same
// way as the workers replaced them.
//
// The size of an image, which a random region depends on, is read by a worker process
// (shared/feed/sandboxed_dataset.h) unless feed.num_processes is 0. It is always read in the sandbox if another user
// can have written the configuration.
//
// Threads:  stateless functions; they access only their arguments and the file system.
// Blocking: describe_batch() reads files, and waits for the worker process.
// Errors:   kNotFound: the run has no configuration or index yet; kInvalidArgument, kCorrupt,
//           kMismatch: these are invalid or do not belong together, or the step has no single batch, as of a stream
//           or an asynchronous run (kInvalidArgument); kIoError, kPermission; those of
//           starting the worker process; kCancelled: should_stop, before the first sample.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::batch {

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
  // The samples of a step are numbered from 0, in the order of their tickets and rows.
  uint64_t first_sample = 0;
  std::vector<SampleDescription> samples;
  // The sample of the step that follows the last of `samples`. Null: none does.
  std::optional<uint64_t> maybe_next;
};

struct DescribeOptions {
  uint64_t first_sample = 0;
  uint64_t max_samples = ~uint64_t{0};
  // Called after each sample, and several times a second while a worker process is waited for. Ends the
  // list after the samples so far.
  std::function<bool()> should_stop = {};
};

// `step` (at least 1) is the step that advances the run from step - 1 to step. kInvalidArgument also:
// the step has no sample `first_sample`.
Result<BatchDescription> describe_batch(const run::RunLayout& layout, uint64_t step,
                                        const DescribeOptions& options = {});
// One JSON object on one line, without a newline. Drops samples from the end, but for the first one,
// so that it has at most `max_bytes`.
std::string to_json(BatchDescription description, size_t max_bytes = ~size_t{0});
// kCorrupt: not such an object.
Result<BatchDescription> parse_batch_description(std::string_view json);

}  // namespace stoker::batch
