// DatasetRequest: one named data set of the configuration, and how messages name its settings.
//
// Threads: a value.
// Owner:   name and config must outlive this object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"

namespace stoker::data {

// One named set of the configuration.
struct DatasetRequest {
  const std::string& name;  // "train"
  const config::DatasetConfig& config;
  std::string_view index_dir = {};  // where inspect() may leave files that it makes

  // The part of the configuration that only this format has; `config` is of that format.
  template <typename Source>
  const Source& as() const {
    return std::get<Source>(config.source);
  }
  // Where a file of this set is made: "<index_dir>/train.labels.decompressed". Others of the run that
  // have the index open read it under this name.
  std::string derived_file(std::string_view field, std::string_view what) const {
    return std::string(index_dir) + '/' + name + '.' + std::string(field) + '.' + std::string(what);
  }
  // "data.train.split", as the user would write it.
  std::string key(std::string_view field) const {
    return "data." + name + '.' + std::string(field);
  }
  // kInvalidArgument: "data.train.split: <what>".
  Status config_error(std::string_view field, const std::string& what) const {
    return Status(StatusCode::kInvalidArgument, key(field) + ": " + what);
  }
};

// sequence.block_size of the formats that cut a stream: at least 1, and small enough that nothing
// overflows.
Result<uint64_t> context_of(const DatasetRequest& request);
Status too_short(const DatasetRequest& request, uint64_t length, std::string_view units);

}  // namespace stoker::data
