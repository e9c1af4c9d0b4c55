// Runs with a plugin as model.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/safetensors.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using ::testing::ElementsAre;

class UserModelTest : public RunTest {
 protected:
  std::string config_with(const std::string& model) const {
    std::string text = small_config();
    const std::string mlp = "model: {name: mlp, hidden_sizes: [32], dropout: 0.1}\n";
    text.replace(text.find(mlp), mlp.size(), "model: " + model + "\n");
    // A schedule that does not depend on max_steps, so that a resumed run computes the same as an
    // uninterrupted one.
    const std::string cosine = "scheduler: {name: cosine, warmup_steps: 10, min_lr: 0.0001}\n";
    text.replace(text.find(cosine), cosine.size(), "scheduler: {name: constant}\n");
    return write_config(text);
  }
  std::string plugin_config() const {
    fs::copy_file(STOKER_PLUGINS "/gated_mlp.so", path("m.so"));
    return config_with("{name: plugin, path: " + path("m.so") +
                       ", args: {width: 16, blocks: 1, dropout: 0.1}}");
  }
  int evaluate(const std::string& run, const std::vector<std::string>& more = {}) const {
    const auto exit = evaluator(run, joined({"--once"}, more)).wait(90s);
    return exit ? exit->code : -1;
  }

  // An interrupted run of 80 steps ends with the same bytes as an uninterrupted one and is
  // evaluated.
  void expect_exact_resume(const std::string& config) {
    const std::vector<std::string> half{"--set", "train.max_steps=40"};
    const std::vector<std::string> all{"--set", "train.max_steps=80"};
    ASSERT_EQ(train(config, run_dir("uninterrupted"), all).code, 0) << log_of("stokerd");
    ASSERT_EQ(train(config, run_dir(), half).code, 0);
    ASSERT_EQ(train(config, run_dir(), all).code, 0) << log_of("stokerd");
    EXPECT_EQ(model_sha256(run_dir(), 80), model_sha256(run_dir("uninterrupted"), 80));
    EXPECT_NE(model_sha256(run_dir(), 40), model_sha256(run_dir(), 80));
    EXPECT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
    EXPECT_NE(text_of(run_dir() + "/eval/step-000000080.json").find("accuracy"), std::string::npos);
    Process exporter =
        ctl(run_dir(), {"export", "80", "--output", path("out.pt"), "--format", "torch"}, "ctl");
    EXPECT_EQ(exporter.wait(30s)->code, 0) << log_of("ctl");
  }

  // The model file changes after 40 steps.
  void expect_other_file_rejected(const std::string& config, const std::string& file) {
    ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=40"}).code, 0)
        << log_of("stokerd");
    std::ofstream(file + ".new", std::ios::binary) << text_of(file) << "\n";
    fs::rename(file + ".new", file);
    EXPECT_EQ(evaluate(run_dir(), {"--set", "eval.max_attempts=1"}), 78);
    EXPECT_NE(log_of("stoker-eval").find("was trained with another model.path, SHA-256"),
              std::string::npos)
        << log_of("stoker-eval");
    EXPECT_EQ(train(config, run_dir(), {"--set", "train.max_steps=80"}).code, 78);
    EXPECT_NE(log_of("stokerd").find("model.path: sum of the file"), std::string::npos)
        << log_of("stokerd");
    EXPECT_NE(log_of("stokerd").find("--allow-model-change"), std::string::npos);
    EXPECT_EQ(
        train(config, run_dir(), {"--set", "train.max_steps=80", "--allow-model-change"}).code, 0)
        << log_of("stokerd");
    EXPECT_EQ(newest_step(run_dir()), 80u);
    EXPECT_EQ(train(config, run_dir(), {"--set", "train.max_steps=90"}).code, 0)
        << "the run has become that of the new file: " << log_of("stokerd");
  }
};

// y = 2 a - b, with a number per row that weights it; the plugin finds that.
TEST_F(UserModelTest, TrainsAndEvaluatesPluginWithItsOwnLossAndMetric) {
  std::ofstream table(path("data.csv"));
  table << "a,b,importance,y\n";
  for (int i = 0; i < 64; ++i) {
    const double a = i % 7 / 7.0, b = i % 5 / 5.0;
    table << a << ',' << b << ',' << 1 + i % 3 << ',' << 2 * a - b << '\n';
  }
  table.close();
  for (const char* const name : {"step_plugin.so", "step_plugin.metrics.json"})
    fs::copy_file(std::string(STOKER_PLUGINS "/") + name, path(name));
  const std::string data = "{format: csv, path: " + path("data.csv") +
                           ", fields: {input: [a, b], others: [importance, y]}}";
  const std::string config = write_config(
      "data: {train: " + data + ", val: " + data +
      "}\nmodel: {name: plugin, path: " + path("step_plugin.so") +
      "}\ntask: {name: custom}\noptimizer: {name: adam, lr: 0.05}\n"
      "scheduler: {name: constant}\neval: {monitor: absolute_error, batch_size: 7}\n"
      "train: {max_steps: 400, micro_batch_size: 4, gradient_accumulation_steps: 2, device: cpu, "
      "num_threads: 1}\n");
  ASSERT_EQ(train(config, run_dir(), {}).code, 0) << log_of("stokerd");
  EXPECT_NE(text_of(run_dir() + "/metrics/train.jsonl").find("\"absolute_error\":"),
            std::string::npos);
  ASSERT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
  const run::DatasetResult result = newest_result(run_dir());
  ASSERT_EQ(result.metrics.size(), 2u);
  EXPECT_EQ(result.metrics[1].first, "absolute_error");
  EXPECT_LT(result.metrics[1].second, 0.02);
  EXPECT_NE(text_of(run_dir() + "/eval/best.json").find("\"metric\":\"absolute_error\""),
            std::string::npos);
}

// Every sample has x = 1 and y = 10, so that the gradient of the mean squared error is 2 (w + b - 10) for w and for b.
class UnusedParameterRunTest : public UserModelTest {
 protected:
  static constexpr int kSteps = 12;
  static constexpr double kRate = 0.02, kDecay = 0.5;

  void train_with(const std::string& optimizer, int micro_batches) {
    std::ofstream(path("data.csv")) << "x,y\n1,10\n1,10\n1,10\n1,10\n";
    const std::string config = write_config(
        "data: {train: {format: csv, path: " + path("data.csv") +
        ", fields: {input: [x], target: [y]}}}\ntask: {name: regression}\n"
        "model: {name: plugin, path: " STOKER_PLUGINS
        "/odd_plugin.so, args: {does: unused parameter}}\n"
        "optimizer: {name: " +
        optimizer + ", lr: " + std::to_string(kRate) + ", weight_decay: " + std::to_string(kDecay) +
        "}\nscheduler: {name: constant, warmup_steps: 0}\n"
        "checkpoint: {save_at_start: true}\n"
        "train: {max_steps: " +
        std::to_string(kSteps) +
        ", micro_batch_size: 2, max_grad_norm: null, "
        "gradient_accumulation_steps: " +
        std::to_string(micro_batches) + ", device: cpu, num_threads: 1}\n");
    fs::remove_all(run_dir());
    ASSERT_EQ(train(config, run_dir()).code, 0) << log_of("stokerd");
    ASSERT_EQ(newest_step(run_dir()), static_cast<uint64_t>(kSteps));
  }
  // Before the first step, or of the newest checkpoint.
  std::vector<float> values(bool is_initial, const std::string& name) const {
    const std::string folder =
        is_initial ? run_dir() + "/checkpoints/step-000000000" : newest_checkpoint(run_dir());
    const auto file = checkpoint::SafetensorsFile::open(folder + "/model.safetensors");
    if (!file.ok()) throw std::runtime_error(file.status().to_string());
    const TensorSpec* const spec = (*file)->find(name);
    std::vector<float> result(spec == nullptr ? 0 : static_cast<size_t>(spec->elements()));
    EXPECT_TRUE((*file)->read(name, std::as_writable_bytes(std::span(result))).ok()) << name;
    return result;
  }
  // `update` changes a parameter by its gradient in a step from 1.
  template <typename Update>
  void expect_updates(Update update) const {
    double weight = values(true, "linear.weight").at(0), bias = values(true, "linear.bias").at(0);
    decltype(update) of_bias = update;
    for (int step = 1; step <= kSteps; ++step) {
      const double gradient = 2 * (weight + bias - 10);
      weight = update(weight, gradient, step);
      bias = of_bias(bias, gradient, step);
    }
    EXPECT_NEAR(values(false, "linear.weight").at(0), weight, 1e-5);
    EXPECT_NEAR(values(false, "linear.bias").at(0), bias, 1e-5);
    EXPECT_THAT(values(true, "unused"), ElementsAre(2, 2, 2));
    EXPECT_THAT(values(false, "unused"), ElementsAre(2, 2, 2));
  }
};

// As PyTorch's optimizers, for which the gradient of such a parameter is None.
TEST_F(UnusedParameterRunTest, KeepsValueWhileOthersDecay) {
  for (const int micro_batches : {1, 2}) {
    SCOPED_TRACE(micro_batches);
    ASSERT_NO_FATAL_FAILURE(train_with("sgd", micro_batches));
    expect_updates([](double value, double gradient, int) {
      return value - kRate * (gradient + kDecay * value);
    });
    ASSERT_NO_FATAL_FAILURE(train_with("adamw, betas: [0.9, 0.95], eps: 1.0e-8", micro_batches));
    // Algorithm 2 of "Decoupled Weight Decay Regularization" (Loshchilov and Hutter, 2019), as torch.optim.AdamW has it.
    expect_updates([mean = 0.0, square = 0.0](double value, double gradient, int step) mutable {
      mean = 0.9 * mean + 0.1 * gradient;
      square = 0.95 * square + 0.05 * gradient * gradient;
      const double corrected = mean / (1 - std::pow(0.9, step));
      const double root = std::sqrt(square / (1 - std::pow(0.95, step)));
      return value * (1 - kRate * kDecay) - kRate * corrected / (root + 1e-8);
    });
  }
}

TEST_F(UserModelTest, TrainsResumesEvaluatesAndExportsPlugin) {
  expect_exact_resume(plugin_config());
}

TEST_F(UserModelTest, RejectsReplacedPluginUnlessAllowed) {
  expect_other_file_rejected(plugin_config(), path("m.so"));
}

TEST_F(UserModelTest, AcceptsMovedPlugin) {
  const std::string config = plugin_config();
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=40"}).code, 0);
  fs::rename(path("m.so"), path("elsewhere.so"));
  EXPECT_EQ(train(config, run_dir(),
                  {"--set", "train.max_steps=50", "--set", "model.path=" + path("elsewhere.so")})
                .code,
            0)
      << log_of("stokerd");
}

TEST_F(UserModelTest, LoadsPluginInTrainerOnly) {
  const std::string config = plugin_config();
  Process trainer = this->trainer(config, run_dir(), {"--set", "train.max_steps=1000000"});
  ASSERT_TRUE(wait_until(60s, [&] { return newest_step(run_dir()) > 0; })) << log_of("stokerd");
  const auto maps_of = [](pid_t pid) { return text_of("/proc/" + std::to_string(pid) + "/maps"); };
  EXPECT_NE(maps_of(trainer.pid()).find("m.so"), std::string::npos);
  const std::vector<pid_t> workers = children_of(trainer.pid(), "stoker-feed");
  ASSERT_FALSE(workers.empty());
  for (const pid_t worker : workers) {
    const std::string maps = maps_of(worker);
    EXPECT_NE(maps.find("stoker-feed"), std::string::npos);
    EXPECT_EQ(maps.find("/m.so"), std::string::npos);
    EXPECT_EQ(maps.find("libtorch"), std::string::npos);
  }
}

TEST_F(UserModelTest, RejectsUnusablePluginWithOneLineAtStart) {
  const std::string config = plugin_config();
  EXPECT_EQ(train(config, run_dir(), {"--set", "model.args.widht=3"}).code, 78);
  EXPECT_NE(log_of("stokerd").find("unused keys in model.args: widht"), std::string::npos)
      << log_of("stokerd");
  EXPECT_EQ(train(config, run_dir(), {"--set", "model.path=" + path("none.so")}).code, 78);
  EXPECT_NE(log_of("stokerd").find("none.so: No such file"), std::string::npos);
  EXPECT_TRUE(checkpoints(run_dir()).empty());
}

// Predicted tokens must be valid output indices. Workers check this and report file and position.
TEST_F(UserModelTest, FailsRunWithFileOnTokenWithoutPluginOutput) {
  fs::copy_file(STOKER_PLUGINS "/odd_plugin.so", path("m.so"));
  std::string tokens;
  for (int i = 0; i < 4000; ++i) tokens += {static_cast<char>(i % 90), i % 400 == 7 ? '\1' : '\0'};
  std::ofstream(path("tokens.bin"), std::ios::binary) << tokens;
  const std::string config = write_config(
      "data: {train: {format: tokens, sequence: {block_size: 8}, path: " + path("tokens.bin") +
      "}}\nmodel: {name: plugin, num_classes: 90, args: {does: per-token output}, path: " +
      path("m.so") +
      "}\ntrain: {max_steps: 1000000, micro_batch_size: 4, device: cpu, num_threads: 1}\n");
  EXPECT_EQ(train(config, run_dir()).code, 65);
  EXPECT_NE(log_of("stokerd").find("tokens.bin"), std::string::npos) << log_of("stokerd");
  EXPECT_NE(log_of("stokerd").find("model.num_classes is 90, so tokens are from 0 to 89"),
            std::string::npos)
      << log_of("stokerd");
}

// Tokens that are only read are checked by the plugin, because its vocabulary can differ from the
// number of its outputs.
TEST_F(UserModelTest, FailsRunAsMismatchOnTokenOutsidePluginEmbedding) {
  fs::copy_file(STOKER_PLUGINS "/odd_plugin.so", path("m.so"));
  std::ofstream rows(path("rows.jsonl"));
  for (int i = 0; i < 64; ++i)
    rows << R"({"words": [1, 2, )" << (i == 40 ? 77 : 3) << R"(], "kind": )" << i % 3 << "}\n";
  rows.close();
  const std::string config = write_config(
      "data: {train: {format: jsonl, fields: {input_ids: words, label: kind}, sequence: "
      "{max_length: 3}, "
      "path: " +
      path("rows.jsonl") + "}}\ntask: {name: classification}\n" +
      "model: {name: plugin, args: {does: ten tokens}, path: " + path("m.so") +
      "}\ntrain: {max_steps: 100, micro_batch_size: 16, device: cpu, num_threads: 1}\n");
  EXPECT_EQ(train(config, run_dir()).code, 78);
  EXPECT_NE(log_of("stokerd").find(
                "outside the vocabulary of the model in model.path; its tokens are from 1 "
                "to 77"),
            std::string::npos)
      << log_of("stokerd");
}

}  // namespace
}  // namespace stoker::test
