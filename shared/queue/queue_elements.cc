// The parts of Queue that know what an element is: whether tuples match its components, and batches of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/queue/queue.h"
#include "shared/queue/queue_options.h"

namespace stoker::queue {

Status Queue::validate(const Tuple& tuple, bool is_batch) const {
  const auto& components = options_.components;
  if (tuple.size() != components.size())
    return invalid(label_of(options_) + " has " + std::to_string(components.size()) +
                   " components; the tuple has " + std::to_string(tuple.size()));
  for (size_t i = 0; i < tuple.size(); ++i) {
    const Tensor& tensor = tuple[i];
    const auto mismatch = [&](std::string_view got, std::string_view expected) {
      return invalid(label_of(options_) + ": component " + std::to_string(i) + " of the tuple is " +
                     std::string(got) + ", expected " + std::string(expected));
    };
    if (tensor.dtype() != components[i].dtype)
      return mismatch(to_string(tensor.dtype()), to_string(components[i].dtype));
    if (is_batch) {
      if (tensor.rank() == 0) return mismatch("a scalar", "a batch of elements");
      if (tensor.shape()[0] != tuple[0].shape()[0])
        return mismatch("a batch of " + std::to_string(tensor.shape()[0]),
                        std::to_string(tuple[0].shape()[0]) + " as component 0");
    }
    if (!specified_shapes_) continue;
    const Shape& declared = *components[i].shape;
    if (is_batch) {
      const Shape element = tensor.shape().without_first();
      if (!declared.compatible_with(element))
        return mismatch("a batch of shape " + to_string(element), to_string(declared));
    } else if (!declared.compatible_with(tensor.shape())) {
      return mismatch("of shape " + to_string(tensor.shape()), to_string(declared));
    }
  }
  return {};
}

bool Queue::is_priority_valid(const Tuple& tuple, size_t rank) const {
  return options_.type != QueueType::kPriority || tuple[0].rank() == rank;
}

Status Queue::invalid_priority() const {
  return invalid(label_of(options_) + ": the priority of an element must be a scalar");
}

Status Queue::validate_batch_size(int64_t n) const {
  if (n < 0)
    return invalid(label_of(options_) + ": cannot dequeue " + std::to_string(n) + " elements");
  if (!specified_shapes_)
    return invalid(label_of(options_) +
                   ": dequeue_many and dequeue_up_to need components with declared shapes");
  for (const Component& component : options_.components)
    if (component.shape->fully_defined())
      STOKER_RETURN_IF_ERROR(tensor_bytes(component.dtype, component.shape->prepended(n)).status());
  return {};
}

Result<Tuple> Queue::arrange(std::vector<std::pair<std::string, Tensor>> named) const {
  Tuple tuple;
  for (const Component& component : options_.components) {
    const auto found =
        std::ranges::find(named, component.name, &std::pair<std::string, Tensor>::first);
    if (component.name.empty() || found == named.end()) break;
    tuple.push_back(std::move(found->second));
  }
  if (tuple.size() != options_.components.size() || named.size() != tuple.size()) {
    std::string names;
    for (const Component& component : options_.components)
      names += (names.empty() ? "" : ", ") + component.name;
    return invalid(label_of(options_) + ": the names of the tensors differ from those of the " +
                   "components: " + names);
  }
  return tuple;
}

Status Queue::make_batch(const std::vector<Tuple>& elements, Tuple& batch) const {
  const auto n = static_cast<int64_t>(elements.size());
  for (size_t i = 0; i < options_.components.size(); ++i) {
    const Component& component = options_.components[i];
    Shape shape = *component.shape;
    const bool padded = !shape.fully_defined();
    for (size_t d = 0; d < shape.rank(); ++d) {
      if (shape[d] != kUnknownExtent) continue;
      shape[d] = 0;
      for (const Tuple& element : elements) shape[d] = std::max(shape[d], element[i].shape()[d]);
    }
    if (padded) STOKER_RETURN_IF_ERROR(validate_padding(i, shape, n));
    STOKER_ASSIGN_OR_RETURN(Tensor tensor, Tensor::allocate(component.dtype, shape.prepended(n)));
    std::byte* destination = tensor.mutable_data();
    if (padded) std::memset(destination, 0, tensor.bytes());
    for (const Tuple& element : elements) {
      copy_padded(element[i], destination, shape);
      destination += tensor.bytes() / elements.size();
    }
    batch.push_back(std::move(tensor));
  }
  return {};
}

Status Queue::validate_padding(size_t component, const Shape& padded, int64_t n) const {
  const auto bytes = tensor_bytes(options_.components[component].dtype, padded.prepended(n));
  if (bytes.ok() && *bytes <= options_.max_batch_bytes) return {};
  return invalid("component " + std::to_string(component) + " of " + std::to_string(n) +
                 " elements, padded to the largest extents " + to_string(padded) +
                 ", exceeds the limit of " + std::to_string(options_.max_batch_bytes) +
                 " bytes (max_batch_bytes)");
}

}  // namespace stoker::queue
