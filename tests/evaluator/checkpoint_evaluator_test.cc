#include "evaluator/checkpoint_evaluator.h"

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <span>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/config/load_config.h"
#include "shared/data/dataset.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tokenizer_files.h"

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kConfig = R"(data:
  train: {format: synthetic, num_samples: 50, input_shape: [3], num_classes: 2, noise_std: 1}
  val: {format: synthetic, num_samples: 40, input_shape: [3], num_classes: 2, noise_std: 1}
  wider: {format: synthetic, num_samples: 40, input_shape: [4], num_classes: 2, noise_std: 1}
model: {name: mlp, hidden_sizes: [2]}
task: {name: classification}
eval: {datasets: [val, train], batch_size: 7}
)";

// Advances by one second on each call of monotonic().
class TickingClock : public ManualClock {
 public:
  std::chrono::nanoseconds monotonic() const override {
    const_cast<TickingClock*>(this)->advance(1s);
    return ManualClock::monotonic();
  }
};

class CheckpointEvaluatorTest : public ::testing::Test {
 protected:
  void SetUp() override { write_tensors("w.safetensors", small_mlp()); }

  // Of the model of kConfig.
  static std::vector<checkpoint::OwnedTensor> small_mlp() {
    return {checkpoint::make_tensor("0.weight", DType::kF32, {2, 3}, 1),
            checkpoint::make_tensor("0.bias", DType::kF32, {2}, 2),
            checkpoint::make_tensor("2.weight", DType::kF32, {2, 2}, 3),
            checkpoint::make_tensor("2.bias", DType::kF32, {2}, 4)};
  }
  // Of lstm_lm with hidden_size 4.
  static std::vector<checkpoint::OwnedTensor> small_lstm(int64_t vocab) {
    return {checkpoint::make_tensor("tok.weight", DType::kF32, {vocab, 4}, 1),
            checkpoint::make_tensor("lstm.weight_ih_l0", DType::kF32, {16, 4}, 2),
            checkpoint::make_tensor("lstm.weight_hh_l0", DType::kF32, {16, 4}, 3),
            checkpoint::make_tensor("lstm.bias_ih_l0", DType::kF32, {16}, 4),
            checkpoint::make_tensor("lstm.bias_hh_l0", DType::kF32, {16}, 5),
            checkpoint::make_tensor("head.weight", DType::kF32, {vocab, 4}, 6)};
  }
  void write_tensors(const std::string& name,
                     const std::vector<checkpoint::OwnedTensor>& tensors) const {
    ASSERT_TRUE(checkpoint::write_safetensors(default_file_system(), scratch_.path(), name,
                                              checkpoint::views_of(tensors), {})
                    .ok());
  }

  // Reads in this process unless `feed_program` is set.
  Result<std::unique_ptr<CheckpointEvaluator>> create(std::vector<std::string> options,
                                                      Clock& clock = system_clock(),
                                                      const std::string& feed_program = {}) const {
    if (feed_program.empty()) options.push_back("feed.num_processes=0");
    const auto config = config::parse_config(kConfig, "test.yaml", options);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return CheckpointEvaluator::create(*config, {.own = scratch_ / "index"}, clock, feed_program);
  }
  Result<run::EvalResult> measure(const std::vector<std::string>& options,
                                  Clock& clock = system_clock(), std::stop_token stop = {}) const {
    STOKER_ASSIGN_OR_RETURN(const auto evaluator, create(options, clock));
    return evaluator->measure_file(scratch_ / "w.safetensors", std::move(stop));
  }

  const test::TemporaryDirectory scratch_;
  uint64_t saved_step_ = 0;
};

TEST_F(CheckpointEvaluatorTest, ReportsMetricsOfDatasetsInConfiguredOrder) {
  const auto result = measure({});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  ASSERT_EQ(result->datasets.size(), 2u);
  EXPECT_EQ(result->datasets[0].dataset, "val");
  EXPECT_EQ(result->datasets[0].samples, 40u);
  EXPECT_EQ(result->datasets[1].dataset, "train");
  EXPECT_EQ(result->datasets[1].samples, 50u);
  EXPECT_EQ(result->datasets[0].metrics.front().first, "loss");
  EXPECT_EQ(result->datasets[0].classes.size(), 2u);
  EXPECT_EQ(result->datasets[0].confusion_matrix.size(), 2u);
  ASSERT_EQ(result->datasets[0].pr_curves.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const eval_metrics::PrCurve& curve = result->datasets[0].pr_curves[i];
    EXPECT_EQ(curve.name, result->datasets[0].classes[i].name);
    EXPECT_EQ(curve.true_positives.front(), result->datasets[0].classes[i].samples);
    EXPECT_EQ(curve.true_positives.front() + curve.false_positives.front(), 40u);
  }
}

TEST_F(CheckpointEvaluatorTest, DrawsNoInitialWeights) {
  // When a model is initialized, a pattern that applies to no parameter is an error.
  const auto evaluator = create({"model.init={\"fc.*\": zeros}"});
  EXPECT_TRUE(evaluator.ok()) << evaluator.status().to_string();
}

TEST_F(CheckpointEvaluatorTest, ReportsSameResultWithWorkerProcess) {
  const auto evaluator = create({}, system_clock(), FEED_PROGRAM);
  ASSERT_TRUE(evaluator.ok()) << evaluator.status().to_string();
  auto result = (*evaluator)->measure_file(scratch_ / "w.safetensors", {});
  auto expected = measure({});
  ASSERT_TRUE(result.ok() && expected.ok()) << result.status().to_string();
  result->seconds = expected->seconds = 0;
  result->created = expected->created = "";
  result->resources = expected->resources = {};
  EXPECT_EQ(run::to_json(*result), run::to_json(*expected));
}

TEST_F(CheckpointEvaluatorTest, CountsSampleThatCrashesItsWorkerProcess) {
  const auto evaluator =
      create({"data.crashes={format: synthetic, num_samples: 40, input_shape: [3], num_classes: 2}",
              "eval.datasets=[crashes, val]"},
             system_clock(), REQUEST_WORKER_TEST_PROGRAM);
  ASSERT_TRUE(evaluator.ok()) << evaluator.status().to_string();
  for (int evaluation = 0; evaluation < 2; ++evaluation) {
    const auto result = (*evaluator)->measure_file(scratch_ / "w.safetensors", {});
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->datasets[0].samples, 39u);
    EXPECT_EQ(result->datasets[0].quarantined, 1u);
    EXPECT_EQ(result->datasets[1].samples, 40u);
    EXPECT_EQ(result->datasets[1].quarantined, 0u);
    const auto& classes = result->datasets[0].classes;
    EXPECT_EQ(classes[0].samples + classes[1].samples, 39u);
  }
}

TEST_F(CheckpointEvaluatorTest, FailsIfEverySampleIsQuarantined) {
  const auto evaluator =
      create({"data.noise={format: synthetic, num_samples: 3, input_shape: [3], num_classes: 2}",
              "eval.datasets=[noise]"},
             system_clock(), REQUEST_WORKER_TEST_PROGRAM);
  ASSERT_TRUE(evaluator.ok()) << evaluator.status().to_string();
  const Status status = (*evaluator)->measure_file(scratch_ / "w.safetensors", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_EQ(status.message(), "dataset noise: every sample is quarantined");
}

TEST_F(CheckpointEvaluatorTest, ReportsLabelOutOfRangeOfWorkerProcess) {
  const auto evaluator = create(
      {"data.wrong_label={format: synthetic, num_samples: 3, input_shape: [3], num_classes: 2}",
       "eval.datasets=[wrong_label]"},
      system_clock(), REQUEST_WORKER_TEST_PROGRAM);
  ASSERT_TRUE(evaluator.ok()) << evaluator.status().to_string();
  const Status status = (*evaluator)->measure_file(scratch_ / "w.safetensors", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("there are 2 classes"), std::string::npos) << status.message();
}

// The EMA weights and the raw weights of this checkpoint differ.
TEST_F(CheckpointEvaluatorTest, EvaluatesConfiguredWeights) {
  const auto tensors = [](float first_bias) {
    std::vector<checkpoint::OwnedTensor> made = small_mlp();
    if (first_bias != 0) std::memcpy(made.back().bytes.data(), &first_bias, sizeof first_bias);
    return made;
  };
  const auto weights = tensors(2.0f), average = tensors(0.0f);  // the latter equals w.safetensors
  checkpoint::CheckpointContent content;
  content.manifest.live_settings = "{}";
  content.model = content.optim = content.state = checkpoint::views_of(weights);
  checkpoint::CheckpointStore store(scratch_ / "checkpoints", default_file_system());
  content.manifest.step = 1;
  ASSERT_TRUE(store.commit(content).ok());
  content.manifest.step = 2;
  content.ema = checkpoint::views_of(average);
  ASSERT_TRUE(store.commit(content).ok());
  const auto loss = [&](uint64_t step, const std::string& which) -> Result<double> {
    STOKER_ASSIGN_OR_RETURN(const auto evaluator,
                            create({"train.ema_decay=0.9", "eval.use_ema=" + which}));
    STOKER_ASSIGN_OR_RETURN(const auto saved,
                            checkpoint::CheckpointStore::open_verified(
                                scratch_ / "checkpoints" + "/" + store.checkpoint_name(step)));
    STOKER_ASSIGN_OR_RETURN(const auto result, evaluator->measure(saved, {}));
    EXPECT_EQ(result.maybe_use_ema, which == "true");
    return result.datasets.front().metrics.front().second;
  };
  const double of_average = measure({})->datasets.front().metrics.front().second;
  EXPECT_EQ(*loss(2, "true"), of_average);
  EXPECT_NE(*loss(2, "false"), of_average);
  EXPECT_EQ(*loss(2, "false"), *loss(1, "false"));
  EXPECT_EQ(loss(1, "true").status().code(), StatusCode::kMismatch);
  EXPECT_NE(loss(1, "true").status().message().find("set eval.use_ema: false"), std::string::npos);
}

// The model has three classes; the evaluated dataset lacks the second one.
TEST_F(CheckpointEvaluatorTest, UsesClassesOfTrainingData) {
  const auto write = [&](const std::string& name, const std::string& rows) {
    ASSERT_TRUE(
        write_file_atomically(default_file_system(), scratch_ / (name + ".csv"), "x,kind\n" + rows)
            .ok());
  };
  write("train", "1,cat\n2,cow\n3,dog\n");
  write("val", "1,dog\n2,dog\n3,cat\n");
  write_tensors("three.safetensors", {checkpoint::make_tensor("0.weight", DType::kF32, {3, 1}, 1),
                                      checkpoint::make_tensor("0.bias", DType::kF32, {3}, 2)});
  const std::string dataset = ".csv, fields: {label: kind}}\n";
  const auto config = config::parse_config(
      "data:\n  train: {format: csv, path: " + (scratch_ / "train") + dataset +
          "  val: {format: csv, path: " + (scratch_ / "val") + dataset +
          "model: {name: mlp, hidden_sizes: []}\ntask: {name: classification}\n",
      "test.yaml", {});
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_TRUE(data::pipeline::open_dataset("train", config->data, scratch_ / "index", {}).ok());
  const auto evaluator =
      CheckpointEvaluator::create(*config, {.own = scratch_ / "eval", .train = scratch_ / "index"},
                                  system_clock(), FEED_PROGRAM);
  ASSERT_TRUE(evaluator.ok()) << evaluator.status().to_string();
  const auto result = (*evaluator)->measure_file(scratch_ / "three.safetensors", {});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  const auto& classes = result->datasets.front().classes;
  ASSERT_EQ(classes.size(), 3u);
  EXPECT_EQ(classes[0].name, "cat");
  EXPECT_EQ(classes[0].samples, 1u);
  EXPECT_EQ(classes[1].samples, 0u);
  EXPECT_EQ(classes[2].name, "dog");
  EXPECT_EQ(classes[2].samples, 2u);
}

// Balanced weights are computed when the run starts and are stored only in its checkpoints.
TEST_F(CheckpointEvaluatorTest, UsesBalancedClassWeightsOfCheckpoint) {
  const auto loss_of = [&](const std::vector<double>& weights,
                           const std::string& setting) -> Result<double> {
    const std::vector<checkpoint::OwnedTensor> tensors = small_mlp();
    checkpoint::CheckpointContent content;
    content.manifest.live_settings = "{}";
    content.manifest.step = ++saved_step_;
    content.model = content.optim = content.state = checkpoint::views_of(tensors);
    if (!weights.empty())
      content.state.push_back(
          {{"class_weights", DType::kF64, {2}}, std::as_bytes(std::span(weights))});
    checkpoint::CheckpointStore store(scratch_ / "checkpoints", default_file_system());
    EXPECT_TRUE(store.commit(content).ok());
    STOKER_ASSIGN_OR_RETURN(const auto evaluator, create({"task.class_weights=" + setting}));
    STOKER_ASSIGN_OR_RETURN(const auto saved, store.open_newest({}));
    STOKER_ASSIGN_OR_RETURN(const auto result, evaluator->measure(saved, {}));
    return result.datasets.front().metrics.front().second;
  };
  EXPECT_EQ(*loss_of({0.25, 3}, "balanced"), *loss_of({}, "[0.25, 3]"));
  EXPECT_NE(*loss_of({0.25, 3}, "balanced"), *loss_of({0.25, 3}, "null"));
  const Status without = loss_of({}, "balanced").status();
  EXPECT_EQ(without.code(), StatusCode::kMismatch);
  EXPECT_NE(without.message().find("has no class weights"), std::string::npos);
  const Status of_file = measure({"task.class_weights=balanced"}).status();
  EXPECT_EQ(of_file.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(of_file.message().find("give the checkpoint's folder"), std::string::npos);
}

TEST_F(CheckpointEvaluatorTest, ReportsFileOfOutOfVocabToken) {
  const std::string file = scratch_ / "t.bin";
  const std::vector<uint16_t> tokens{1, 2, 3, 4, 5, 600, 7, 8, 9};
  ASSERT_TRUE(write_file_atomically(
                  default_file_system(), file,
                  {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(uint16_t)})
                  .ok());
  const std::string dataset = ": {format: tokens, path: " + file + "}\n";
  const auto config = config::parse_config(
      "data:\n  train" + dataset + "  val" + dataset +
          "model: {name: lstm_lm, hidden_size: 4, context_length: 4, vocab_size: 100}\n",
      "test.yaml", {});
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto evaluator = CheckpointEvaluator::create(*config, {.own = scratch_ / "eval"},
                                                     system_clock(), FEED_PROGRAM);
  ASSERT_TRUE(evaluator.ok()) << evaluator.status().to_string();
  write_tensors("lstm.safetensors", small_lstm(100));
  const Status rejected = (*evaluator)->measure_file(scratch_ / "lstm.safetensors", {}).status();
  EXPECT_NE(rejected.message().find("dataset val: " + file), std::string::npos)
      << rejected.message();
  EXPECT_NE(rejected.message().find("token 600"), std::string::npos) << rejected.message();
}

TEST_F(CheckpointEvaluatorTest, EvaluatesFilesOfTokensOfTheTokenizer) {
  const auto write = [&](const std::string& name, const std::string& content) {
    ASSERT_TRUE(write_file_atomically(default_file_system(), scratch_ / name, content).ok());
  };
  write("t.json", test::to_json(test::small_tokenizer()));
  write("a.txt", "to be or not to be");
  const auto evaluate = [&](uint16_t last) {
    const std::vector<uint16_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, last};
    write("t.bin",
          {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(uint16_t)});
    const auto config =
        config::parse_config("data:\n  train: {format: text, path: " + (scratch_ / "a.txt") +
                                 ", tokenizer: {path: " + (scratch_ / "t.json") +
                                 "}}\n  val: {format: tokens, path: " + (scratch_ / "t.bin") +
                                 "}\nmodel: {name: lstm_lm, hidden_size: 4, context_length: 4}\n",
                             "test.yaml", {"feed.num_processes=0"});
    EXPECT_TRUE(config.ok()) << config.status().message();
    const auto evaluator =
        CheckpointEvaluator::create(*config, {.own = scratch_ / "eval"}, system_clock());
    EXPECT_TRUE(evaluator.ok()) << evaluator.status().to_string();
    return evaluator.ok() ? (*evaluator)->measure_file(scratch_ / "lstm.safetensors", {}).status()
                          : evaluator.status();
  };
  write_tensors("lstm.safetensors", small_lstm(261));
  EXPECT_TRUE(evaluate(260).ok()) << evaluate(260).to_string();
  EXPECT_NE(evaluate(261).message().find("token 261"), std::string::npos)
      << evaluate(261).to_string();
}

// By a language model over bytes with random weights.
TEST_F(CheckpointEvaluatorTest, GeneratesTextWithConfiguredSampling) {
  ASSERT_TRUE(
      write_file_atomically(default_file_system(), scratch_ / "a.txt", "to be or not").ok());
  std::mt19937 random(1);
  std::vector<checkpoint::OwnedTensor> tensors;
  for (const auto& [name, shape] :
       std::map<std::string, std::vector<int64_t>>{{"tok.weight", {256, 4}},
                                                   {"lstm.weight_ih_l0", {16, 4}},
                                                   {"lstm.weight_hh_l0", {16, 4}},
                                                   {"lstm.bias_ih_l0", {16}},
                                                   {"lstm.bias_hh_l0", {16}},
                                                   {"head.weight", {256, 4}}}) {
    std::vector<float> values;
    for (int64_t i = 0; i < shape[0] * (shape.size() == 2 ? shape[1] : 1); ++i)
      values.push_back((static_cast<float>(random() % 2001) - 1000) /
                       (name[0] == 'h' ? 100.0f : 500.0f));
    const auto bytes = std::as_bytes(std::span(values));
    tensors.push_back({{name, DType::kF32, shape}, {bytes.begin(), bytes.end()}});
  }
  checkpoint::CheckpointContent content;
  content.manifest.live_settings = "{}";
  content.manifest.step = 1;
  content.model = content.optim = content.state = checkpoint::views_of(tensors);
  checkpoint::CheckpointStore store(scratch_ / "checkpoints", default_file_system());
  ASSERT_TRUE(store.commit(content).ok());
  const auto saved = store.open_newest({});
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  const auto generated = [&](const std::string& option) {
    const std::string dataset = "{format: text, path: " + (scratch_ / "a.txt") + "}";
    const auto config = config::parse_config(
        "data: {train: " + dataset + ", val: " + dataset +
            "}\nmodel: {name: lstm_lm, hidden_size: 4, context_length: 4}\n"
            "eval: {generate: {max_new_tokens: 60, prompt: to, temperature: 1, "
            "top_k: null}}\n",
        "test.yaml", {"feed.num_processes=0", option});
    EXPECT_TRUE(config.ok()) << config.status().message();
    const auto evaluator =
        CheckpointEvaluator::create(*config, {.own = scratch_ / "eval"}, system_clock());
    EXPECT_TRUE(evaluator.ok()) << evaluator.status().to_string();
    const auto evaluation = (*evaluator)->evaluate(*saved, {});
    EXPECT_TRUE(evaluation.ok()) << evaluation.status().to_string();
    return evaluation.ok() && evaluation->artifacts.size() == 1 ? evaluation->artifacts[0].bytes
                                                                : std::string();
  };
  const std::string sampled = generated("run.seed=1");
  EXPECT_EQ(sampled.size(), 62u);
  EXPECT_EQ(sampled.substr(0, 2), "to");
  EXPECT_EQ(sampled, generated("run.seed=1"));
  EXPECT_NE(sampled, generated("run.seed=2"));
  EXPECT_NE(sampled, generated("eval.generate.temperature=2"));
  const std::string greedy = generated("eval.generate.temperature=0");
  EXPECT_NE(sampled, greedy);
  EXPECT_EQ(greedy, generated("eval.generate.top_k=1"));
  EXPECT_EQ(greedy, generated("eval.generate.top_p=0.01"));
}

TEST_F(CheckpointEvaluatorTest, RejectsCheckpointOfTokenizerThatIsNotConfigured) {
  std::vector<checkpoint::OwnedTensor> tensors;
  tensors.push_back(checkpoint::make_tensor("0.weight", DType::kF32, {2, 3}, 1));
  checkpoint::CheckpointContent content;
  content.manifest.live_settings = "{}";
  content.manifest.step = 1;
  content.manifest.tokenizer = std::string(64, 'a');
  content.model = content.optim = content.state = checkpoint::views_of(tensors);
  checkpoint::CheckpointStore store(scratch_ / "checkpoints", default_file_system());
  ASSERT_TRUE(store.commit(content).ok());
  const auto evaluator = create({});
  ASSERT_TRUE(evaluator.ok());
  const auto saved = store.open_newest({});
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  const Status rejected = (*evaluator)->measure(*saved, {}).status();
  EXPECT_EQ(rejected.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(rejected.message().find("was trained with another data.train.tokenizer.path, SHA-256 "
                                    "aaaaaaaaaaaa; the configuration had none"),
            std::string::npos)
      << rejected.message();
}

// The mean squared error of a linear layer with weights 2 and -1 and bias 0.5 behind a layer that computes
// something else in training, on four samples, compared with that of the formula.
TEST_F(CheckpointEvaluatorTest, EvaluatesWithoutDropoutAndWithRunningStatistics) {
  struct Sample {
    double a, b, y;
  };
  const std::vector<Sample> samples{{1, 2, 1}, {3, -1, 2}, {0, 4, -3}, {-2, 5, 0.5}};
  std::string rows = "a,b,y\n";
  for (const auto& [a, b, y] : samples)
    rows += std::to_string(a) + "," + std::to_string(b) + "," + std::to_string(y) + "\n";
  ASSERT_TRUE(write_file_atomically(default_file_system(), scratch_ / "samples.csv", rows).ok());
  const auto floats = [](const std::string& name, std::vector<int64_t> shape,
                         const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return checkpoint::OwnedTensor{{name, DType::kF32, std::move(shape)},
                                   {bytes.begin(), bytes.end()}};
  };
  const std::vector<checkpoint::OwnedTensor> linear{floats("1.weight", {1, 2}, {2, -1}),
                                                    floats("1.bias", {1}, {0.5})};
  const auto loss_with = [&](const std::string& layer,
                             std::vector<checkpoint::OwnedTensor> tensors) {
    tensors.insert(tensors.end(), linear.begin(), linear.end());
    const std::string file = layer.substr(0, 5) + ".safetensors";
    write_tensors(file, tensors);
    const std::string dataset = ": {format: csv, path: " + (scratch_ / "samples.csv") +
                                ", fields: {input: [a, b], target: [y]}}\n";
    const auto config = config::parse_config("data:\n  train" + dataset + "  val" + dataset +
                                                 "model: {name: sequential, layers: [" + layer +
                                                 ", linear]}\ntask: {name: regression}\n",
                                             "test.yaml", {"feed.num_processes=0"});
    EXPECT_TRUE(config.ok()) << config.status().message();
    const auto evaluator =
        CheckpointEvaluator::create(*config, {.own = scratch_ / "eval"}, system_clock());
    EXPECT_TRUE(evaluator.ok()) << evaluator.status().to_string();
    const auto result = (*evaluator)->measure_file(scratch_ / file, {});
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->datasets.front().metrics.front().first, "loss");
    return result->datasets.front().metrics.front().second;
  };
  const auto loss_of_formula = [&](const auto& first, const auto& second) {
    double sum = 0;
    for (const auto& [a, b, y] : samples) sum += std::pow(2 * first(a) - second(b) + 0.5 - y, 2);
    return sum / static_cast<double>(samples.size());
  };
  const auto unchanged = [](double value) { return value; };
  EXPECT_NEAR(loss_with("dropout: {p: 0.5}", {}), loss_of_formula(unchanged, unchanged), 1e-5);
  // Running means 1 and 2, variances 4 and 9, weights 3 and 0.5, biases -1 and 2.
  const int64_t num_batches = 7;
  const auto bytes = std::as_bytes(std::span(&num_batches, 1));
  const double of_norm = loss_with(
      "batch_norm", {floats("0.weight", {2}, {3, 0.5}),
                     floats("0.bias", {2}, {-1, 2}),
                     floats("0.running_mean", {2}, {1, 2}),
                     floats("0.running_var", {2}, {4, 9}),
                     {{"0.num_batches_tracked", DType::kI64, {}}, {bytes.begin(), bytes.end()}}});
  EXPECT_NEAR(of_norm,
              loss_of_formula([](double a) { return 3 * (a - 1) / std::sqrt(4 + 1e-5) - 1; },
                              [](double b) { return 0.5 * (b - 2) / std::sqrt(9 + 1e-5) + 2; }),
              1e-4);
}

TEST_F(CheckpointEvaluatorTest, LimitsSamplesToConfiguredMaximum) {
  EXPECT_EQ(measure({"eval.max_samples=9"})->datasets[1].samples, 9u);
  EXPECT_EQ(measure({"eval.max_samples=45"})->datasets[0].samples, 40u);
}

TEST_F(CheckpointEvaluatorTest, TimesOutWithProgressInMessage) {
  TickingClock clock;
  const auto result = measure({"eval.timeout_seconds=3"}, clock);
  EXPECT_EQ(result.status().code(), StatusCode::kTimedOut);
  EXPECT_NE(result.status().message().find("of 40 of val"), std::string::npos)
      << result.status().message();
}

TEST_F(CheckpointEvaluatorTest, DoesNotCountPausesBetweenBatches) {
  TickingClock clock;
  auto evaluator = create({"eval.timeout_seconds=3"}, clock);
  ASSERT_TRUE(evaluator.ok());
  int pauses = 0;
  (*evaluator)->pause_between_batches([&](const std::stop_token&) {
    ++pauses;
    return 1h;
  });
  const auto result = (*evaluator)->measure_file(scratch_ / "w.safetensors", {});
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(pauses, 6 + 8) << "batches of 7 of 40 and 50 samples";
}

TEST_F(CheckpointEvaluatorTest, CancelsAfterPauseOnStop) {
  std::stop_source stop;
  auto evaluator = create({});
  ASSERT_TRUE(evaluator.ok());
  (*evaluator)->pause_between_batches([&](const std::stop_token& seen) {
    EXPECT_FALSE(seen.stop_requested()) << "a batch after the stop";
    stop.request_stop();
    return 0h;
  });
  EXPECT_EQ(
      (*evaluator)->measure_file(scratch_ / "w.safetensors", stop.get_token()).status().code(),
      StatusCode::kCancelled);
}

TEST_F(CheckpointEvaluatorTest, CancelsBeforeNextBatchOnStop) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(measure({}, system_clock(), stop.get_token()).status().code(), StatusCode::kCancelled);
}

TEST_F(CheckpointEvaluatorTest, RejectsDatasetsWithDifferentInputs) {
  const auto rejected = create({"eval.datasets=[val, wider]"});
  EXPECT_EQ(rejected.status().code(), StatusCode::kMismatch);
  EXPECT_NE(rejected.status().message().find("val has input F32 [3]"), std::string::npos)
      << rejected.status().message();
  EXPECT_EQ(create({"eval.datasets=[]"}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(CheckpointEvaluatorTest, RejectsWeightsOfAnotherModelAndEvaluatesNext) {
  write_tensors("bad.safetensors", {});
  const auto evaluator = create({});
  ASSERT_TRUE(evaluator.ok());
  const auto rejected = (*evaluator)->measure_file(scratch_ / "bad.safetensors", {});
  EXPECT_EQ(rejected.status().code(), StatusCode::kMismatch);
  EXPECT_NE(rejected.status().message().find("missing 0.weight"), std::string::npos)
      << rejected.status().message();
  EXPECT_TRUE((*evaluator)->measure_file(scratch_ / "w.safetensors", {}).ok());
}

}  // namespace
}  // namespace stoker::evaluator
