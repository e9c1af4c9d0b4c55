// random_config: random configurations that load_config() accepts. They are created through the
// schema, so that new settings are covered automatically.
#pragma once

#include <random>

#include "shared/config/config.h"
#include "shared/config/schema.h"

namespace stoker::config::test {

Config random_config(std::mt19937_64& random);

// A value in the range of the field; conditions between several fields can be violated.
void fill_field(const Field& field, std::mt19937_64& random);

}  // namespace stoker::config::test
