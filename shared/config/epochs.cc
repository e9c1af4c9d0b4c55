#include "shared/config/epochs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace stoker::config {
namespace {

constexpr const char* kMaxStepsKey = "train.max_steps";
constexpr const char* kMaxEpochsKey = "train.max_epochs";
constexpr const char* kUnfreezeKey = "model.unfreeze_at_step";

// The numbers of a field with accepts_epochs.
std::vector<int64_t> steps_of(const Field& field) {
  if (const auto* const number = std::get_if<uint64_t*>(&field.target))
    return {static_cast<int64_t>(**number)};
  if (const auto* const number = std::get_if<std::optional<uint64_t>*>(&field.target))
    return {static_cast<int64_t>((*number)->value_or(0))};
  if (const auto* const list = std::get_if<std::vector<int64_t>*>(&field.target)) return **list;
  return {};
}

// Calls `visit` with each field of `fields` that is configured in epochs, and with its full name.
using VisitField = std::function<void(const std::string& key, const Field& field)>;
void visit_epochs(const Config& config, const std::string& section, const Fields& fields,
                  const VisitField& visit) {
  for (const Field& field : fields) {
    const std::string key = section + '.' + std::string(field.name);
    if (const auto* const mapping = std::get_if<MappingField>(&field.target)) {
      if (mapping->is_set(mapping->target))
        visit_epochs(config, key, mapping->fields(mapping->target), visit);
    } else if (field.accepts_epochs && config.epochs.contains(key)) {
      visit(key, field);
    }
  }
}
// `config`: what the fields point to.
void visit_epochs(Config& config, const VisitField& visit) {
  if (config.epochs.empty()) return;
  for (const Section& section : all_sections(config))
    visit_epochs(config, section.key, section.fields, visit);
}

// Products of decimal fractions, as 0.7 * 10, can be just above a whole number.
double round_up(double steps) {
  constexpr double kRelativeError = 1e-12;
  return std::ceil(steps - kRelativeError * std::max(1.0, std::abs(steps)));
}

int64_t to_steps(double steps, const Field& field) {
  return static_cast<int64_t>(std::clamp(round_up(steps), field.min, field.max));
}

}  // namespace

void join_max_epochs(const ExplicitKeys& keys, Config& config, ConfigErrors& errors) {
  if (errors.has_error_for(kMaxStepsKey) || errors.has_error_for(kMaxEpochsKey)) return;
  std::optional<double>& epochs = config.train.max_epochs;
  const auto of_steps = config.epochs.find(kMaxStepsKey);
  const bool is_in_epochs = of_steps != config.epochs.end();
  const bool is_same = is_in_epochs && epochs == of_steps->second.front();
  const bool is_null_by_flag =
      !epochs && keys.contains(kMaxEpochsKey) && keys.location_of(kMaxEpochsKey).flag >= 0;
  if (is_null_by_flag && is_in_epochs) {
    errors.add(keys.location_of(kMaxEpochsKey), kMaxEpochsKey,
               "cannot be null with train.max_steps in epochs; set train.max_steps to a number");
    return;
  }
  if (epochs && !is_same && keys.contains(kMaxStepsKey)) {
    const bool epochs_by_flag = keys.location_of(kMaxEpochsKey).flag >= 0;
    const bool steps_by_flag = keys.location_of(kMaxStepsKey).flag >= 0;
    if (epochs_by_flag == steps_by_flag) {
      errors.add(keys.location_of(kMaxEpochsKey), kMaxEpochsKey,
                 "cannot be combined with train.max_steps; remove one of them");
      return;
    }
    if (steps_by_flag) epochs.reset();
  }
  if (epochs && !is_same) {
    config.epochs[kMaxStepsKey] = {*epochs};
    config.train.max_steps = 0;
  } else if (is_in_epochs) {
    epochs = of_steps->second.front();
  }
}

void resolve_epochs(Config& config, const EpochLength& length) {
  config.epoch_length = length;
  visit_epochs(config, [&](const std::string& key, const Field& field) {
    std::vector<int64_t> steps;
    for (const double epochs : config.epochs.at(key)) {
      // A point of the run, or a length. No start of a run undoes the steps that it has.
      const bool is_point = key == kMaxStepsKey || key == kUnfreezeKey;
      const auto done = static_cast<double>(length.step);
      double resolved = epochs * length.steps;
      if (is_point) resolved = done + (epochs - length.epochs) * length.steps;
      if (key == kMaxStepsKey) resolved = std::max(resolved, done);
      steps.push_back(to_steps(resolved, field));
    }
    set_steps(field, steps);
  });
}

uint64_t schedule_step(const Config& config, uint64_t step) {
  const auto is_of_schedule = [](const auto& each) {
    return each.first == kMaxStepsKey || each.first.starts_with("scheduler.");
  };
  if (!config.epoch_length || std::ranges::none_of(config.epochs, is_of_schedule)) return step;
  const EpochLength& length = *config.epoch_length;
  const double before = std::round(length.epochs * length.steps);
  const double since = static_cast<double>(step) - static_cast<double>(length.step);
  return static_cast<uint64_t>(std::max(0.0, before + since));
}

void keep_resolved_epochs(Config& config, const Config& of_run) {
  Config saved = of_run;  // the schema needs mutable pointers
  visit_epochs(saved, [&](const std::string& key, const Field& from) {
    const auto epochs = config.epochs.find(key);
    if (epochs == config.epochs.end() || epochs->second != saved.epochs.at(key)) return;
    visit_epochs(config, [&](const std::string& to_key, const Field& to) {
      if (to_key == key) set_steps(to, steps_of(from));
    });
  });
}

bool has_unresolved_epochs(const Config& config) {
  Config copy = config;
  bool found = false;
  visit_epochs(copy, [&](const std::string& key, const Field& field) {
    const bool is_zero = std::ranges::count(copy.epochs.at(key), 0) > 0;
    found = found || !(are_steps_known(field) || is_zero);
  });
  return found;
}

std::string describe_epochs(const Config& config) {
  Config copy = config;
  std::string text;
  visit_epochs(copy, [&](const std::string& key, const Field& field) {
    text += (text.empty() ? "" : " ") + key + "=" + to_yaml(field.target);
  });
  return text;
}

bool is_list_of_steps(const Field& field) {
  return std::holds_alternative<std::vector<int64_t>*>(field.target);
}

bool are_steps_known(const Field& field) {
  return std::ranges::all_of(steps_of(field), [](int64_t steps) { return steps > 0; });
}

void set_steps(const Field& field, std::span<const int64_t> steps) {
  if (const auto* const number = std::get_if<uint64_t*>(&field.target))
    **number = static_cast<uint64_t>(steps.front());
  else if (const auto* const optional = std::get_if<std::optional<uint64_t>*>(&field.target))
    **optional = static_cast<uint64_t>(steps.front());
  else if (const auto* const list = std::get_if<std::vector<int64_t>*>(&field.target))
    (*list)->assign(steps.begin(), steps.end());
}

}  // namespace stoker::config
