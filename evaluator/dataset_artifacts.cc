#include "evaluator/dataset_artifacts.h"

#include <algorithm>
#include <span>

#include "evaluator/classification_artifacts.h"
#include "shared/data/transform/random_transforms.h"

namespace stoker::evaluator {
namespace {

std::string class_name(const std::vector<std::string>& names, int64_t label) {
  const auto at = static_cast<size_t>(label);
  return at < names.size() ? names[at] : std::to_string(label);
}

const TensorSpec* find_image(const data::Dataset& data) {
  for (const TensorSpec& spec : data.spec())
    if (spec.name == "input" && data::transform::is_image(spec)) return &spec;
  return nullptr;
}

// Reads the sample again and returns its "input" tensor.
Result<std::vector<uint8_t>> read_planes(const data::Dataset& data, uint64_t sample,
                                         const TensorSpec& image) {
  std::vector<std::vector<std::byte>> memory;
  for (const TensorSpec& spec : data.spec()) memory.emplace_back(spec.bytes());
  std::vector<std::span<std::byte>> spans(memory.begin(), memory.end());
  STOKER_RETURN_IF_ERROR(data.read(sample, data::RandomKey{.sample = sample}, spans));
  const auto at = static_cast<size_t>(&image - data.spec().data());
  std::vector<uint8_t> planes(memory[at].size());
  std::ranges::transform(memory[at], planes.begin(),
                         [](std::byte byte) { return static_cast<uint8_t>(byte); });
  return planes;
}

}  // namespace

void name_classes(const data::Dataset& data, std::vector<eval_metrics::PerClassMetrics>& classes) {
  const std::vector<std::string> names = data.class_names();
  for (size_t i = 0; i < std::min(names.size(), classes.size()); ++i) classes[i].name = names[i];
}

Result<std::vector<Artifact>> dataset_artifacts(
    const data::Dataset& data, const run::DatasetResult& result,
    const std::vector<eval_metrics::MisclassifiedSample>& misclassified) {
  std::vector<Artifact> artifacts;
  if (!result.confusion_matrix.empty()) {
    STOKER_ASSIGN_OR_RETURN(std::string png,
                            confusion_matrix_image(result.confusion_matrix, result.classes));
    artifacts.push_back({result.dataset, ArtifactKind::kConfusionMatrixImage, std::move(png)});
  }
  if (misclassified.empty()) return artifacts;
  const TensorSpec* const image = find_image(data);
  const std::vector<std::string> names = data.class_names();
  std::vector<MisclassifiedExample> examples;
  for (const eval_metrics::MisclassifiedSample& misclassified_sample : misclassified) {
    MisclassifiedExample example{.misclassified_sample = misclassified_sample,
                                 .label = class_name(names, misclassified_sample.label),
                                 .prediction = class_name(names, misclassified_sample.prediction),
                                 .source = data.source(misclassified_sample.sample).file,
                                 .planes = {}};
    if (image != nullptr) {
      STOKER_ASSIGN_OR_RETURN(example.planes,
                              read_planes(data, misclassified_sample.sample, *image));
    }
    examples.push_back(std::move(example));
  }
  artifacts.push_back(
      {result.dataset, ArtifactKind::kMisclassifiedTable, misclassified_table(examples)});
  if (image != nullptr) {
    STOKER_ASSIGN_OR_RETURN(
        std::string png,
        misclassified_image(examples, static_cast<int>(image->shape[0]),
                            static_cast<int>(image->shape[1]), static_cast<int>(image->shape[2])));
    artifacts.push_back({result.dataset, ArtifactKind::kMisclassifiedImage, std::move(png)});
  }
  return artifacts;
}

}  // namespace stoker::evaluator
