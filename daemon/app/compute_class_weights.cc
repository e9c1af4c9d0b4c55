#include "daemon/app/compute_class_weights.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "shared/base/log.h"
#include "shared/base/readable_format.h"
#include "shared/checkpoint/store.h"
#include "shared/data/record/class_counts.h"

namespace stoker::app {
namespace {

constexpr size_t kMaxNamed = 12;  // with more classes, only the range is logged

// "cat=0.75"
std::string format_weight(const std::vector<double>& weights, const std::vector<std::string>& names,
                          size_t of_class) {
  const bool is_named = of_class < names.size();
  return (is_named ? names[of_class] : std::to_string(of_class)) + "=" +
         format_setting(weights[of_class]);
}

std::string format_weight(const std::vector<double>& weights,
                          const std::vector<std::string>& names) {
  if (weights.size() > kMaxNamed) {
    const auto [min_index, largest] = std::ranges::minmax_element(weights);
    const auto index = [&](auto of) { return static_cast<size_t>(of - weights.begin()); };
    return "from " + format_weight(weights, names, index(min_index)) + " to " +
           format_weight(weights, names, index(largest));
  }
  std::string text;
  for (size_t i = 0; i < weights.size(); ++i)
    text += (i == 0 ? "" : " ") + format_weight(weights, names, i);
  return text;
}

// How often each class occurs in what the run trains on: in an epoch, or of a mixture relative to all draws.
Result<std::vector<double>> count_trained_classes(const data::Dataset& data,
                                                  const data::order::PlanOptions& plan) {
  if (plan.datasets.empty()) return data::record::count_classes(data, 0, data.size(), {});
  std::vector<double> sums(data.classes());
  uint64_t first = 0;
  for (const data::order::PlannedDataset& part : plan.datasets) {
    STOKER_ASSIGN_OR_RETURN(
        const std::vector<double> counts,
        data::record::count_classes(data, first, part.size, part.sample_weights));
    double scale = static_cast<double>(part.repeat);
    if (part.weight > 0) {
      const double draws = part.sample_weights.empty() ? static_cast<double>(part.size)
                                                       : std::reduce(part.sample_weights.begin(),
                                                                     part.sample_weights.end());
      scale = part.weight / draws;
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += scale * counts[i];
    first += part.size;
  }
  return sums;
}

Result<std::vector<double>> weights_from_counts(const data::Dataset& data,
                                                const data::order::PlanOptions& plan) {
  const auto counts = count_trained_classes(data, plan);
  if (counts.status().code() == StatusCode::kNotFound)
    return Status(StatusCode::kInvalidArgument,
                  "task.class_weights: balanced requires labels, but of data.train " +
                      counts.status().message() + "; set it to a list with one number per class");
  if (!counts.ok()) return counts.status().with_context("count the labels of data.train");
  if (const auto empty = std::ranges::count(*counts, 0.0); empty > 0)
    log_warn("class weights defaulted",
             {{"empty_classes", empty}, {"num_classes", counts->size()}});
  return data::record::balanced_weights(*counts);
}

}  // namespace

Result<config::TaskConfig> compute_class_weights(
    const config::TaskConfig& task, const data::Dataset& data, const data::order::PlanOptions& plan,
    const std::optional<checkpoint::VerifiedCheckpoint>& start) {
  Result<config::TaskConfig> weighed = task;
  auto* const classification = std::get_if<config::ClassificationTask>(&weighed->task);
  const bool is_balanced = classification != nullptr && classification->class_weights.is_balanced;
  if (!is_balanced || data.classes() == 0) return weighed;
  std::vector<double>& weights = classification->class_weights.values;
  if (start) {
    STOKER_ASSIGN_OR_RETURN(weights, checkpoint::read_class_weights(*start));
  }
  const size_t saved = weights.size();
  const bool is_known = saved == data.classes();
  if (saved > 0 && !is_known)
    log_warn("class weights recomputed",
             {{"reason", "the number of classes differs from the checkpoint"},
              {"previous", saved},
              {"current", data.classes()}});
  if (!is_known) {
    STOKER_ASSIGN_OR_RETURN(weights, weights_from_counts(data, plan));
  }
  log_info("class weights computed", {{"source", is_known ? "checkpoint" : "data.train"},
                                      {"weights", format_weight(weights, data.class_names())}});
  return weighed;
}

}  // namespace stoker::app
