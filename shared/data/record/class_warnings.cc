#include "shared/data/record/class_warnings.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "shared/base/dataset_schema.h"
#include "shared/base/log.h"
#include "shared/data/record/class_counts.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::record {
namespace {

// More are not counted: the labels can be in files.
constexpr uint64_t kMaxCounted = 50'000'000;

// Whether the names are those of the labels in the records, not of folders, words or a setting.
bool has_found_names(const std::string& name, const config::DatasetConfigs& datasets) {
  return std::ranges::all_of(config::sampled_datasets(datasets, name), [&](const auto& part) {
    const config::DatasetConfig& config = datasets.at(part);
    return config.class_names().empty() && !config.has_captions() &&
           !std::holds_alternative<config::ImageFolderDataset>(config.source);
  });
}

void warn_about_numbers(const std::string& name, const std::vector<std::string>& class_names) {
  std::vector<std::string> numbers;
  std::ranges::copy_if(class_names, std::back_inserter(numbers),
                       [](const std::string& label) { return is_number(label); });
  if (numbers.empty()) return;
  log_warn("labels look numeric",
           {{"dataset", name},
            {"labels", summarize_names(numbers)},
            {"count", numbers.size()},
            {"num_classes", class_names.size()},
            {"hint",
             "not all labels are integers from 0, so they are names in byte order; set "
             "class_names, or fields.target for a regression"}});
}

// A part by position of data that is sorted by class, and one by chance.
constexpr const char* kSortedHint =
    "split takes samples by position, and the data may be sorted by class: set split_by: "
    "stratified, or random, in each dataset of these files";
constexpr const char* kRandomHint =
    "set split_by: stratified in each dataset of these files, unless the data lacks them, too";

const char* hint_of(const std::string& name, const config::DatasetConfigs& datasets,
                    bool starts_at_one) {
  if (starts_at_one)
    return "labels seem to start at 1: class 0 is an output of the model without use";
  for (const std::string& part : config::sampled_datasets(datasets, name)) {
    const config::DatasetConfig& config = datasets.at(part);
    if (!config.has_split()) continue;
    const bool is_by_class = std::holds_alternative<config::ImageFolderDataset>(config.source);
    if (config.split_by == config::SplitBy::kPosition && !is_by_class) return kSortedHint;
    if (config.has_stable_split()) return kRandomHint;
  }
  return "the model learns these classes only from other data, and metrics per class lack them";
}

void warn_about_empty(const std::string& name, const config::DatasetConfigs& datasets,
                      const Dataset& data) {
  const auto counts = count_classes(data);
  if (!counts.ok()) return;
  std::vector<std::string> empty;
  for (size_t of_class = 0; of_class < counts->size(); ++of_class)
    if ((*counts)[of_class] == 0)
      empty.push_back(of_class < data.class_names().size() ? data.class_names()[of_class]
                                                           : std::to_string(of_class));
  if (empty.empty()) return;
  const bool starts_at_one = data.class_names().empty() && empty.size() == 1 && empty[0] == "0";
  log_warn("classes without samples", {{"dataset", name},
                                       {"empty_classes", empty.size()},
                                       {"num_classes", counts->size()},
                                       {"classes", summarize_names(empty)},
                                       {"hint", hint_of(name, datasets, starts_at_one)}});
}

}  // namespace

void warn_about_classes(const std::string& name, const config::DatasetConfigs& datasets,
                        const Dataset& data) {
  if (data.classes() == 0) return;
  if (has_found_names(name, datasets)) warn_about_numbers(name, data.class_names());
  if (data.size() <= kMaxCounted) warn_about_empty(name, datasets, data);
}

}  // namespace stoker::data::record
