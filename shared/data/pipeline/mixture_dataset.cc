#include "shared/data/pipeline/mixture_dataset.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "shared/base/hash.h"

namespace stoker::data::pipeline {
namespace {

class MixtureDataset final : public Dataset, public SampleFiles {
 public:
  explicit MixtureDataset(std::vector<NamedDataset> components)
      : components_(std::move(components)) {
    const DatasetInfo& first = components_.front().data->info();
    info_.spec = first.spec;
    info_.class_names = first.class_names;
    info_.input_columns = first.input_columns;
    info_.target_columns = first.target_columns;
    info_.max_length = first.max_length;
    info_.length_tensors = first.length_tensors;
    info_.maybe_files = this;
    Sha256 hash;
    hash.update("mixture\n");
    for (const NamedDataset& component : components_) {
      const DatasetInfo& info = component.data->info();
      for (const uint64_t end : component.data->shard_ends())
        info_.shard_ends.push_back(info_.size + end);
      info_.component_sizes.push_back(info.size);
      info_.writable_fds.insert(info_.writable_fds.end(), info.writable_fds.begin(),
                                info.writable_fds.end());
      info_.classes = std::max(info_.classes, info.classes);
      hash.update(info.fingerprint + '\n');
      ends_.push_back(info_.size += info.size);
    }
    info_.fingerprint = hash.finish_hex();
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
  struct Location {
    const NamedDataset& component;
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
  const std::vector<NamedDataset> components_;
  std::vector<uint64_t> ends_;
  DatasetInfo info_;
};

std::string format_spec(const std::vector<TensorSpec>& spec) {
  std::string words;
  for (const TensorSpec& tensor : spec) words += (words.empty() ? "" : ", ") + to_string(tensor);
  return words;
}

std::string summarize_classes(const Dataset& data) {
  const std::vector<std::string>& names = data.class_names();
  return names.empty() ? std::to_string(data.classes()) + " class indices" : summarize_names(names);
}

// Tensors, their padding and class names must be equal, because the trainer does not know which
// component a sample is from.
Status validate_same_schema(const std::string& name, const NamedDataset& first,
                            const NamedDataset& other) {
  const std::string pair = "data." + name + ": data." + first.name + " and data." + other.name;
  if (first.data->spec() != other.data->spec()) {
    return Status(StatusCode::kInvalidArgument, pair + " have different tensors (" +
                                                    format_spec(first.data->spec()) + "; " +
                                                    format_spec(other.data->spec()) + ")");
  }
  const DatasetInfo &info = first.data->info(), &other_info = other.data->info();
  if (info.max_length != other_info.max_length ||
      info.length_tensors != other_info.length_tensors) {
    return Status(StatusCode::kInvalidArgument,
                  pair +
                      " pad different tensors to the length of a batch; set "
                      "sequence.max_label_length in both or in neither");
  }
  if (first.data->class_names() != other.data->class_names()) {
    return Status(StatusCode::kInvalidArgument,
                  pair +
                      " have different classes: a label would mean one thing in the one and "
                      "another in the other; set the same class_names in both (" +
                      summarize_classes(*first.data) + "; " + summarize_classes(*other.data) + ")");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Dataset>> make_mixture(const std::string& name,
                                              std::vector<NamedDataset> components) {
  assert(!components.empty());
  for (const NamedDataset& component : components)
    STOKER_RETURN_IF_ERROR(validate_same_schema(name, components.front(), component));
  return std::unique_ptr<Dataset>(std::make_unique<MixtureDataset>(std::move(components)));
}

}  // namespace stoker::data::pipeline
