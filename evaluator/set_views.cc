#include "evaluator/set_views.h"

#include <algorithm>
#include <span>

#include "evaluator/class_views.h"
#include "shared/dataset/picture_spec.h"

namespace stoker::evaluator {
namespace {

std::string name_of(const std::vector<std::string>& names, int64_t label) {
  const auto at = static_cast<size_t>(label);
  return at < names.size() ? names[at] : std::to_string(label);
}

const TensorSpec* maybe_picture(const dataset::Dataset& data) {
  for (const TensorSpec& spec : data.spec())
    if (spec.name == "input" && dataset::is_picture(spec)) return &spec;
  return nullptr;
}

// The sample's "input" once more.
Result<std::vector<uint8_t>> read_planes(const dataset::Dataset& data, uint64_t sample,
                                         const TensorSpec& picture) {
  std::vector<std::vector<std::byte>> memory;
  for (const TensorSpec& spec : data.spec()) memory.emplace_back(spec.bytes());
  std::vector<std::span<std::byte>> spans(memory.begin(), memory.end());
  STOKER_RETURN_IF_ERROR(data.read(sample, dataset::DrawKey{.sample = sample}, spans));
  const auto at = static_cast<size_t>(&picture - data.spec().data());
  std::vector<uint8_t> planes(memory[at].size());
  std::ranges::transform(memory[at], planes.begin(),
                         [](std::byte byte) { return static_cast<uint8_t>(byte); });
  return planes;
}

}  // namespace

void name_classes(const dataset::Dataset& data, std::vector<score::ClassFigures>& classes) {
  const std::vector<std::string> names = data.class_names();
  for (size_t i = 0; i < std::min(names.size(), classes.size()); ++i) classes[i].name = names[i];
}

Result<std::vector<View>> views_of_set(const dataset::Dataset& data, const run::SetResult& result,
                                       const std::vector<score::Mistake>& mistakes) {
  std::vector<View> views;
  if (!result.confusion.empty()) {
    STOKER_ASSIGN_OR_RETURN(std::string png, confusion_picture(result.confusion, result.classes));
    views.push_back({result.set, ViewKind::kConfusionPicture, std::move(png)});
  }
  if (mistakes.empty()) return views;
  const TensorSpec* const picture = maybe_picture(data);
  const std::vector<std::string> names = data.class_names();
  std::vector<ShownMistake> shown;
  for (const score::Mistake& mistake : mistakes) {
    ShownMistake one{.mistake = mistake,
                     .label = name_of(names, mistake.label),
                     .prediction = name_of(names, mistake.prediction),
                     .origin = data.origin(mistake.sample).file,
                     .planes = {}};
    if (picture != nullptr) {
      STOKER_ASSIGN_OR_RETURN(one.planes, read_planes(data, mistake.sample, *picture));
    }
    shown.push_back(std::move(one));
  }
  views.push_back({result.set, ViewKind::kMistakeTable, mistake_table(shown)});
  if (picture != nullptr) {
    STOKER_ASSIGN_OR_RETURN(
        std::string png,
        mistake_picture(shown, static_cast<int>(picture->shape[0]),
                        static_cast<int>(picture->shape[1]), static_cast<int>(picture->shape[2])));
    views.push_back({result.set, ViewKind::kMistakePicture, std::move(png)});
  }
  return views;
}

}  // namespace stoker::evaluator
