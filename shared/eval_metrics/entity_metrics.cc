#include "shared/eval_metrics/entity_metrics.h"

#include <algorithm>
#include <map>

namespace stoker::eval_metrics {
namespace {

constexpr std::string_view kKinds = "BIES";

bool is_one_of(char kind, std::string_view kinds) { return kinds.find(kind) != kinds.npos; }

}  // namespace

bool is_entity_tag(std::string_view name) {
  return name == "O" || (name.size() > 2 && is_one_of(name[0], kKinds) && name[1] == '-');
}

EntityMetrics::EntityMetrics(const std::vector<std::string>& tags) {
  std::map<std::string, size_t> types;  // from 1; O has none
  for (const std::string& tag : tags) {
    if (tag == "O")
      tags_.emplace_back();
    else
      tags_.push_back({tag[0], types.try_emplace(tag.substr(2), types.size() + 1).first->second});
  }
}

EntityMetrics::Tag EntityMetrics::tag_of(int64_t label) const {
  const auto index = static_cast<size_t>(label);
  return index < tags_.size() ? tags_[index] : Tag{};
}

std::set<EntityMetrics::Entity> EntityMetrics::entities(std::span<const int64_t> sequence) const {
  std::set<Entity> found;
  Tag before;
  size_t begin = 0;
  for (size_t step = 0; step <= sequence.size(); ++step) {
    const Tag tag = step < sequence.size() ? tag_of(sequence[step]) : Tag{};
    const bool is_other = before.type != tag.type;
    const bool is_closed = is_one_of(before.kind, "ES");
    if (before.kind != 'O' && (is_closed || is_other || is_one_of(tag.kind, "BS")))
      found.emplace(before.type, begin, step);
    const bool is_open = before.kind != 'O' && !is_closed;
    if (tag.kind != 'O' && (is_one_of(tag.kind, "BS") || is_other || !is_open)) begin = step;
    before = tag;
  }
  return found;
}

void EntityMetrics::add(std::span<const int64_t> labels, std::span<const int64_t> predictions) {
  const std::set<Entity> labeled = entities(labels), predicted = entities(predictions);
  labeled_ += labeled.size();
  predicted_ += predicted.size();
  correct_ += static_cast<uint64_t>(std::ranges::count_if(
      predicted, [&labeled](const Entity& entity) { return labeled.contains(entity); }));
}

MetricValues EntityMetrics::metrics() const {
  const auto labeled = static_cast<double>(labeled_), predicted = static_cast<double>(predicted_);
  const auto correct = static_cast<double>(correct_);
  return {{"entity_precision", ratio(correct, predicted)},
          {"entity_recall", ratio(correct, labeled)},
          {"entity_f1", ratio(2 * correct, labeled + predicted)}};
}

}  // namespace stoker::eval_metrics
