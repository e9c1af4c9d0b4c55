#include "shared/feed/plan_settings.h"

namespace stoker::feed {

dataset::PlanSettings plan_settings(const config::Config& config, uint64_t dataset_size) {
  return {.size = dataset_size,
          .batch = static_cast<uint64_t>(config.train.batch),
          .seed = config.run.seed,
          .shuffle = config.feed.shuffle};
}

}  // namespace stoker::feed
