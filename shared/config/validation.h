// validation: defaults that depend on other settings, and conditions between settings.
//
// Threads: pure functions but for what they write to.
// Errors:  are added to `errors`, at the location of one of the settings involved.
#pragma once

#include "shared/config/config.h"
#include "shared/config/config_errors.h"

namespace stoker::config {

// Settings that are not in `keys` and whose default follows from others.
void apply_derived_defaults(const ExplicitKeys& keys, Config& config);

void validate_config(const Config& config, const ExplicitKeys& keys, ConfigErrors& errors);
// The part of it that concerns data.
void validate_data(const Config& config, const ExplicitKeys& keys, ConfigErrors& errors);

}  // namespace stoker::config
