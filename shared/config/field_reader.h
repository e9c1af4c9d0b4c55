// field_reader: one value of a configuration into the field that it is for.
//
// Threads: pure but for what it writes to: the field's target, and the mistakes.
// Errors:  go to the mistakes, under the field's full name and with the value's place; the target is
//          then what it was, or empty.
#pragma once

#include <string>

#include "shared/config/mistakes.h"
#include "shared/config/schema.h"
#include "shared/config/yaml_value.h"

namespace stoker::config {

// `key`: the field's full name, such as train.steps.
void read_field(const Field& field, const std::string& key, const Value& value, Mistakes& mistakes);

}  // namespace stoker::config
