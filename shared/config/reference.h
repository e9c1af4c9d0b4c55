// reference: documents generated from the descriptors of the settings (schema.h), so that each
// setting is described only once.
//
// Threads: pure functions.
#pragma once

#include <string>

namespace stoker::config {

// config/stoker.yaml: every setting with its default and its description. A valid configuration.
std::string manual_yaml();
// The tables of docs/configuration.md, one per section.
std::string reference_markdown();
// config/stoker.schema.json: a JSON Schema (draft 7) for editors.
std::string json_schema();

}  // namespace stoker::config
