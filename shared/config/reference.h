// reference: documents generated from the descriptors of the settings (schema.h), so that each
// setting is described only once.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "shared/base/cli_documents.h"

namespace stoker::config {

// config/stoker.yaml: every setting with its default and its description. A valid configuration.
std::string manual_yaml();
// stoker.yaml(5): every setting with its description, for man(1).
std::string man_page();
// The tables of docs/configuration.md, one per section.
std::string reference_markdown();
// config/stoker.schema.json: a JSON Schema (draft 7) for editors.
std::string json_schema();
// The keys of --set, below the datasets `train` and `val`, and the values that are words.
KeyCompletions key_completions();

}  // namespace stoker::config
