#include "daemon/app/check_evaluated_data.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "shared/data/pipeline/dataset_overlap.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/model.h"
#include "shared/task/task.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::app {
namespace {

std::string to_string(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return '[' + text + ']';
}

// "0.weight is [32, 8] instead of [32, 4]"; empty: there is none.
std::string first_difference(const TensorShapes& evaluated, const TensorShapes& trained) {
  for (const auto& [name, shape] : trained) {
    const auto found = evaluated.find(name);
    if (found == evaluated.end()) return name + " does not exist";
    if (found->second != shape)
      return name + " is " + to_string(found->second) + " instead of " + to_string(shape);
  }
  for (const auto& [name, shape] : evaluated)
    if (!trained.contains(name)) return name + " is additional";
  return {};
}

}  // namespace

Status with_dataset(const Status& error, const std::string& name) {
  const std::string key = "data." + name;
  return error.ok() || error.message().find(key) != std::string::npos ? error
                                                                      : error.with_context(key);
}

std::vector<std::string> evaluated_datasets(const config::Config& config) {
  std::vector<std::string> names = config.eval.datasets;
  std::erase(names, "train");
  return names;
}

Result<evaluated_data::EvaluatedDataset> open_for_check(const config::Config& config,
                                                        const std::string& name,
                                                        const data::record::ClassMapping& train,
                                                        const std::string& index_dir,
                                                        const OnIndexing& on_indexing) {
  const auto progress = [&](uint64_t count, std::string_view what, double fraction) {
    on_indexing(name, count, what, fraction);
  };
  auto opened = evaluated_data::open_evaluated_dataset(config, name, train,
                                                       {.index_dir = index_dir,
                                                        .feed_program = {},
                                                        .progress = progress,
                                                        .reads = evaluated_data::Reads::kNothing});
  if (!opened.ok()) return with_dataset(opened.status(), name);
  return opened;
}

Result<TensorShapes> model_shapes(const config::Config& config,
                                  const std::vector<TensorSpec>& sample, uint64_t classes) {
  config::ModelConfig model = config.model;
  model.init.clear();
  const config::TokenizerConfig* const tokenizer = config::training_tokenizer(config);
  std::optional<int64_t>* const vocabulary = model.output_vocabulary();
  if (tokenizer != nullptr && vocabulary != nullptr && !*vocabulary) {
    STOKER_ASSIGN_OR_RETURN(const auto read, tokenizer::Tokenizer::read(tokenizer->path));
    *vocabulary = static_cast<int64_t>(read->size());
  }
  STOKER_ASSIGN_OR_RETURN(const model::ModelPtr made, model::make_model(model, sample, classes));
  TensorShapes shapes;
  for (const auto& [name, tensor] : model::named_tensors(*made))
    shapes.emplace(name, tensor.sizes().vec());
  return shapes;
}

Status check_same_model(const config::Config& config, const data::DatasetInfo& train,
                        const evaluated_data::EvaluatedDataset& evaluated) {
  const data::Dataset& data = *evaluated.data;
  if (data.spec() == train.spec && data.classes() == train.classes) return {};
  STOKER_ASSIGN_OR_RETURN(const TensorShapes trained,
                          model_shapes(config, train.spec, train.classes));
  const auto shapes = model_shapes(config, data.spec(), data.classes());
  if (!shapes.ok()) return with_dataset(shapes.status(), evaluated.name);
  const std::string difference = first_difference(*shapes, trained);
  if (difference.empty()) return {};
  return Status(StatusCode::kMismatch,
                "data." + evaluated.name + " has " + model::describe(data.spec()) + " of " +
                    std::to_string(data.classes()) + " classes, and data.train has " +
                    model::describe(train.spec) + " of " + std::to_string(train.classes) +
                    ": one model cannot have both, because its " + difference +
                    "; give both the same fields and transforms");
}

namespace {

Status check_each(const config::Config& config, const data::Source& train,
                  const std::string& index_dir, const OnIndexing& on_indexing) {
  const data::DatasetInfo& info = data::info_of(train);
  const auto mapping = data::record::mapping_to(data::schema_of(info), config);
  std::optional<evaluated_data::EvaluatedDataset> first;
  for (const std::string& name : evaluated_datasets(config)) {
    STOKER_ASSIGN_OR_RETURN(auto opened,
                            open_for_check(config, name, mapping, index_dir, on_indexing));
    STOKER_RETURN_IF_ERROR(check_same_model(config, info, opened));
    data::pipeline::warn_about_overlap(config.data, name, *opened.data, train);
    if (first) {
      STOKER_RETURN_IF_ERROR(evaluated_data::check_same_inputs(opened, *first));
    } else {
      first = std::move(opened);
    }
  }
  return {};
}

}  // namespace

Status check_training_data(const config::Config& config, const data::DatasetInfo& train) {
  STOKER_RETURN_IF_ERROR(model_shapes(config, train.spec, train.classes).status());
  return task::make_task(config.task, config::training_normalization(config), train.spec,
                         train.classes, config.data.at("train").batch_transforms,
                         config.model.has_loss())
      .status();
}

Status check_evaluated_data(const config::Config& config, const data::Source& train,
                            const std::string& index_dir, const OnIndexing& on_indexing) {
  const Status checked = check_each(config, train, index_dir, on_indexing);
  if (checked.code() != StatusCode::kMismatch) return checked;
  // What does not fit data.train either is no error of the other datasets.
  STOKER_RETURN_IF_ERROR(check_training_data(config, data::info_of(train)));
  return checked;
}

}  // namespace stoker::app
