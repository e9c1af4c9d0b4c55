#include "daemon/app/resume_compatibility.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/config/load_config.h"

namespace stoker::app {
namespace {

constexpr size_t kMaxNamedDifferences = 5;  // differences per kind

struct Kind {
  std::string_view flag;
  std::string_view what;
  std::string_view lost;
};

constexpr std::array<Kind, kChanges> kChangeKinds{
    {{"--allow-model-change", "another model, task or optimizer",
      "tensors without a counterpart in the checkpoint, and their optimizer state, are "
      "reinitialized"},
     {"--allow-data-change", "other data, or another order of samples",
      "samples of the current epoch may be used twice, or not at all"},
     {"--allow-batch-change", "another batch size",
      "a step is not the same unit for schedule and learning rate; up to one batch of samples "
      "is used twice"},
     {"--allow-world-size-change", "another number of trainers",
      "their shares of the data are reassigned: samples may be used twice, or not at all"}}};

const Kind& to_change_kind(size_t change) { return kChangeKinds[change]; }

std::optional<ChangeKind> find_change(const config::SettingChange& setting,
                                      const std::set<std::string>& training_datasets) {
  if (setting.key.starts_with("data.")) {
    const std::string name = setting.key.substr(5, setting.key.find('.', 5) - 5);
    if (!training_datasets.contains(name)) return std::nullopt;
  }
  switch (setting.on_resume) {
    case config::OnResume::kFree:
    case config::OnResume::kLive:
      return std::nullopt;
    case config::OnResume::kData:
      return ChangeKind::kData;
    case config::OnResume::kBatch:
      return ChangeKind::kBatch;
    case config::OnResume::kModel:
      return ChangeKind::kModel;
  }
  return std::nullopt;
}

std::string listed(const std::vector<std::string>& differences, std::string_view between) {
  std::string text;
  for (size_t i = 0; i < std::min(differences.size(), kMaxNamedDifferences); ++i)
    text += std::string(between) + differences[i];
  if (differences.size() > kMaxNamedDifferences)
    text += std::string(between) + "and " +
            std::to_string(differences.size() - kMaxNamedDifferences) + " more";
  return text;
}

void log_change(const config::SettingChange& setting) {
  log_info("setting changed",
           {{"key", setting.key}, {"previous", setting.previous}, {"current", setting.current}});
}

std::string sum_change(std::string_view what, const std::string& before, const std::string& now) {
  constexpr size_t kShown = 12;
  const auto shown = [](const std::string& sum) {
    return sum.empty() ? "(none)" : sum.substr(0, kShown);
  };
  return std::string(what) + ' ' + shown(before) + " -> " + shown(now);
}

std::string count_change(std::string_view key, uint64_t before, uint64_t now) {
  return std::string(key) + ": " + std::to_string(before) + " -> " + std::to_string(now);
}

}  // namespace

std::string_view allow_flag(ChangeKind change) {
  return to_change_kind(static_cast<size_t>(change)).flag;
}

void ResumeCompatibility::add(ChangeKind change, std::string difference) {
  auto& known = differences_[static_cast<size_t>(change)];
  if (std::ranges::count(known, difference) == 0) known.push_back(std::move(difference));
}

void ResumeCompatibility::add_config(const config::Config& before, const config::Config& now,
                                     bool logs) {
  std::set<std::string> training_datasets;
  for (const config::Config* const each : {&before, &now})
    for (std::string& name : config::training_datasets(*each))
      training_datasets.insert(std::move(name));
  for (const config::SettingChange& setting : config::diff_configs(before, now)) {
    if (const auto change = find_change(setting, training_datasets)) {
      add(*change, setting.text());
    } else if (logs) {
      log_change(setting);
    }
  }
}

void ResumeCompatibility::add_manifest(const checkpoint::Manifest& saved,
                                       const checkpoint::Manifest& now) {
  if (saved.data_digest != now.data_digest)
    add(ChangeKind::kData,
        sum_change("data.train: fingerprint", saved.data_digest, now.data_digest));
  if (saved.data_schema && now.data_schema) add_schema(*saved.data_schema, *now.data_schema);
  // If only one of them has a model file, model.name differs.
  if (!saved.model_file.empty() && !now.model_file.empty() && saved.model_file != now.model_file)
    add(ChangeKind::kModel,
        sum_change("model.path: sum of the file", saved.model_file, now.model_file));
  adapter_changed_ = saved.base_weights.has_value() != now.base_weights.has_value();
  if (saved.base_weights && now.base_weights &&
      saved.base_weights->sha256 != now.base_weights->sha256)
    add(ChangeKind::kModel,
        sum_change("model.pretrained.path: sum of the weights that the adapter belongs to",
                   saved.base_weights->sha256, now.base_weights->sha256));
  // Token ids have another meaning.
  if (saved.tokenizer != now.tokenizer && !(saved.tokenizer.empty() && now.tokenizer.empty()))
    add(ChangeKind::kModel, sum_change("data.train.tokenizer: sum of the file",
                                       saved.tokenizer.empty() ? "none" : saved.tokenizer,
                                       now.tokenizer.empty() ? "none" : now.tokenizer));
  // Checkpoints of an earlier release do not contain these.
  if (saved.micro_batch_size != 0 && saved.micro_batch_size != now.micro_batch_size)
    add(ChangeKind::kBatch,
        count_change("train.micro_batch_size", saved.micro_batch_size, now.micro_batch_size));
  if (saved.gradient_accumulation_steps != 0 &&
      saved.gradient_accumulation_steps != now.gradient_accumulation_steps)
    add(ChangeKind::kBatch,
        count_change("train.gradient_accumulation_steps", saved.gradient_accumulation_steps,
                     now.gradient_accumulation_steps));
  if (saved.world_size != now.world_size)
    add(ChangeKind::kWorldSize, count_change("trainers", static_cast<uint64_t>(saved.world_size),
                                             static_cast<uint64_t>(now.world_size)));
}

// Outputs and inputs of the model have another meaning.
void ResumeCompatibility::add_schema(const DatasetSchema& saved, const DatasetSchema& now) {
  // Another release can leave out other records of the same files.
  if (saved.num_samples != now.num_samples && saved.num_samples > 0 && now.num_samples > 0)
    add(ChangeKind::kData,
        count_change("data.train: number of samples", saved.num_samples, now.num_samples));
  if (saved.class_names != now.class_names)
    add(ChangeKind::kModel,
        "the classes of data.train: " + describe(saved) + " -> " + describe(now));
  const auto add_columns = [this](const std::string& which, const std::vector<std::string>& before,
                                  const std::vector<std::string>& after) {
    if (before != after && !before.empty() && !after.empty())
      add(ChangeKind::kModel, "the " + which + " columns of data.train: " +
                                  summarize_names(before) + " -> " + summarize_names(after));
  };
  add_columns("input", saved.input_columns, now.input_columns);
  add_columns("target", saved.target_columns, now.target_columns);
}

void ResumeCompatibility::add_model(const checkpoint::Manifest& saved,
                                    const checkpoint::Manifest& now) {
  if (has(ChangeKind::kModel) || saved.model_digest.empty() ||
      saved.model_digest == now.model_digest)
    return;
  add(ChangeKind::kModel, sum_change("the model: names, shapes or order of its tensors",
                                     saved.model_digest, now.model_digest));
}

bool ResumeCompatibility::any() const {
  return std::ranges::any_of(differences_, [](const auto& each) { return !each.empty(); });
}

Status ResumeCompatibility::check(const AllowedChanges& allowed) const {
  if (adapter_changed_)
    return Status(StatusCode::kMismatch,
                  "model.lora was added to the run or removed from it: its checkpoint has other "
                  "weights, and no option allows it; restore model.lora, or write the weights with "
                  "stokerctl export (with --merge if they are an adapter) and start a new run with "
                  "them as model.pretrained.path");
  std::string rejected;
  for (size_t i = 0; i < kChanges; ++i) {
    if (differences_[i].empty() || allowed[static_cast<ChangeKind>(i)]) continue;
    rejected += "\n  " + std::string(to_change_kind(i).what) + ": " +
                std::string(to_change_kind(i).flag) + " continues with it, but " +
                std::string(to_change_kind(i).lost) + listed(differences_[i], "\n    ");
  }
  if (rejected.empty()) return {};
  return Status(
      StatusCode::kMismatch,
      "the run directory contains a different run; start a new run with --fresh, use another "
      "run.dir, restore the previous settings and data, or allow the change:" +
          rejected);
}

void ResumeCompatibility::log_waived_guarantees() const {
  for (size_t i = 0; i < kChanges; ++i)
    if (!differences_[i].empty())
      log_warn("incompatible change accepted", {{"change", listed(differences_[i], " ").substr(1)},
                                                {"flag", to_change_kind(i).flag},
                                                {"waived_guarantee", to_change_kind(i).lost}});
}

Status check_resumed_config(const run::RunLayout& layout, const config::Config& now,
                            const AllowedChanges& allowed) {
  const auto saved =
      checkpoint::CheckpointStore(layout.checkpoints_dir(), default_file_system()).list();
  if (!saved.ok() || saved->empty()) return {};
  const auto before = config::load_config(layout.config_file(), {});
  if (!before.ok()) return {};  // the start says so
  ResumeCompatibility changes;
  changes.add_config(*before, now, /*logs=*/false);
  return changes.check(allowed).with_context(layout.root());
}

uint64_t ticket_at(uint64_t ticket, uint64_t before, uint64_t now) {
  if (before == 0 || now == 0) return ticket;
  // ticket * before / now, without overflow in intermediate results.
  uint64_t whole = 0;
  uint64_t rest = 0;
  if (__builtin_mul_overflow(ticket / now, before, &whole) ||
      __builtin_mul_overflow(ticket % now, before, &rest) ||
      __builtin_add_overflow(whole, rest / now, &whole))
    return std::numeric_limits<uint64_t>::max();
  return whole;
}

}  // namespace stoker::app
