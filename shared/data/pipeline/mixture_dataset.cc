#include "shared/data/pipeline/mixture_dataset.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "shared/base/hash.h"

namespace stoker::data::pipeline {
namespace {

// Of all, with the numbers of samples of those with an index.
DatasetInfo combine(const std::vector<NamedSource>& components) {
  DatasetInfo all = info_of(components.front().source);
  all.size = 0;
  all.classes = 0;
  all.shard_ends = all.component_sizes = {};
  all.writable_fds = {};
  all.maybe_files = nullptr;
  Sha256 hash;
  hash.update("mixture\n");
  for (const NamedSource& component : components) {
    const DatasetInfo& info = info_of(component.source);
    all.classes = std::max(all.classes, info.classes);
    hash.update(info.fingerprint + '\n');
    const Dataset* const indexed = indexed_part(component.source);
    if (indexed == nullptr) continue;
    for (const uint64_t end : indexed->shard_ends()) all.shard_ends.push_back(all.size + end);
    all.component_sizes.push_back(info.size);
    all.writable_fds.insert(all.writable_fds.end(), info.writable_fds.begin(),
                            info.writable_fds.end());
    all.size += info.size;
  }
  all.fingerprint = hash.finish_hex();
  return all;
}

class MixtureDataset final : public Dataset, public SampleFiles {
 public:
  // `info`: that of combine().
  MixtureDataset(std::vector<NamedSource> components, DatasetInfo info) : info_(std::move(info)) {
    info_.maybe_files = this;
    uint64_t end = 0;
    for (NamedSource& component : components) {
      auto& data = std::get<std::unique_ptr<Dataset>>(component.source);
      ends_.push_back(end += data->size());
      components_.push_back({.name = std::move(component.name), .data = std::move(data)});
    }
  }

  const DatasetInfo& info() const override { return info_; }

  SampleSource source(uint64_t sample) const override {
    const Location location = locate(sample);
    SampleSource source = location.component.data->source(location.sample);
    source.dataset = location.component.name;
    return source;
  }
  uint64_t length(uint64_t sample) const override {
    const Location location = locate(sample);
    return location.component.data->length(location.sample);
  }
  std::string describe_transforms(uint64_t sample, const RandomKey& random_key) const override {
    const Location location = locate(sample);
    const SampleFiles* const maybe_files = location.component.data->info().maybe_files;
    return maybe_files == nullptr ? std::string()
                                  : maybe_files->describe_transforms(
                                        location.sample, in_component(random_key, location));
  }
  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    const Location location = locate(sample);
    return location.component.data->read(location.sample, in_component(random_key, location),
                                         outputs);
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    while (!labels.empty()) {
      const Location location = locate(first);
      const uint64_t left = location.component.data->size() - location.sample;
      const auto part = labels.first(std::min<uint64_t>(left, labels.size()));
      STOKER_RETURN_IF_ERROR(location.component.data->read_labels(location.sample, part));
      labels = labels.subspan(part.size());
      first += part.size();
    }
    return {};
  }
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    const Location location = locate(sample);
    const SampleFiles* const maybe_files = location.component.data->info().maybe_files;
    if (maybe_files != nullptr) maybe_files->prefetch(location.sample, bytes);
  }

 private:
  struct Component {
    std::string name;
    std::unique_ptr<Dataset> data;
  };
  struct Location {
    const Component& component;
    uint64_t sample;  // within the component
  };

  uint64_t first_of(size_t component) const { return component == 0 ? 0 : ends_[component - 1]; }
  Location locate(uint64_t sample) const {
    assert(sample < size());
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), sample);
    const auto component = static_cast<size_t>(end - ends_.begin());
    return {.component = components_[component], .sample = sample - first_of(component)};
  }
  // The sample plan already counts epochs per component.
  static RandomKey in_component(const RandomKey& random_key, const Location& location) {
    return {.seed = random_key.seed, .epoch = random_key.epoch, .sample = location.sample};
  }

  // Constant after construction.
  std::vector<Component> components_;
  std::vector<uint64_t> ends_;
  DatasetInfo info_;
};

std::string format_spec(const std::vector<TensorSpec>& spec) {
  std::string words;
  for (const TensorSpec& tensor : spec) words += (words.empty() ? "" : ", ") + to_string(tensor);
  return words;
}

std::string summarize_classes(const DatasetInfo& data) {
  return data.class_names.empty() ? std::to_string(data.classes) + " class indices"
                                  : summarize_names(data.class_names);
}

// Tensors, their padding and class names must be equal, because the trainer does not know which
// component a sample is from.
Status validate_same_schema(const std::string& name, const NamedSource& first,
                            const NamedSource& other) {
  const std::string pair = "data." + name + ": data." + first.name + " and data." + other.name;
  const DatasetInfo &info = info_of(first.source), &other_info = info_of(other.source);
  if (info.spec != other_info.spec)
    return Status(StatusCode::kInvalidArgument, pair + " have different tensors (" +
                                                    format_spec(info.spec) + "; " +
                                                    format_spec(other_info.spec) + ")");
  if (info.max_length != other_info.max_length ||
      info.length_tensors != other_info.length_tensors) {
    return Status(StatusCode::kInvalidArgument,
                  pair +
                      " pad different tensors to the length of a batch; set "
                      "sequence.max_label_length in both or in neither");
  }
  if (info.class_names != other_info.class_names) {
    return Status(StatusCode::kInvalidArgument,
                  pair +
                      " have different classes: a label would mean one thing in the one and "
                      "another in the other; set the same class_names in both (" +
                      summarize_classes(info) + "; " + summarize_classes(other_info) + ")");
  }
  return {};
}

}  // namespace

Result<Source> make_mixture(const std::string& name, std::vector<NamedSource> components) {
  assert(!components.empty());
  for (const NamedSource& component : components)
    STOKER_RETURN_IF_ERROR(validate_same_schema(name, components.front(), component));
  DatasetInfo info = combine(components);
  const bool has_stream = std::holds_alternative<Stream>(components.back().source);
  if (has_stream) components.pop_back();
  std::unique_ptr<Dataset> indexed;
  if (!components.empty()) indexed = std::make_unique<MixtureDataset>(std::move(components), info);
  return has_stream ? Source(Stream{std::move(info), std::move(indexed)})
                    : Source(std::move(indexed));
}

}  // namespace stoker::data::pipeline
