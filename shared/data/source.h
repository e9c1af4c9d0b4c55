// Source: what data.train is read from: a dataset with an index, or a stream.
//
// The records of a stream have no numbers before they are read: a StreamFeed reads them. In a mixture,
// the samples of the other datasets come first, and its records are numbered behind them.
//
// Threads: as Dataset.
#pragma once

#include <memory>
#include <variant>

#include "shared/data/dataset.h"

namespace stoker::data {

struct Stream {
  // What its records become. Size, shards and component_sizes are those of `maybe_indexed`.
  DatasetInfo info;
  std::unique_ptr<Dataset> maybe_indexed = nullptr;  // the other datasets of a mixture
};

using Source = std::variant<std::unique_ptr<Dataset>, Stream>;

// Null: there are no samples with an index.
inline const Dataset* indexed_part(const Source& source) {
  const auto* const stream = std::get_if<Stream>(&source);
  return stream ? stream->maybe_indexed.get() : std::get<0>(source).get();
}

inline const DatasetInfo& info_of(const Source& source) {
  const auto* const stream = std::get_if<Stream>(&source);
  return stream ? stream->info : std::get<0>(source)->info();
}

}  // namespace stoker::data
