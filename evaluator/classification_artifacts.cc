#include "evaluator/classification_artifacts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "evaluator/canvas.h"
#include "evaluator/sample_image.h"
#include "shared/base/readable_format.h"

namespace stoker::evaluator {
namespace {

constexpr Color kWhite{255, 255, 255}, kBlack{0, 0, 0}, kGray{128, 128, 128}, kRed{176, 0, 0};
constexpr int kMatrixSide = 512;
constexpr int kNamedClasses = 32;  // names of more classes would be illegible
constexpr size_t kNameLength = 10;
// Small enough that 25 incompressible images stay below metrics::kMaxImageBytes.
constexpr int kCell = 96;
constexpr int kCaption = 2 * Canvas::kGlyphHeight + 2;

// Maps a fraction from 0 (white) to 1 (dark blue).
Color shade(double fraction) {
  const auto interpolate = [&](double to) {
    return static_cast<uint8_t>(std::lround(255 + (to - 255) * std::sqrt(fraction)));
  };
  return {interpolate(8), interpolate(48), interpolate(107)};
}

std::string short_name(const std::string& name) { return name.substr(0, kNameLength); }

}  // namespace

Result<std::string> confusion_matrix_image(
    const eval_metrics::ConfusionMatrix& confusion_matrix,
    const std::vector<eval_metrics::PerClassMetrics>& classes) {
  const int count = static_cast<int>(confusion_matrix.size());
  const int cell = std::clamp(kMatrixSide / std::max(1, count), 2, 32);
  const bool has_names = count <= kNamedClasses;
  const int margin = has_names ? static_cast<int>(kNameLength) * Canvas::kGlyphWidth + 6 : 12;
  Canvas canvas(margin + count * cell + 2, margin + count * cell + 2, kWhite);
  canvas.text(2, 2, "LABEL: ROW", kGray);
  canvas.text(2, 2 + Canvas::kGlyphHeight, "PREDICTED: COLUMN", kGray);
  for (int row = 0; row < count; ++row) {
    const auto& counts = confusion_matrix[static_cast<size_t>(row)];
    const auto total =
        static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{}));
    const int top = margin + row * cell;
    if (has_names) {
      const std::string name = short_name(classes[static_cast<size_t>(row)].name);
      canvas.text(2, top + (cell - Canvas::kGlyphHeight) / 2, name, kBlack);
      for (size_t i = 0;
           i < name.size() && static_cast<int>(i) * Canvas::kGlyphHeight < margin - 16;
           ++i)  // vertical text
        canvas.text(top + (cell - Canvas::kGlyphWidth) / 2,
                    16 + static_cast<int>(i) * Canvas::kGlyphHeight, name.substr(i, 1), kBlack);
    }
    for (int column = 0; column < count; ++column) {
      const auto fraction =
          total == 0 ? 0 : static_cast<double>(counts[static_cast<size_t>(column)]) / total;
      canvas.box(margin + column * cell, top, cell, cell, shade(fraction));
    }
  }
  canvas.box(margin - 1, margin - 1, count * cell + 2, 1, kGray);
  canvas.box(margin - 1, margin - 1, 1, count * cell + 2, kGray);
  return encode_image(canvas);
}

std::string misclassified_table(const std::vector<MisclassifiedExample>& misclassified) {
  std::string table =
      "| sample | label | prediction | confidence | loss | file |\n|---|---|---|---|---|---|\n";
  for (const MisclassifiedExample& example : misclassified)
    table += "| " + std::to_string(example.misclassified_sample.sample) + " | " +
             escape_markdown(example.label) + " | " + escape_markdown(example.prediction) + " | " +
             format_rate(example.misclassified_sample.confidence) + " | " +
             format_value(example.misclassified_sample.loss) + " | " +
             escape_markdown(example.source) + " |\n";
  return table;
}

Result<std::string> misclassified_image(const std::vector<MisclassifiedExample>& misclassified,
                                        int channels, int height, int width) {
  const int count = static_cast<int>(misclassified.size());
  const int columns = std::max(1, static_cast<int>(std::ceil(std::sqrt(count))));
  const int rows = (count + columns - 1) / columns;
  constexpr int kGap = 4;
  Canvas canvas(columns * (kCell + kGap) + kGap, rows * (kCell + kCaption + kGap) + kGap, kWhite);
  constexpr size_t kCaptionLength = kCell / Canvas::kGlyphWidth;
  for (int i = 0; i < count; ++i) {
    const MisclassifiedExample& example = misclassified[static_cast<size_t>(i)];
    const int left = kGap + i % columns * (kCell + kGap);
    const int top = kGap + i / columns * (kCell + kCaption + kGap);
    draw_planes(canvas, left, top, kCell, example.planes, {channels, height, width});
    const std::string label =
        example.label + " #" + std::to_string(example.misclassified_sample.sample);
    const std::string caption =
        format_number(example.misclassified_sample.confidence, 2) + " " + example.prediction;
    canvas.text(left, top + kCell + 2, label.substr(0, kCaptionLength), kBlack);
    canvas.text(left, top + kCell + 2 + Canvas::kGlyphHeight, caption.substr(0, kCaptionLength),
                kRed);
  }
  return encode_image(canvas);
}

// ---- Of a dataset

namespace {

std::string class_name(const std::vector<std::string>& names, int64_t label) {
  const auto at = static_cast<size_t>(label);
  return at < names.size() ? names[at] : std::to_string(label);
}

}  // namespace

void name_classes(const data::Dataset& data, eval_metrics::EvalReport& report) {
  const std::vector<std::string> names = data.class_names();
  std::vector<eval_metrics::PerClassMetrics>& classes = report.classes;
  for (size_t i = 0; i < std::min(names.size(), classes.size()); ++i) classes[i].name = names[i];
  std::map<std::string, const std::string*> by_index;  // few: at most kMaxPrCurves curves
  if (!report.pr_curves.empty())
    for (size_t i = 0; i < names.size(); ++i) by_index.emplace(std::to_string(i), &names[i]);
  for (eval_metrics::PrCurve& curve : report.pr_curves)
    if (const auto name = by_index.find(curve.name); name != by_index.end())
      curve.name = *name->second;
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
