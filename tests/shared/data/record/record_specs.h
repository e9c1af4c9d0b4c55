// Settings of records with two inputs, and the SampleSpec of settings.
#pragma once

#include <string>

#include "shared/base/status.h"
#include "shared/data/record/sample_spec.h"
#include "tests/shared/data/config_parts.h"

namespace stoker::data::testing {

inline config::DatasetConfig numbers_config() {
  config::DatasetConfig config{.source = config::TfrecordDataset{}};
  fields_in(config).input = {"a", "b"};
  record_in(config).input_shape = {2, 2};
  fields_in(config).target = {"t"};
  record_in(config).num_targets = 1;
  return config;
}
inline config::DatasetConfig label_config() {
  config::DatasetConfig config = numbers_config();
  fields_in(config).target = {};
  fields_in(config).label = "l";
  return config;
}
inline Result<record::SampleSpec> spec_of(const config::DatasetConfig& config) {
  static const std::string kName = "train";
  return record::SampleSpec::of({.name = kName, .config = config});
}

}  // namespace stoker::data::testing
