#include "evaluator/batched_dataset.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "evaluator/subset.h"
#include "shared/data/files/scan.h"

namespace stoker::evaluator {

Result<std::vector<BatchedDataset>> open_batched_datasets(const config::Config& config,
                                                          const std::string& index_dir,
                                                          const data::record::ClassMapping& train,
                                                          const std::string& feed_program,
                                                          const std::stop_token& stop) {
  const auto progress = [&stop](uint64_t, std::string_view) {
    if (stop.stop_requested()) throw data::files::ScanStopped();
  };
  std::vector<BatchedDataset> datasets;
  for (const std::string& name : config.eval.datasets) {
    STOKER_ASSIGN_OR_RETURN(
        evaluated_data::EvaluatedDataset opened,
        evaluated_data::open_evaluated_dataset(
            config, name, train,
            {.index_dir = index_dir, .feed_program = feed_program, .progress = progress}));
    SampleBatches batches(*opened.data, make_subset(config.eval, opened.data->size()),
                          static_cast<uint64_t>(config.eval.batch_size),
                          config.feed.bucket_boundaries, opened.is_quarantined);
    datasets.push_back({std::move(opened), std::move(batches)});
    STOKER_RETURN_IF_ERROR(evaluated_data::check_same_inputs(datasets.back(), datasets.front()));
  }
  return datasets;
}

}  // namespace stoker::evaluator
