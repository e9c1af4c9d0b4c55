// validation: defaults that depend on other settings, and conditions between settings.
//
// Threads: pure functions, except for their output arguments.
// Errors:  added to `errors`, at the location of one of the settings involved.
#pragma once

#include "shared/config/config.h"
#include "shared/config/config_errors.h"

namespace stoker::config {

// With a tokenizer of text, the default of model.vocab_size is null. Before the settings of a
// pretrained model are read.
void apply_default_vocabulary(const ExplicitKeys& keys, Config& config);

// Applies defaults that depend on other settings, for settings that are not in `keys`.
void apply_derived_defaults(const ExplicitKeys& keys, Config& config);

void validate_config(const Config& config, const ExplicitKeys& keys, ConfigErrors& errors);
// The data-related part of the validation.
void validate_data(const Config& config, const ExplicitKeys& keys, ConfigErrors& errors);

}  // namespace stoker::config
