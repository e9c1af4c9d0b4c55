#include "shared/dataset/mixture_dataset.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "shared/base/sha256.h"

namespace stoker::dataset {
namespace {

class MixtureDataset final : public Dataset {
 public:
  explicit MixtureDataset(std::vector<NamedSet> sets) : sets_(std::move(sets)) {
    Sha256 hash;
    hash.update("mixture\n");
    uint64_t end = 0;
    for (const NamedSet& set : sets_) {
      ends_.push_back(end += set.data->size());
      classes_ = std::max(classes_, set.data->classes());
      hash.update(set.data->fingerprint() + '\n');
    }
    fingerprint_ = hash.finish_hex();
  }

  uint64_t size() const override { return ends_.back(); }
  const std::vector<TensorSpec>& spec() const override { return sets_.front().data->spec(); }
  uint64_t classes() const override { return classes_; }
  std::vector<std::string> class_names() const override {
    return sets_.front().data->class_names();
  }
  const std::string& fingerprint() const override { return fingerprint_; }

  Origin origin(uint64_t sample) const override {
    const Place place = place_of(sample);
    Origin origin = place.set.data->origin(place.sample);
    origin.set = place.set.name;
    return origin;
  }
  std::vector<uint64_t> shard_ends() const override {
    std::vector<uint64_t> all;
    for (size_t set = 0; set < sets_.size(); ++set)
      for (const uint64_t end : sets_[set].data->shard_ends()) all.push_back(first_of(set) + end);
    return all;
  }
  std::vector<uint64_t> set_sizes() const override {
    std::vector<uint64_t> sizes;
    for (const NamedSet& set : sets_) sizes.push_back(set.data->size());
    return sizes;
  }
  uint64_t longest() const override { return sets_.front().data->longest(); }
  uint64_t length(uint64_t sample) const override {
    const Place place = place_of(sample);
    return place.set.data->length(place.sample);
  }
  std::vector<TensorSpec> spec_of_length(uint64_t length) const override {
    return sets_.front().data->spec_of_length(length);
  }
  std::string describe_draws(uint64_t sample, const DrawKey& draw) const override {
    const Place place = place_of(sample);
    return place.set.data->describe_draws(place.sample, in_set(draw, place));
  }
  Status read(uint64_t sample, const DrawKey& draw,
              std::span<const std::span<std::byte>> outputs) const override {
    const Place place = place_of(sample);
    return place.set.data->read(place.sample, in_set(draw, place), outputs);
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    while (!labels.empty()) {
      const Place place = place_of(first);
      const uint64_t left = place.set.data->size() - place.sample;
      const auto part = labels.first(std::min<uint64_t>(left, labels.size()));
      STOKER_RETURN_IF_ERROR(place.set.data->read_labels(place.sample, part));
      labels = labels.subspan(part.size());
      first += part.size();
    }
    return {};
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    const Place place = place_of(sample);
    place.set.data->prefetch(place.sample, bytes);
  }
  void keep_samples(uint64_t& room) const override {
    for (const NamedSet& set : sets_) set.data->keep_samples(room);
  }
  std::vector<int> writes_to() const override {
    std::vector<int> all;
    for (const NamedSet& set : sets_)
      for (const int descriptor : set.data->writes_to()) all.push_back(descriptor);
    return all;
  }

 private:
  struct Place {
    const NamedSet& set;
    uint64_t sample;  // in the set
  };

  uint64_t first_of(size_t set) const { return set == 0 ? 0 : ends_[set - 1]; }
  Place place_of(uint64_t sample) const {
    assert(sample < size());
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), sample);
    const auto set = static_cast<size_t>(end - ends_.begin());
    return {.set = sets_[set], .sample = sample - first_of(set)};
  }
  // The plan's pass is one over the sample's set already.
  static DrawKey in_set(const DrawKey& draw, const Place& place) {
    return {.seed = draw.seed, .epoch = draw.epoch, .sample = place.sample};
  }

  // Constant after construction.
  const std::vector<NamedSet> sets_;
  std::vector<uint64_t> ends_;
  uint64_t classes_ = 0;
  std::string fingerprint_;
};

std::string in_words(const std::vector<TensorSpec>& spec) {
  std::string words;
  for (const TensorSpec& tensor : spec) words += (words.empty() ? "" : ", ") + to_string(tensor);
  return words;
}

// What a trainer could not tell apart must mean the same.
Status check_alike(const std::string& name, const NamedSet& first, const NamedSet& other) {
  const std::string pair = "data." + name + ".of: data." + first.name + " and data." + other.name;
  if (first.data->spec() != other.data->spec()) {
    return Status(Code::kInvalidArgument, pair + " have different tensors (" +
                                              in_words(first.data->spec()) + "; " +
                                              in_words(other.data->spec()) + ")");
  }
  if (first.data->class_names() != other.data->class_names()) {
    return Status(Code::kInvalidArgument,
                  pair +
                      " have different classes: a label would mean one thing in the one and "
                      "another in the other");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Dataset>> make_mixture(const std::string& name, std::vector<NamedSet> sets) {
  assert(!sets.empty());
  for (const NamedSet& set : sets) STOKER_RETURN_IF_ERROR(check_alike(name, sets.front(), set));
  return std::unique_ptr<Dataset>(std::make_unique<MixtureDataset>(std::move(sets)));
}

}  // namespace stoker::dataset
