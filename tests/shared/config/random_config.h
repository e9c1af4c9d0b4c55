// random_config: any configuration that load_config() accepts, created through the schema, so that a new
// setting is covered as soon as it exists.
#pragma once

#include <random>

#include "shared/config/config.h"
#include "shared/config/schema.h"

namespace stoker::config::test {

Config random_config(std::mt19937_64& random);

// A value in the range of the field; conditions between several fields may be violated.
void fill_field(const Field& field, std::mt19937_64& random);

}  // namespace stoker::config::test
