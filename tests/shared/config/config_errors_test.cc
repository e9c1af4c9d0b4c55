// Errors of a configuration: all are reported together, with location and suggested fix.
#include "shared/config/config_errors.h"

#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(ConfigErrorsTest, SuggestsKeyForUnknownOne) {
  EXPECT_THAT(
      errors_of(kTextData + "optimizer:\n  name: adamw\n  learing_rate: 1\n  weigth_decay: 0.1\n"),
      ElementsAre("my.yaml:4:3: optimizer: unknown key 'learing_rate'; did you mean "
                  "'optimizer.lr'?",
                  "my.yaml:5:3: optimizer: unknown key 'weigth_decay'; did you mean "
                  "'weight_decay'?"));
}

TEST(ConfigErrorsTest, SuggestsSectionForUnknownOne) {
  EXPECT_THAT(errors_of(kTextData + "optimiser: {lr: 0.1}\n"),
              ElementsAre("my.yaml:2:1: unknown section 'optimiser'; did you mean 'optimizer'?"));
  EXPECT_THAT(errors_of(kTextData + "lr: 0.1\n"),
              ElementsAre("my.yaml:2:1: unknown section 'lr'; did you mean 'optimizer.lr'?"));
  EXPECT_THAT(errors_of(kTextData + "xyzzy: 1\n"),
              ElementsAre("my.yaml:2:1: unknown section 'xyzzy'; the sections are data, run, feed, "
                          "model, task, optimizer, scheduler, train, distributed, cluster, "
                          "checkpoint, eval, metrics, watchdog, control, http and log"));
  EXPECT_THAT(errors_of(kTextData + "version: 2\n"), ElementsAre(HasSubstr("unknown section")));
}

// The key that was probably meant is not reported as missing.
TEST(ConfigErrorsTest, NamesDatasetOfUnknownKey) {
  EXPECT_THAT(
      errors_of("data:\n  train: {format: text, path: a}\n  val: {format: text, paht: b}\n"),
      ElementsAre("my.yaml:3:23: data.val: unknown key 'paht'; did you mean 'path'?"));
}

TEST(ConfigErrorsTest, NamesMappingOfUnknownKey) {
  EXPECT_THAT(errors_of(kTextData + "eval: {early_stopping: {patienec: 3}}\n"),
              ElementsAre("my.yaml:2:25: eval.early_stopping: unknown key 'patienec'; did you mean "
                          "'patience'?"));
}

TEST(ConfigErrorsTest, ReportsAllErrorsInOrderOfFile) {
  EXPECT_THAT(errors_of("train: {max_steps: -1, micro_batch_size: x}\n"
                        "log: {level: loud}\n"
                        "data: {train: {format: txet, path: a}}\n"
                        "modle: {}\n"
                        "feed: {num_workers: 0}\n"),
              ElementsAre(StartsWith("my.yaml:1:20: train.max_steps: must be an integer from 1"),
                          StartsWith("my.yaml:1:42: train.micro_batch_size: must be"),
                          "my.yaml:2:14: log.level: must be debug, info, warning or error, got "
                          "'loud'",
                          StartsWith("my.yaml:3:24: data.train.format: must be text"),
                          "my.yaml:4:1: unknown section 'modle'; did you mean 'model'?",
                          "my.yaml:5:21: feed.num_workers: must be an integer from 1 to 1024 or "
                          "auto, got '0'"));
}

TEST(ConfigErrorsTest, SuggestsWordForUnknownOne) {
  EXPECT_THAT(
      errors_of("data: {train: {format: txet, path: a}}\n"),
      ElementsAre("my.yaml:1:24: data.train.format: must be text, tokens, image_folder, "
                  "image_list, idx, cifar10, cifar100, numpy, tfrecord, webdataset, csv, jsonl or "
                  "synthetic, got 'txet'; did you mean 'text'?"));
  EXPECT_THAT(errors_of(kTextData + "train: {precision: bf15}\n"),
              ElementsAre("my.yaml:2:20: train.precision: must be fp32, tf32, bf16 or fp16, got "
                          "'bf15'; did you mean 'bf16'?"));
}

TEST(ConfigErrorsTest, ReportsMissingKeysWithExample) {
  EXPECT_THAT(errors_of("data: {train: {format: text}}\n"),
              ElementsAre("my.yaml:1:8: data.train.path: is required; set it to the file or folder "
                          "with the text, for example 'path: corpus.txt'"));
  EXPECT_THAT(errors_of("data: {train: {path: a}}\n"),
              testing::Contains(StartsWith("my.yaml:1:8: data.train.format: is required; set it to "
                                           "text, tokens, ")));
}

// ---- Types

TEST(ConfigErrorsTest, ReportsWrongTypeWithExpectedOne) {
  const auto error_of = [](const std::string& text) {
    const auto lines = errors_of(kTextData + text);
    return lines.size() == 1 ? lines[0] : testing::PrintToString(lines);
  };
  const std::string batch =
      "my.yaml:2:27: train.micro_batch_size: must be an integer from 1 to "
      "1000000, got ";
  EXPECT_EQ(error_of("train: {micro_batch_size: many}"), batch + "'many'");
  EXPECT_EQ(error_of("train: {micro_batch_size: 1.5}"), batch + "'1.5'");
  EXPECT_EQ(error_of("train: {micro_batch_size: \"16\"}"), batch + "'16' in quotes");
  EXPECT_EQ(error_of("train: {micro_batch_size: [16]}"), batch + "a list");
  EXPECT_EQ(error_of("train: {micro_batch_size: {a: 1}}"), batch + "a mapping");
  EXPECT_EQ(error_of("train:\n  micro_batch_size:\n  max_steps: 5"),
            "my.yaml:3:3: train.micro_batch_size: must be an integer from 1 to 1000000, got null");
  EXPECT_EQ(error_of("run: {deterministic: yes}"),
            "my.yaml:2:22: run.deterministic: must be true or false, got 'yes'");
  EXPECT_EQ(error_of("run: {seed: -1}"),
            "my.yaml:2:13: run.seed: must be an integer from 0 to 18446744073709551615, got '-1'");
  EXPECT_EQ(error_of("run: {seed: 18446744073709551616}"),
            "my.yaml:2:13: run.seed: must be an integer from 0 to 18446744073709551615, got "
            "'18446744073709551616'");
  EXPECT_EQ(error_of("run: {dir: [a]}"), "my.yaml:2:12: run.dir: must be text, got a list");
  EXPECT_EQ(error_of("model: {name: gpt, freeze: conv1}"),
            "my.yaml:2:28: model.freeze: must be a list such as [a, b], got 'conv1'");
  EXPECT_EQ(error_of("optimizer: {betas: 0.9}"),
            "my.yaml:2:20: optimizer.betas: must be a list such as [1, 2], got '0.9'");
  EXPECT_EQ(error_of("train: 5"), "my.yaml:2:8: train: must be a mapping of settings, got '5'");
  EXPECT_EQ(error_of("train: [5]"),
            "my.yaml:2:8: train: must be a mapping of settings, got a list");
  EXPECT_EQ(error_of("eval: {generate: 5}"),
            "my.yaml:2:18: eval.generate: must be a mapping of settings or null, got '5'");
  EXPECT_EQ(error_of("train: {fused_kernels: true}"),
            "my.yaml:2:24: train.fused_kernels: must be a mapping of settings, got 'true'; its "
            "keys are adamw, cross_entropy, gelu, norm, rope and swiglu");
  EXPECT_EQ(error_of("train: {max_grad_norm: off}"),
            "my.yaml:2:24: train.max_grad_norm: must be a number above 0 and at most 1000000000 or "
            "null, got 'off'");
}

TEST(ConfigErrorsTest, RejectsTextWithoutSections) {
  for (const char* const text : {"hello", "- a\n- b\n", "5"})
    EXPECT_THAT(errors_of(text), ElementsAre(HasSubstr("a configuration is a mapping of sections"),
                                             HasSubstr("data.train: is required")))
        << text;
}

TEST(ConfigErrorsTest, RequiresTrainingDataAndModelInEmptyText) {
  for (const char* const text : {"", "\n\n", "# nothing\n", "---\n", "~\n", "{}\n", "data:\n"})
    EXPECT_THAT(errors_in(parse_config(text, "my.yaml", {})),
                testing::UnorderedElementsAre(HasSubstr("data.train: is required"),
                                              HasSubstr("model.name: is required")))
        << text;
}

TEST(ConfigErrorsTest, RejectsTextThatIsNotNumber) {
  for (const char* const text : {".nan", ".inf", "-.inf", "nan", "inf", "1e999", "0x10", "1_000",
                                 "1,5", "1e", "--1", "+-1", "+", "''", "1 000"}) {
    EXPECT_THAT(errors_of(kTextData + "optimizer: {lr: " + text + "}\n"), testing::Not(IsEmpty()))
        << text;
  }
}

// ---- Ranges: each bound of each number, from both sides

struct Bound {
  std::string key;
  std::string inside;
  std::string outside;
};
void PrintTo(const Bound& bound, std::ostream* out) { *out << bound.key << "=" << bound.outside; }

class NumberRangeTest : public testing::TestWithParam<Bound> {};

std::string text_for(const std::string& key) {
  if (key == "model.hidden_sizes" || key == "model.in_features")
    return kImageData + "model: {name: mlp}\n";
  if (key == "model.num_classes" || key.starts_with("data.train."))
    return "data: {train: {format: synthetic, num_samples: 5, input_shape: [3]}}\n"
           "task: {name: regression}\nmodel: {name: mlp}\n";
  std::string text = kTextData;
  if (key == "optimizer.momentum") text += "optimizer: {name: sgd}\n";
  if (key == "scheduler.gamma" || key == "scheduler.step_size") text += "scheduler: {name: step}\n";
  return text;
}

TEST_P(NumberRangeTest, AcceptsBoundAndRejectsWhatIsBeyond) {
  const auto& [key, inside, outside] = GetParam();
  EXPECT_THAT(errors_of(text_for(key), {key + "=" + inside}), IsEmpty());
  EXPECT_THAT(errors_of(text_for(key), {key + "=" + outside}),
              ElementsAre(StartsWith("--set " + key + "=" + outside + ": ")));
}

INSTANTIATE_TEST_SUITE_P(
    Low, NumberRangeTest,
    testing::Values(
        Bound{"data.train.noise_std", "0", "-0.1"}, Bound{"data.train.num_targets", "1", "0"},
        Bound{"data.train.num_samples", "1", "0"}, Bound{"data.train.input_shape", "[1]", "[0]"},
        Bound{"data.train.max_samples", "1", "0"}, Bound{"data.train.repeat", "1", "0"},
        Bound{"feed.num_workers", "1", "0"}, Bound{"feed.num_processes", "0", "-1"},
        Bound{"feed.prefetch_batches", "2", "1"}, Bound{"feed.read_ahead", "0", "-1"},
        Bound{"feed.read_ahead_mib", "1", "0"}, Bound{"feed.max_sample_error_rate", "0", "-0.001"},
        Bound{"feed.worker_timeout_seconds", "1.0e-30", "0"},
        Bound{"feed.worker_memory_limit_mib", "1", "0"}, Bound{"model.num_layers", "1", "0"},
        Bound{"model.embed_dim", "6", "0"}, Bound{"model.num_heads", "1", "0"},
        Bound{"model.context_length", "1", "0"}, Bound{"model.vocab_size", "256", "255"},
        Bound{"model.dropout", "0", "-0.1"}, Bound{"model.hidden_sizes", "[]", "[0]"},
        Bound{"model.in_features", "1", "0"}, Bound{"model.num_classes", "1", "0"},
        Bound{"optimizer.lr", "1.0e-30", "0"}, Bound{"optimizer.betas", "[0, 0]", "[-0.1, 0]"},
        Bound{"optimizer.eps", "1.0e-30", "0"}, Bound{"optimizer.momentum", "0", "-0.1"},
        Bound{"optimizer.weight_decay", "0", "-0.1"}, Bound{"train.max_grad_norm", "1.0e-30", "0"},
        Bound{"train.max_grad_value", "1.0e-30", "0"}, Bound{"train.ema_decay", "0", "-0.1"},
        Bound{"scheduler.warmup_steps", "0", "-1"}, Bound{"scheduler.min_lr", "0", "-1"},
        Bound{"scheduler.step_size", "1", "0"}, Bound{"scheduler.gamma", "1.0e-30", "0"},
        Bound{"train.max_steps", "1", "0"}, Bound{"train.micro_batch_size", "1", "0"},
        Bound{"train.gradient_accumulation_steps", "1", "0"}, Bound{"train.num_threads", "1", "0"},
        Bound{"checkpoint.save_every_steps", "1", "0"},
        Bound{"checkpoint.save_every_seconds", "1.0e-30", "0"},
        Bound{"checkpoint.keep_last", "2", "1"}, Bound{"checkpoint.keep_every_steps", "1", "0"},
        Bound{"checkpoint.save_top_k", "0", "-1"}, Bound{"checkpoint.keep_unevaluated", "0", "-1"},
        Bound{"eval.batch_size", "1", "0"}, Bound{"eval.num_threads", "1", "0"},
        Bound{"eval.max_samples", "1", "0"}, Bound{"eval.timeout_seconds", "1", "0.9"},
        Bound{"eval.max_attempts", "1", "0"}, Bound{"eval.top_k", "2", "1"},
        Bound{"eval.early_stopping.patience", "1", "0"},
        Bound{"eval.generate.temperature", "0", "-0.1"}, Bound{"eval.generate.top_k", "1", "0"},
        Bound{"eval.generate.top_p", "0.01", "0.009"}, Bound{"metrics.log_every_steps", "1", "0"}));

INSTANTIATE_TEST_SUITE_P(
    High, NumberRangeTest,
    testing::Values(
        Bound{"data.train.repeat", "1000", "1001"}, Bound{"feed.num_workers", "1024", "1025"},
        Bound{"feed.num_processes", "2", "3"}, Bound{"feed.prefetch_batches", "1024", "1025"},
        Bound{"feed.read_ahead", "1024", "1025"}, Bound{"feed.max_sample_error_rate", "1", "1.001"},
        Bound{"model.num_layers", "1000", "1001"}, Bound{"model.dropout", "0.99", "1"},
        Bound{"optimizer.betas", "[0.99, 0.999]", "[1, 0.9]"},
        Bound{"optimizer.momentum", "1", "1.1"}, Bound{"train.ema_decay", "0.999999", "1"},
        Bound{"train.micro_batch_size", "1000000", "1000001"},
        Bound{"train.max_steps", "1000000000000000", "1000000000000001"},
        Bound{"train.num_threads", "4096", "4097"},
        Bound{"checkpoint.save_top_k", "1000000", "1000001"},
        Bound{"checkpoint.save_on_loss_improvement", "0.99", "1"},
        Bound{"eval.batch_size", "1000000", "1000001"},
        Bound{"eval.max_samples", "1000000000", "1000000001"},
        Bound{"eval.max_attempts", "100", "101"}, Bound{"eval.num_misclassified", "25", "26"},
        Bound{"eval.generate.top_p", "1", "1.01"}, Bound{"metrics.num_logged_samples", "64", "65"},
        Bound{"train.micro_batch_size", "1", "9223372036854775808"},
        Bound{"train.max_steps", "1", "99999999999999999999999"}));

// ---- Keys that belong to another variant

struct ForeignKey {
  std::string text;
  std::string key;
  std::string owner;  // "model gpt"
};
void PrintTo(const ForeignKey& foreign, std::ostream* out) { *out << foreign.key; }

class ForeignKeyTest : public testing::TestWithParam<ForeignKey> {};

TEST_P(ForeignKeyTest, IsRejectedWithVariantsThatHaveIt) {
  const auto& [text, key, owner] = GetParam();
  EXPECT_THAT(errors_of(text),
              ElementsAre(testing::AllOf(StartsWith("my.yaml:"),
                                         HasSubstr(key + ": not supported by " + owner),
                                         HasSubstr(" (only by "), HasSubstr("); remove it"))));
}

INSTANTIATE_TEST_SUITE_P(
    Each, ForeignKeyTest,
    testing::Values(ForeignKey{"data: {train: {format: text, path: a, dtype: uint16}}",
                               "data.train.dtype", "format text"},
                    ForeignKey{"data: {train: {format: text, path: a, labels_path: b}}",
                               "data.train.labels_path", "format text"},
                    ForeignKey{"data: {train: {format: tokens, path: a, glob: b}}",
                               "data.train.glob", "format tokens"},
                    ForeignKey{"data: {train: {format: text, path: a, noise_std: 0.1}}",
                               "data.train.noise_std", "format text"},
                    ForeignKey{kImageData + "model: {name: resnet18, num_layers: 64}",
                               "model.num_layers", "model resnet18"},
                    ForeignKey{kImageData + "model: {name: vit_b_16, hidden_dim: 64}",
                               "model.hidden_dim", "model vit_b_16"},
                    ForeignKey{kImageData + "model: {name: lenet5, dropout: 0.1}", "model.dropout",
                               "model lenet5"},
                    ForeignKey{kImageData + "model: {name: mlp, vocab_size: 5}", "model.vocab_size",
                               "model mlp"},
                    ForeignKey{kTextData + "model: {name: gpt, hidden_sizes: [5]}",
                               "model.hidden_sizes", "model gpt"},
                    ForeignKey{kTextData + "model: {name: gpt, num_classes: 5}",
                               "model.num_classes", "model gpt"},
                    ForeignKey{kTextData + "optimizer: {momentum: 0.5}", "optimizer.momentum",
                               "optimizer adamw"},
                    ForeignKey{kTextData + "optimizer: {name: sgd, betas: [0.9, 0.99]}",
                               "optimizer.betas", "optimizer sgd"},
                    ForeignKey{kTextData + "task: {zero_infinity: true}", "task.zero_infinity",
                               "task language_modeling"},
                    ForeignKey{kTextData + "scheduler: {name: constant, min_lr: 0}",
                               "scheduler.min_lr", "scheduler constant"},
                    ForeignKey{kTextData + "scheduler: {gamma: 0.5}", "scheduler.gamma",
                               "scheduler cosine"}));

TEST(ConfigErrorsTest, AcceptsKeysOfAnyVariantIfNameIsWrong) {
  EXPECT_THAT(errors_of(kImageData + "model: {name: resnett, num_layers: 20, hidden_dim: 5}\n"),
              ElementsAre(HasSubstr("model.name: must be gpt, ")));
}

TEST(ConfigErrorsTest, RejectsFormatNextToMixture) {
  EXPECT_THAT(errors_of("data: {train: {format: text, path: a, concat: [b]}, b: {format: text, "
                        "path: b}}\n"),
              testing::Contains("my.yaml:1:39: data.train.concat: cannot be combined with format; "
                                "remove one of them"));
}

// ---- Locations and limits

TEST(ConfigErrorsTest, CountsLinesWithWindowsEndings) {
  EXPECT_THAT(errors_of("data: {train: {format: text, path: a}}\r\ntrain:\r\n  max_stepz: 5\r\n"),
              ElementsAre(StartsWith("my.yaml:3:3: train: unknown key 'max_stepz'")));
}

TEST(ConfigErrorsTest, ShowsUserTextOnOneShortLine) {
  const auto lines =
      errors_of(kTextData + "log:\n  level: \"a\\nb" + std::string(500, 'x') + "\"\n");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("a\\nb"));
  EXPECT_LT(lines[0].size(), 250u);
}

// In a value, in a key and in --set.
TEST(ConfigErrorsTest, ShowsNoControlCharacter) {
  const std::string control = "\u009b2J\u202e";
  const std::string shown = "\\xc2\\x9b2J\\xe2\\x80\\xae";
  EXPECT_THAT(errors_of(kTextData + "log: {level: \"" + control + "\"}\n"),
              ElementsAre(HasSubstr("'" + shown + "'")));
  EXPECT_THAT(errors_of(kTextData + "log: {\"" + control + "\": 1}\n"),
              ElementsAre(HasSubstr("'" + shown + "'")));
  const auto set = parse_config(kTextData, "my\u009b.yaml", {"log." + control + "=" + control});
  EXPECT_THAT(set.status().message(), HasSubstr("--set log." + shown + "=" + shown));
  EXPECT_THAT(parse_config("x: 1\n", "my\u009b.yaml", {}).status().message(),
              HasSubstr("my\\xc2\\x9b.yaml:1:1"));
}

// YAML 1.2.2, 5.7: \u and four hexadecimal digits are a character.
TEST(ConfigErrorsTest, EscapesControlCharactersOfResolvedConfiguration) {
  const auto config = parsed(kTextData + "run: {dir: \"a\u009b\u202eb\"}\n");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const std::string yaml = to_yaml(*config);
  EXPECT_THAT(yaml, HasSubstr("dir: \"a\\u009b\\u202eb\""));
  const auto again = parse_config(yaml, "my.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->run.dir, "a\u009b\u202eb");
}

TEST(ConfigErrorsTest, CountsErrorsAboveLimit) {
  std::string text = kTextData + "train:\n";
  for (int i = 0; i < 500; ++i) text += "  key" + std::to_string(i) + ": 1\n";
  const auto lines = errors_of(text);
  EXPECT_EQ(lines.size(), 51u);
  EXPECT_THAT(lines.back(), HasSubstr("450 more"));
}

TEST(ConfigErrorsTest, LimitsItemsOfList) {
  std::string text = kTextData + "model: {name: gpt, freeze: [a";
  for (int i = 0; i < 2000; ++i) text += ", a";
  EXPECT_THAT(errors_of(text + "]}\n"), ElementsAre(HasSubstr("more than 1024 items")));
}

TEST(ConfigErrorsTest, LimitsNumberOfDatasets) {
  std::string text = "data:\n  train: {format: text, path: a}\n";
  for (int i = 0; i < 64; ++i) text += "  set" + std::to_string(i) + ": {format: text, path: a}\n";
  EXPECT_THAT(errors_of(text), ElementsAre(HasSubstr("more than 64 datasets")));
}

TEST(ConfigErrorsTest, RejectsDatasetNamesThatCouldBePaths) {
  for (const char* const name : {"../x", "a/b", "a.b", "'a b'", "-a", "''", "\"a\\nb\"", "ü"})
    EXPECT_THAT(errors_of("data: {train: {format: text, path: a}, " + std::string(name) +
                          ": {format: text, path: b}}\n"),
                ElementsAre(HasSubstr("names of datasets consist of letters, digits")))
        << name;
}

TEST(ConfigErrorsTest, CoversKeysBelowKeyWithError) {
  ConfigErrors errors("f", {});
  errors.add({}, "data.train.format", "x");
  errors.add({}, "model", "x");
  errors.mark("eval.top_k");
  EXPECT_TRUE(errors.has_error_for("data.train.format"));
  EXPECT_FALSE(errors.has_error_for("data.train"));
  EXPECT_FALSE(errors.has_error_for("data.train.form"));
  EXPECT_TRUE(errors.has_error_for("model"));
  EXPECT_TRUE(errors.has_error_for("model.embed_dim"));
  EXPECT_TRUE(errors.has_error_for("model[0].embed_dim"));
  EXPECT_FALSE(errors.has_error_for("models"));
  EXPECT_TRUE(errors.has_error_for("eval.top_k"));
  EXPECT_EQ(errors.count(), 2u);
}

// ---- Suggestions

TEST(ClosestMatchTest, CountsEveryTypoAsOne) {
  EXPECT_EQ(edit_distance("steps", "steps"), 0u);
  EXPECT_EQ(edit_distance("stps", "steps"), 1u);
  EXPECT_EQ(edit_distance("stepss", "steps"), 1u);
  EXPECT_EQ(edit_distance("stebs", "steps"), 1u);
  EXPECT_EQ(edit_distance("setps", "steps"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
}

TEST(ClosestMatchTest, ReturnsFirstOfClosestWords) {
  EXPECT_EQ(closest_match("batc", {"steps", "batch", "bats"}), "batch");
  EXPECT_EQ(closest_match("tp", {"to", "lr"}), "to");
}

TEST(ClosestMatchTest, ReturnsNothingIfNoWordIsClose) {
  EXPECT_EQ(closest_match("learning_rate", {"lr", "name", "eps"}), "");
  EXPECT_EQ(closest_match("x", {}), "");
  EXPECT_EQ(closest_match(std::string(100000, 'a'), {"a"}), "");
}

// A default would be an error of its keys, such as one about tokens to a user of images.
TEST(ConfigErrorsTest, RequiresModel) {
  const std::string hint =
      "model.name: is required; set it to the model to train, such as resnet18 for images, gpt for "
      "text, mlp for numbers, or exported for a PyTorch module";
  const auto errors = [](const std::string& text, const Flags& flags = {}) {
    return parse_config(text, "my.yaml", flags).status().message();
  };
  EXPECT_EQ(errors(kImageData), "my.yaml:1:1: " + hint);
  EXPECT_EQ(errors(kTextData), "my.yaml:1:1: " + hint);
  EXPECT_EQ(errors(kTextData + "model: {pretrained: {path: a}}\n"), "my.yaml:2:1: " + hint);
  EXPECT_EQ(errors(kTextData + "modle: {name: gpt}\n"),
            "my.yaml:2:1: unknown section 'modle'; did you mean 'model'?");
  EXPECT_EQ(errors(kTextData, {"model.name=gpt"}), "");
  EXPECT_EQ(errors("data: {train: {format: text}}\nmodel: {name: gpt}\n"),
            "my.yaml:1:8: data.train.path: is required; set it to the file or folder with the "
            "text, for example 'path: corpus.txt'");
}

}  // namespace
}  // namespace stoker::config::test
