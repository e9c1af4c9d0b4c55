// config_parts: mutable access to the members of a DatasetConfig that several formats have. The
// format must have the member.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "shared/config/dataset_config.h"

namespace stoker::data {

// The const_cast is valid, because the configuration is not const.
inline std::string& path_in(config::DatasetConfig& config) {
  return const_cast<std::string&>(config.path());
}
inline std::string& glob_in(config::DatasetConfig& config) {
  return const_cast<std::string&>(config.glob());
}
inline config::Transforms& transforms_in(config::DatasetConfig& config) {
  return const_cast<config::Transforms&>(*config.transforms());
}
inline config::FieldNames& fields_in(config::DatasetConfig& config) {
  return const_cast<config::FieldNames&>(*config.fields());
}
inline config::RecordConfig& record_in(config::DatasetConfig& config) {
  return const_cast<config::RecordConfig&>(*config.record());
}
inline config::SequenceConfig& sequence_in(config::DatasetConfig& config) {
  return *config.sequence();
}
inline std::optional<config::CacheConfig>& cache_in(config::DatasetConfig& config) {
  return const_cast<std::optional<config::CacheConfig>&>(config.cache());
}

template <typename Source>
Source& source_in(config::DatasetConfig& config) {
  return std::get<Source>(config.source);
}

inline void set_refresh(config::DatasetConfig& config, config::Refresh refresh) {
  std::visit(
      [refresh](auto& source) {
        if constexpr (requires { source.refresh; }) source.refresh = refresh;
      },
      config.source);
}
inline void set_image_mode(config::DatasetConfig& config, config::ImageMode mode) {
  std::visit(
      [mode](auto& source) {
        if constexpr (requires { source.image_mode; }) source.image_mode = mode;
      },
      config.source);
}

// Replaces the transform of the same type, or appends the transform.
template <typename T>
void set_transform(config::DatasetConfig& config, T transform) {
  for (config::Transform& each : transforms_in(config)) {
    if (!std::holds_alternative<T>(each)) continue;
    each = std::move(transform);
    return;
  }
  transforms_in(config).push_back(std::move(transform));
}

}  // namespace stoker::data
