#include "shared/data/pipeline/dataset_overlap.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/log.h"
#include "shared/data/sample_split.h"

namespace stoker::data::pipeline {
namespace {

// More are not compared: they take 8 bytes each.
constexpr uint64_t kMaxCompared = 20'000'000;

// Where a dataset reads samples: the folder of its files, or its file.
struct Place {
  std::string dataset;
  std::string path;       // as in its sources
  std::string canonical;  // the same for all datasets
};

std::string source_path(const config::DatasetConfig& config) {
  const auto* const list = std::get_if<config::ImageListDataset>(&config.source);
  if (list == nullptr) return config.path();
  if (!list->root.empty()) return list->root;
  const std::string folder = std::filesystem::path(list->path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::vector<Place> places_of(const config::DatasetConfigs& datasets, const std::string& name) {
  std::vector<Place> places;
  for (const std::string& part : config::sampled_datasets(datasets, name)) {
    const auto found = datasets.find(part);
    if (found == datasets.end()) continue;
    std::string path = source_path(found->second);
    if (path.empty()) continue;  // computed
    std::error_code error;
    std::string canonical = std::filesystem::weakly_canonical(path, error).string();
    while (canonical.size() > 1 && canonical.ends_with('/')) canonical.pop_back();
    if (!error)
      places.push_back(
          {.dataset = part, .path = std::move(path), .canonical = std::move(canonical)});
  }
  return places;
}

bool is_at_or_below(std::string_view path, std::string_view above) {
  return path.starts_with(above) &&
         (path.size() == above.size() || above.ends_with('/') || path[above.size()] == '/');
}

// Blocks of several texts are located by the text in which they start.
bool has_unknown_sources(const config::DatasetConfigs& datasets, const std::string& name) {
  return std::ranges::any_of(config::sampled_datasets(datasets, name),
                             [&](const std::string& part) {
                               const auto found = datasets.find(part);
                               return found == datasets.end() || is_cut_into_blocks(found->second);
                             });
}

class CanonicalNames {
 public:
  explicit CanonicalNames(std::vector<Place> places) : places_(std::move(places)) {}

  std::string operator()(const std::string& file) const {
    for (const Place& place : places_) {
      if (!is_at_or_below(file, place.path)) continue;
      std::string_view rest = std::string_view(file).substr(place.path.size());
      while (rest.starts_with('/')) rest.remove_prefix(1);
      return place.canonical + (rest.empty() ? "" : "/") + std::string(rest);
    }
    // A decompressed file in the index has the name of its dataset.
    const std::string_view base = std::string_view(file).substr(file.rfind('/') + 1);
    for (const Place& place : places_)
      if (base.starts_with(place.dataset + '.'))
        return place.canonical + '\n' + std::string(base.substr(place.dataset.size()));
    return file;
  }

 private:
  std::vector<Place> places_;
};

bool have_files_in_common(const std::vector<Place>& places, const std::vector<Place>& others) {
  return std::ranges::any_of(places, [&](const Place& place) {
    return std::ranges::any_of(others, [&](const Place& other) {
      return is_at_or_below(place.canonical, other.canonical) ||
             is_at_or_below(other.canonical, place.canonical);
    });
  });
}

}  // namespace

std::optional<Overlap> find_overlap(const config::DatasetConfigs& datasets, const std::string& name,
                                    const Dataset& data, const std::string& other_name,
                                    const Dataset& other) {
  std::vector<Place> places = places_of(datasets, name);
  std::vector<Place> others = places_of(datasets, other_name);
  if (!have_files_in_common(places, others)) return Overlap();
  if (has_unknown_sources(datasets, name) || has_unknown_sources(datasets, other_name) ||
      std::max(data.size(), other.size()) > kMaxCompared)
    return std::nullopt;
  std::vector<uint64_t> hashes(other.size());
  SourceHash hash_of_other(CanonicalNames(std::move(others))),
      hash(CanonicalNames(std::move(places)));
  for (uint64_t sample = 0; sample < hashes.size(); ++sample)
    hashes[sample] = hash_of_other(other.source(sample));
  std::ranges::sort(hashes);
  Overlap overlap;
  for (uint64_t sample = 0; sample < data.size(); ++sample) {
    const SampleSource source = data.source(sample);
    if (!std::ranges::binary_search(hashes, hash(source))) continue;
    if (overlap.samples++ == 0) overlap.first = source;
  }
  return overlap;
}

void warn_about_overlap(const config::DatasetConfigs& datasets, const std::string& name,
                        const Dataset& data, const Source& train) {
  const auto* const indexed = std::get_if<std::unique_ptr<Dataset>>(&train);
  if (indexed == nullptr) return;  // nothing locates the records of a stream
  const auto overlap = find_overlap(datasets, name, data, "train", **indexed);
  if (!overlap || overlap->samples == 0) return;
  log_warn("datasets overlap",
           {{"dataset", name},
            {"other", "train"},
            {"samples", overlap->samples},
            {"total", data.size()},
            {"path", overlap->first.file},
            {"offset", overlap->first.offset},
            {"hint",
             "their metrics are those of training: give both datasets the same split_by, "
             "split_seed and fields.group, and parts of split that do not overlap"}});
}

}  // namespace stoker::data::pipeline
