// describe_batch: which samples a step trains on, and where they come from.
//
// From what the run keeps (configuration, index, sample weights) alone, because the plan is a pure
// function of them; samples that could not be read are replaced as the readers replaced them.
//
// Threads: functions of their arguments and the file system.
// Errors:  kNotFound: the run has no configuration or index yet; kInvalidArgument, kCorrupt,
//          kMismatch: they are damaged, or not of one another; kIoError, kPermission.
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
  uint64_t ticket = 0;  // the micro-batch
  uint64_t row = 0;     // in it
  uint64_t epoch = 0;
  uint64_t dataset_epoch = 0;  // over the sample's own set
  uint64_t sample = 0;
  std::string file;  // empty: made by a formula
  uint64_t offset = 0;
  std::string dataset;     // of a mixture: the name of the sample's set
  std::string transforms;  // what is drawn at random while it is read; empty: nothing
  // Of sequences of various lengths: how long it is, and with its padding in this batch.
  uint64_t length = 0;
  uint64_t padded_to = 0;
  std::optional<uint64_t> maybe_replaced_sample;  // the planned sample, which could not be read
};

struct BatchDescription {
  uint64_t step = 0;
  uint64_t steps = 0;  // where training ends
  uint64_t size = 0;   // samples of data.train
  std::vector<SampleDescription> samples;
};

// `step` is at least 1: the step that brings the run from step - 1 to step.
Result<BatchDescription> describe_batch(const run::RunLayout& layout, uint64_t step);
std::string render_batch(const BatchDescription& description, const TextStyle& style);
// One JSON object on one line, without newline.
std::string to_json(const BatchDescription& description);

}  // namespace stoker::ctl
