// DatasetRequest: one named dataset of the configuration, and the names of its settings in
// messages.
//
// Threads:   a value.
// Ownership: name, config, budget and sandbox must outlive this object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"

namespace stoker::data::files {
class MemoryBudget;
}  // namespace stoker::data::files

namespace stoker::data {

class Sandbox;

// One named dataset of the configuration.
struct DatasetRequest {
  const std::string& name;  // "train"
  const config::DatasetConfig& config;
  std::string_view index_dir = {};  // folder for files that build_metadata() creates
  // For opening: memory for data that is cheaper to keep than to read again. Null: none.
  files::MemoryBudget* maybe_cache_budget = nullptr;
  // For building an index. Null: files are decoded in this process.
  const Sandbox* maybe_sandbox = nullptr;

  // The format-specific part of the configuration; `config` must have this format.
  template <typename Source>
  const Source& as() const {
    return std::get<Source>(config.source);
  }
  // Path of a file derived from this dataset: "<index_dir>/train.labels.decompressed". Other
  // processes of the run that have the index open read it by this name.
  std::string derived_file(std::string_view field, std::string_view what) const {
    return std::string(index_dir) + '/' + name + '.' + std::string(field) + '.' + std::string(what);
  }
  // "data.train.split", as written in the configuration.
  std::string key(std::string_view field) const {
    return "data." + name + '.' + std::string(field);
  }
  // kInvalidArgument: "data.train.split: <what>".
  Status config_error(std::string_view field, const std::string& what) const {
    return Status(StatusCode::kInvalidArgument, key(field) + ": " + what);
  }
  // Of an error in the files; one of config_error() has its own key.
  Status with_path(const Status& error) const {
    return error.message().starts_with(key("")) ? error : error.with_context(key("path"));
  }
};

// sequence.block_size of formats that split a stream into blocks; at least 1, and limited so that
// nothing overflows.
Result<uint64_t> block_size_of(const DatasetRequest& request);
uint64_t token_bytes(config::TokenType type);
Status too_short(const DatasetRequest& request, uint64_t length, std::string_view units);

}  // namespace stoker::data
