#include "evaluator/load_class_mapping.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "shared/base/dataset_schema.h"
#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/status.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {
namespace {

using data::record::ClassMapping;

constexpr size_t kMaxSchemaBytes = size_t{2} << 30;

void log_unknown(const Status& reason) {
  if (reason.code() != StatusCode::kNotFound)
    log_warn("training classes unknown",
             {{"reason", reason.message()},
              {"action", "each evaluated dataset uses its own class indices"}});
}

// A stream itself is not opened: its source can be gone.
ClassMapping classes_with_stream(const config::Config& config, const std::string& index_dir,
                                 uint64_t outputs) {
  const config::DatasetConfig& stream = config::streamed_dataset(config)->second;
  const std::vector<std::string> names = stream.class_names();
  int64_t count = std::max(stream.num_classes().value_or(0), std::ssize(names));
  for (const std::string& name : config::sampled_datasets(config)) {
    const config::DatasetConfig& part = config.data.at(name);
    if (part.stream) continue;
    const auto data = data::pipeline::open_indexed(name, part, index_dir, "");
    if (!data.ok()) {
      log_unknown(data.status());
      return {};
    }
    count = std::max(count, static_cast<int64_t>((*data)->classes()));
  }
  return {.count = static_cast<uint64_t>(count), .names = names, .outputs = outputs};
}

}  // namespace

ClassMapping load_class_mapping(const config::Config& config, const std::string& index_dir) {
  const auto outputs = static_cast<uint64_t>(config.model.num_classes.value_or(0));
  const std::string run_dir = std::filesystem::path(index_dir).parent_path().string();
  const std::string path = run::RunLayout(run_dir).data_schema_file();
  if (const auto text = read_file(path, kMaxSchemaBytes); text.ok()) {
    auto schema = parse_dataset_schema(*text, path);
    if (schema.ok()) return data::record::mapping_to(*std::move(schema), config);
    log_unknown(schema.status());
  }
  if (!config.task.has_classes()) return {};  // avoid opening a large index
  if (config::training_stream(config)) return classes_with_stream(config, index_dir, outputs);
  const auto train = data::pipeline::open_indexed("train", config.data, index_dir, "");
  if (train.ok())
    return {.count = (*train)->classes(),
            .names = (*train)->class_names(),
            .outputs = outputs,
            .input_columns = (*train)->info().input_columns,
            .target_columns = (*train)->info().target_columns};
  log_unknown(train.status());
  return {};
}

}  // namespace stoker::evaluator
