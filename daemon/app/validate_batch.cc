#include "daemon/app/validate_batch.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shared/data/record/label_range_check.h"

namespace stoker::app {

std::function<Status(const ring::ReadyBatch&)> validate_batch(const config::Config& config,
                                                              const data::Dataset& data,
                                                              const ring::ShmRing& ring) {
  if (config.feed.producers == config::ProducerMode::kInternal) return {};
  auto limits = data::record::LabelRangeCheck::of(config, data.spec(), data.classes());
  if (!limits.any()) return {};
  return [limits = std::move(limits), &ring](const ring::ReadyBatch& batch) -> Status {
    const ring::BatchLayout& layout = ring.layout();
    std::vector<std::span<const std::byte>> tensors;
    for (size_t i = 0; i < layout.sample().size(); ++i)
      tensors.push_back(layout.tensor_bytes(batch.slot, i));
    const auto action = limits.check_rows(tensors, layout.batch());
    return action.status.with_context("an external producer published ticket " +
                                      std::to_string(batch.ticket) + " with invalid row " +
                                      std::to_string(action.row));
  };
}

}  // namespace stoker::app
