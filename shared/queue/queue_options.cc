#include "shared/queue/queue_options.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace stoker::queue {
namespace {

Status validate_components(const QueueOptions& options) {
  if (options.components.empty()) return invalid("it needs a component");
  const auto has_name = [](const Component& c) { return !c.name.empty(); };
  const auto has_shape = [](const Component& c) { return c.shape.has_value(); };
  for (size_t i = 0; i < options.components.size(); ++i) {
    const Component& component = options.components[i];
    const std::string label = "component " + std::to_string(i);
    if (has_name(component) != has_name(options.components[0]))
      return invalid("name all components or none");
    if (has_shape(component) != has_shape(options.components[0]))
      return invalid("declare the shapes of all components or of none");
    for (size_t j = 0; j < i && has_name(component); ++j)
      if (options.components[j].name == component.name)
        return invalid("two components have the name '" + component.name + "'");
    if (!component.shape) {
      if (options.type == QueueType::kPaddingFIFO) return invalid(label + " needs a shape");
      continue;
    }
    if (component.shape->rank() >= kMaxRank)
      return invalid(label + " has " + std::to_string(component.shape->rank()) +
                     " dimensions; at most " + std::to_string(kMaxRank - 1) + " are possible");
    for (const int64_t extent : component.shape->extents())
      if (extent < 0 && (extent != kUnknownExtent || options.type != QueueType::kPaddingFIFO))
        return invalid(label + " has shape " + to_string(*component.shape) +
                       "; only a PaddingFIFOQueue can have unknown extents");
  }
  return {};
}

}  // namespace

std::string_view to_string(QueueType type) {
  switch (type) {
    case QueueType::kFIFO:
      return "FIFOQueue";
    case QueueType::kRandomShuffle:
      return "RandomShuffleQueue";
    case QueueType::kPaddingFIFO:
      return "PaddingFIFOQueue";
    case QueueType::kPriority:
      return "PriorityQueue";
  }
  return "?";
}

Status validate_options(const QueueOptions& options) {
  STOKER_RETURN_IF_ERROR(validate_components(options));
  if (options.capacity == 0) return invalid("capacity 0 holds no element");
  if (options.type != QueueType::kRandomShuffle) {
    if (options.min_after_dequeue != 0 || options.seed)
      return invalid("only a RandomShuffleQueue has min_after_dequeue and seed");
    return {};
  }
  if (options.min_after_dequeue < 0) return invalid("min_after_dequeue is negative");
  if (options.capacity > 0 && options.min_after_dequeue >= options.capacity)
    return invalid("min_after_dequeue (" + std::to_string(options.min_after_dequeue) +
                   ") must be less than capacity (" + std::to_string(options.capacity) + ")");
  return {};
}

std::string label_of(const QueueOptions& options) {
  return std::string(to_string(options.type)) + " '" + options.name + "'";
}

Status invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

}  // namespace stoker::queue
