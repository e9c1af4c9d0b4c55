#include "daemon/app/validate_batch.h"

#include <string>
#include <utility>

#include "shared/data/record/label_range_check.h"

namespace stoker::app {

std::function<Status(const feed::ReceivedBatch&)> validate_batch(const config::Config& config,
                                                                 const data::DatasetInfo& data) {
  auto limits = data::record::LabelRangeCheck::of(config, data.spec, data.classes);
  if (!limits.any()) return {};
  const bool is_internal = config.feed.producers == config::ProducerMode::kInternal;
  return [limits = std::move(limits), is_internal](const feed::ReceivedBatch& batch) -> Status {
    const auto error = limits.check_rows(batch.tensors, batch.layout.batch());
    if (error.status.ok()) return {};
    const std::string ticket = "ticket " + std::to_string(batch.ticket);
    const std::string row = "row " + std::to_string(error.row);
    if (!is_internal)
      return error.status.with_context("an external producer published " + ticket +
                                       " with invalid " + row);
    return Status(StatusCode::kCorrupt, ticket + ", " + row + ": " + error.status.message() +
                                            "; the workers check this, so a worker process "
                                            "overwrote the ring");
  };
}

}  // namespace stoker::app
