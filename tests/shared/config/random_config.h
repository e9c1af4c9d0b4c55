// random_config: any configuration that load_config() takes, made through the schema, so that a new setting is
// covered as soon as it exists.
#pragma once

#include <random>

#include "shared/config/config.h"

namespace stoker::config::test {

Config random_config(std::mt19937_64& random);

}  // namespace stoker::config::test
