#include "daemon/daemon_app/batch_check.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shared/dataset/value_limits.h"

namespace stoker::daemon_app {

std::function<Status(const ring::ReadyBatch&)> batch_check(const config::Config& config,
                                                           const dataset::Dataset& data,
                                                           const ring::ShmRing& ring) {
  if (config.feed.producers == config::ProducerMode::kInternal) return {};
  auto limits = dataset::ValueLimits::of(config, data.spec(), data.classes());
  if (!limits.any()) return {};
  return [limits = std::move(limits), &ring](const ring::ReadyBatch& batch) -> Status {
    const ring::BatchLayout& layout = ring.layout();
    std::vector<std::span<const std::byte>> tensors;
    for (size_t i = 0; i < layout.sample().size(); ++i)
      tensors.push_back(layout.whole(batch.slot, i));
    const auto verdict = limits.check_rows(tensors, layout.batch());
    return verdict.status.with_context("an outside producer filled ticket " +
                                       std::to_string(batch.ticket) + " with a bad row " +
                                       std::to_string(verdict.row));
  };
}

}  // namespace stoker::daemon_app
