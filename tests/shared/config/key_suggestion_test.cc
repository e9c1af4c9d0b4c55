// Names of other libraries, and what is suggested for other unknown keys.
#include "shared/config/key_suggestion.h"

#include <map>
#include <set>

#include "shared/config/key_synonyms.h"
#include "shared/config/reference.h"
#include "tests/shared/config/config_text.h"
#include "tests/shared/config/manual_text.h"

namespace stoker::config::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string only_error_of(const std::string& text) {
  const auto lines = errors_of(kTextData + text);
  return lines.size() == 1 ? lines[0] : testing::PrintToString(lines);
}

// ---- The table

TEST(KeySynonymsTest, NamesExistingKeysAndSections) {
  std::set<std::string> known{"data", "data.train", "data.val"};
  for (const std::string& key : page_keys(reference_markdown())) {
    known.insert(key);
    known.insert(key.substr(0, key.find('.')));
  }
  for (const KeySynonym& synonym : key_synonyms()) {
    EXPECT_TRUE(!synonym.keys.empty() || !synonym.remark.empty()) << synonym.names;
    for (std::string key : synonym.all_keys()) {
      for (const char* const dataset : {"data.train.", "data.val."})
        if (key.starts_with(dataset)) key = "data.NAME." + key.substr(std::string(dataset).size());
      EXPECT_TRUE(known.contains(key)) << key;
    }
  }
}

TEST(KeySynonymsTest, HasEachNameOnce) {
  size_t count = 0;
  for (const KeySynonym& synonym : key_synonyms()) {
    for (const std::string& name : synonym.all_names()) {
      ++count;
      EXPECT_EQ(find_key_synonym(name), &synonym) << name;
    }
  }
  EXPECT_GT(count, 250u);
}

// As the arguments of torch.optim, torch.utils.data, torch.cuda.amp, Lightning's Trainer,
// transformers' TrainingArguments, Keras' fit() and callbacks are called.
TEST(KeySynonymsTest, SuggestsKeyForNameOfOtherLibrary) {
  const std::map<std::string, std::string> expected{
      {"epochs", "train.max_epochs"},
      {"num_epochs", "train.max_epochs"},
      {"num_train_epochs", "train.max_epochs"},
      {"T_max", "train.max_steps"},
      {"per_device_train_batch_size", "train.micro_batch_size"},
      {"per_device_eval_batch_size", "eval.batch_size"},
      {"accumulate_grad_batches", "train.gradient_accumulation_steps"},
      {"gradient_clip_val", "train.max_grad_norm"},
      {"grad_clip", "train.max_grad_norm"},
      {"clipnorm", "train.max_grad_norm"},
      {"clipvalue", "train.max_grad_value"},
      {"amp", "train.precision"},
      {"fp16", "train.precision"},
      {"bf16", "train.precision"},
      {"accelerator", "train.device"},
      {"learning_rate", "optimizer.lr"},
      {"adam_beta1", "optimizer.betas"},
      {"adam_epsilon", "optimizer.eps"},
      {"eta_min", "scheduler.min_lr"},
      {"lr_steps", "scheduler.milestones"},
      {"warmup_ratio", "scheduler.warmup_steps"},
      {"lr_scheduler_type", "scheduler.name"},
      {"dataloader_num_workers", "feed.num_workers"},
      {"prefetch_factor", "feed.prefetch_batches"},
      {"drop_last", "feed.last_batch"},
      {"output_dir", "run.dir"},
      {"default_root_dir", "run.dir"},
      {"save_steps", "checkpoint.save_every_steps"},
      {"save_total_limit", "checkpoint.keep_last"},
      {"load_best_model_at_end", "checkpoint.save_top_k"},
      {"eval_steps", "eval.every_steps"},
      {"limit_val_batches", "eval.max_samples"},
      {"metric_for_best_model", "eval.monitor"},
      {"logging_steps", "metrics.log_every_steps"},
      {"log_every_n_steps", "metrics.log_every_steps"},
      {"gradient_checkpointing", "model.activation_checkpointing"},
      {"n_layer", "model.num_layers"},
      {"label_smoothing_factor", "task.label_smoothing"},
      {"ddp_timeout", "distributed.timeout_seconds"},
      // Keys of stoker in another section.
      {"seed", "run.seed"},
      {"lr", "optimizer.lr"},
      {"weight_decay", "optimizer.weight_decay"},
      {"warmup_steps", "scheduler.warmup_steps"},
      {"max_steps", "train.max_steps"},
      {"patience", "eval.early_stopping.patience"}};
  for (const auto& [name, key] : expected) {
    // A section that has neither of them.
    EXPECT_THAT(
        only_error_of("watchdog:\n  " + name + ": 1\n"),
        AllOf(StartsWith("my.yaml:3:3: watchdog: unknown key '" + name + "'; did you mean "),
              HasSubstr("'" + key + "'")));
    EXPECT_THAT(only_error_of(name + ": 1\n"),
                AllOf(StartsWith("my.yaml:2:1: unknown section '" + name + "'; did you mean "),
                      HasSubstr("'" + key + "'")));
  }
}

TEST(KeySynonymsTest, IgnoresCaseAndSeparators) {
  for (const char* const name : {"batchSize", "batch-size", "BATCH_SIZE", "batch_sise"})
    EXPECT_EQ(only_error_of("train: {" + std::string(name) + ": 8}"),
              "my.yaml:2:9: train: unknown key '" + std::string(name) +
                  "'; did you mean 'train.micro_batch_size'?");
}

TEST(KeySynonymsTest, ExplainsWhatHasNoSetting) {
  EXPECT_EQ(only_error_of("feed: {pin_memory: true}"),
            "my.yaml:2:8: feed: unknown key 'pin_memory'; stoker does this itself; remove it");
}

// ---- Choice of the key

TEST(KeySuggestionTest, PrefersKeyOfTheSameSection) {
  EXPECT_EQ(only_error_of("feed: {batch_size: 8}"),
            "my.yaml:2:8: feed: unknown key 'batch_size'; did you mean 'train.micro_batch_size' or "
            "'eval.batch_size'?");
  EXPECT_THAT(only_error_of("train: {batch_size: 8}"),
              testing::EndsWith("; did you mean 'train.micro_batch_size'?"));
}

TEST(KeySuggestionTest, NamesDatasetOfTheKey) {
  EXPECT_THAT(
      errors_of("data:\n  train: {format: text, path: a}\n  val: {format: text, data_dir: b}\n"),
      ElementsAre("my.yaml:3:23: data.val: unknown key 'data_dir'; did you mean 'data.val.path'?"));
}

TEST(KeySuggestionTest, SuggestsSectionForMapping) {
  EXPECT_THAT(only_error_of("trainer: {max_steps: 5}"), HasSubstr("; did you mean 'train'?"));
  EXPECT_THAT(only_error_of("optim: {lr: 1}"), HasSubstr("; did you mean 'optimizer'?"));
}

TEST(KeySuggestionTest, StaysInNestedMapping) {
  EXPECT_EQ(only_error_of("eval: {early_stopping: {seed: 1}}"),
            "my.yaml:2:25: eval.early_stopping: unknown key 'seed'; the keys of "
            "eval.early_stopping are patience, patience_steps, min_delta and stopping_threshold");
  EXPECT_EQ(only_error_of("optimizer: {param_groups: [{params: a, learning_rate: 1}]}"),
            "my.yaml:2:40: optimizer.param_groups[0]: unknown key 'learning_rate'; the keys of "
            "optimizer.param_groups[0] are params, kind, lr_scale and weight_decay");
}

TEST(KeySuggestionTest, ListsKeysOfSectionWithoutSimilarOne) {
  EXPECT_EQ(only_error_of("log: {xyzzy: 1}"),
            "my.yaml:2:7: log: unknown key 'xyzzy'; the keys of log are level and format");
}

TEST(KeySuggestionTest, RecognizesNameOfVariant) {
  EXPECT_EQ(only_error_of("scheduler: {which: step, step_size: 10}"),
            "my.yaml:2:13: scheduler: unknown key 'which'; did you mean 'scheduler.name'?");
}

// ---- Consequences of an error are not reported

TEST(ConsequentialErrorsTest, OmitsRequiredKeyThatIsMisspelt) {
  EXPECT_THAT(errors_of("data: {train: {format: text, data_dir: b}}\n"), testing::SizeIs(1));
  EXPECT_THAT(errors_of("data: {train: {format: text, xyzzy: b}}\n"), testing::SizeIs(1));
  // Without a model: either section can be the one that is missing.
  EXPECT_THAT(errors_in(parse_config("dataset: {train: {format: text, path: b}}\n", "my.yaml", {})),
              testing::SizeIs(1));
}

TEST(ConsequentialErrorsTest, OmitsKeysOfVariantThatIsMisspelt) {
  EXPECT_EQ(only_error_of("model: {type: mlp, hidden_sizes: [5], in_features: 4}"),
            "my.yaml:2:9: model: unknown key 'type'; did you mean 'model.name'?");
  EXPECT_EQ(only_error_of("scheduler: {step_size: 10, gamma: 0.5}"),
            "my.yaml:2:13: scheduler.step_size: not supported by scheduler cosine, the default "
            "(only by step and exponential); remove it or set scheduler.name");
}

TEST(ConsequentialErrorsTest, OmitsNameOfModelWithUnknownKey) {
  EXPECT_THAT(only_error_of("model: {xyzzy: gpt, embed_dim: 64}"),
              StartsWith("my.yaml:2:9: model: unknown key 'xyzzy'; "));
  EXPECT_EQ(only_error_of("model: {n_head: 5}"),
            "my.yaml:2:9: model: unknown key 'n_head'; did you mean 'model.num_heads'?");
}

TEST(ConsequentialErrorsTest, OmitsSettingsThatNeedTheSameLength) {
  EXPECT_THAT(errors_of("data: {train: {format: jsonl, path: a, num_classes: 3, fields: {input: x, "
                        "labels: y}, input_shape: [2],\n"
                        "  sequence: {max_length: null, on_overflow: drop, max_label_length: 4}}}\n"
                        "model: {name: blstm}\ntask: {name: sequence_labeling}\n"),
              ElementsAre(HasSubstr("data.train.fields.labels: requires sequence.max_length")));
}

TEST(ConsequentialErrorsTest, OmitsConditionsOfKeyWithError) {
  EXPECT_THAT(only_error_of("model: {name: gpt, embed_dim: 100, num_heads: many}"),
              StartsWith("my.yaml:2:47: model.num_heads: must be"));
  EXPECT_THAT(only_error_of("model: {name: gpt, embed_dim: 100, n_head: 5}"),
              StartsWith("my.yaml:2:36: model: unknown key 'n_head'"));
}

}  // namespace
}  // namespace stoker::config::test
