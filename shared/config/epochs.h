// Epochs: settings in steps that a configuration gives in epochs, as in
//
//     train: {max_epochs: 10}                                # max_steps: {epochs: 10}
//     checkpoint: {save_every_steps: {epochs: 0.5}}
//
// stokerd resolves them when it knows the data, and again with each new version of it: a number of
// epochs is its product with the steps of an epoch, rounded up. train.max_steps and model.unfreeze_at_step
// are counted from where the run is, so that a run that continues with another batch size, or with more
// data, ends after the same number of epochs; for the schedule there is schedule_step(). The configuration
// in the run directory has both numbers, {epochs: 0.5, steps: 235}, for the programs that do not read the
// data; only the epochs are compared on resume.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "shared/config/config_errors.h"
#include "shared/config/schema.h"

namespace stoker::config {

// After reading: train.max_epochs and train.max_steps become two forms of one setting. Given in different
// ways, the one on the command line applies. An error: both are in the file, or both on the command line.
void join_max_epochs(const ExplicitKeys& keys, Config& config, ConfigErrors& errors);

// Replaces the steps of all settings in epochs.
void resolve_epochs(Config& config, const EpochLength& length);
// The step at which the schedule of the learning rate is evaluated for a step of the run: with a setting of
// the schedule in epochs, or train.max_steps, the epochs that the run has completed in steps of their
// present length, so that the rate does not jump when the length changes. Equal to `step` while it has not
// changed.
uint64_t schedule_step(const Config& config, uint64_t step);
// Takes the steps from the configuration of a run for settings that have the same epochs there.
void keep_resolved_epochs(Config& config, const Config& of_run);
// Whether steps of a setting in epochs are not known yet.
bool has_unresolved_epochs(const Config& config);
// "train.max_steps=4690 checkpoint.save_every_steps=235"; empty: no setting is in epochs.
std::string describe_epochs(const Config& config);

// For fields with accepts_epochs: whether it has several numbers, each of which is in epochs; the numbers,
// and whether all are above 0; replacing them.
bool is_list_of_steps(const Field& field);
bool are_steps_known(const Field& field);
void set_steps(const Field& field, std::span<const int64_t> steps);

}  // namespace stoker::config
