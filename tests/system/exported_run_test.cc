// Runs of Python modules that were exported with their loss: model.name: exported.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/safetensors.h"
#include "tests/support/python_script.h"
#include "tests/support/reserved_port.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ExportedRunTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    if (!fs::exists(std::string(STOKER_EXPORTED) + "/names"))
      GTEST_SKIP() << "there are no modules: StokerExport.Zoo needs a Python with PyTorch";
    config_ = config_with(exported("mlp"));
  }
  static std::string exported(const std::string& module) {
    return "{name: exported, path: " STOKER_EXPORTED "/" + module + "}";
  }
  static void replace(std::string& text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  std::string config_with(const std::string& model, const std::string& name = "config.yaml") const {
    std::string text = small_config();
    replace(text, "max_steps: 400", "max_steps: 80");
    replace(text, "{name: mlp, hidden_sizes: [32], dropout: 0.1}", model);
    replace(text, "{name: cosine, warmup_steps: 10, min_lr: 0.0001}", "{name: constant}");
    return write_config(text, name);
  }
  int evaluate(const std::string& run) const {
    const auto exit = evaluator(run, {"--once"}).wait(90s);
    return exit ? exit->code : -1;
  }
  static std::map<std::string, double> metrics_of(const std::string& run) {
    const run::DatasetResult result = newest_result(run);
    return {result.metrics.begin(), result.metrics.end()};
  }
  // F32 tensors of a file.
  static std::map<std::string, std::vector<float>> tensors_of(const std::string& file) {
    const auto opened = checkpoint::SafetensorsFile::open(file);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    std::map<std::string, std::vector<float>> tensors;
    for (const TensorSpec& spec : (*opened)->tensors()) {
      if (spec.dtype != DType::kF32) continue;
      std::vector<float>& values = tensors[spec.name];
      values.resize(static_cast<size_t>(spec.elements()));
      EXPECT_TRUE((*opened)->read(spec.name, std::as_writable_bytes(std::span(values))).ok());
    }
    return tensors;
  }
  static double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double largest = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
    return largest;
  }
  // Kills a run after a checkpoint was saved, repeatedly: it ends with the bytes of one that is not
  // disturbed.
  void expect_same_bytes_after_kills(const std::string& config, int kills) const {
    const auto train_until = [&](uint64_t step, const std::string& run) {
      return train(config, run, {"--set", "train.max_steps=" + std::to_string(step)});
    };
    for (int kill = 0; kill < kills; ++kill) {
      const Progress before = progress_of(run_dir());
      Process trainer = this->trainer(config, run_dir(), {"--set", "train.max_steps=100000000"});
      const auto ended = wait_for(KillPoint::kCheckpointSaved, trainer, run_dir(), before);
      ASSERT_FALSE(ended) << log_of("stokerd");
      ASSERT_TRUE(trainer.kill());
    }
    const uint64_t last = newest_step(run_dir()) + 7;
    ASSERT_EQ(train_until(last, run_dir()).code, 0) << log_of("stokerd");
    ASSERT_EQ(train_until(last, run_dir("undisturbed")).code, 0) << log_of("stokerd");
    EXPECT_EQ(model_sha256(run_dir(), last), model_sha256(run_dir("undisturbed"), last));
    EXPECT_EQ(deterministic_records(run_dir()), deterministic_records(run_dir("undisturbed")));
    std::cout << "exact: exported: " << kills << " kills, " << last << " steps\n";
  }
  std::string error_with(const std::vector<std::string>& changes) const {
    std::vector<std::string> arguments;
    for (const std::string& change : changes) {
      arguments.emplace_back("--set");
      arguments.push_back(change);
    }
    EXPECT_EQ(train(config_, run_dir("rejected"), arguments).code, 78) << log_of("stokerd");
    EXPECT_TRUE(checkpoints(run_dir("rejected")).empty());
    return log_of("stokerd");
  }

  std::string config_;
  const ReservedPort port_;
};

// With dropout, batch norm, a tied weight and a buffer that is replaced.
TEST_F(ExportedRunTest, EndsWithTheSameBytesAfterKills) {
  expect_same_bytes_after_kills(config_, is_full_test() ? 20 : 3);
}

TEST_F(ExportedRunTest, LearnsAndIsEvaluatedAndLoadsIntoPython) {
  ASSERT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=400"}).code, 0)
      << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), HasSubstr("exported model tested"));
  ASSERT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
  EXPECT_GT(metrics_of(run_dir())["accuracy"], 0.9) << "four classes";
  Process exporter = ctl(run_dir(),
                         {"export", std::to_string(newest_step(run_dir())), "--output",
                          path("out.pt"), "--format", "torch"},
                         "ctl");
  ASSERT_EQ(exporter.wait(30s)->code, 0) << log_of("ctl");
  const auto loaded = try_run_python(STOKER_LOAD_EXPORT_PY,
                                     {path("out.pt"), "mlp", "encode.weight", "decode.weight"});
  if (!loaded) GTEST_SKIP() << "there is no Python with PyTorch (set STOKER_PYTHON)";
  EXPECT_EQ(loaded->code, 0) << loaded->err;
}

TEST_F(ExportedRunTest, ReportsTheLossAloneWithTaskCustom) {
  ASSERT_EQ(
      train(config_, run_dir(), {"--set", "task.name=custom", "--set", "eval.batch_size=100"}).code,
      0)
      << log_of("stokerd");
  ASSERT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
  const run::DatasetResult custom = newest_result(run_dir());
  ASSERT_EQ(custom.metrics.size(), 1u);
  EXPECT_EQ(custom.metrics[0].first, "loss");
  ASSERT_EQ(train(config_, run_dir("scored")).code, 0) << log_of("stokerd");
  EXPECT_EQ(model_sha256(run_dir(), 80), model_sha256(run_dir("scored"), 80))
      << "the task does not change training";
  ASSERT_EQ(evaluate(run_dir("scored")), 0) << log_of("stoker-eval");
  EXPECT_NEAR(custom.metrics[0].second, newest_result(run_dir("scored")).metrics[0].second, 1e-5);
}

// stoker's own mlp and the same module from Python, from the same weights, with the same masks of dropout: each
// feature of training does the same with both.
TEST_F(ExportedRunTest, TrainsAsBuiltInModelWithEachFeature) {
  const std::string own = config_with(
      "{name: mlp, hidden_sizes: [32], dropout: 0.1, pretrained: {path: " STOKER_EXPORTED
      "/plain_mlp/model.safetensors}}",
      "own.yaml");
  const std::string module = config_with(exported("plain_mlp"), "module.yaml");
  const std::vector<std::vector<std::string>> features = {
      {},
      {"train.gradient_accumulation_steps=2", "train.ema_decay=0.9"},
      {"train.max_grad_norm=0.1", "optimizer.param_groups=[{params: \"0.*\", lr_scale: 0.1}]"},
      {"model.freeze=[0.*]", "model.unfreeze_at_step=20"},
      {"train.precision=bf16"},
      {"optimizer={name: sgd, lr: 0.1, momentum: 0.9}"}};
  for (const auto& feature : features) {
    std::vector<std::string> arguments{"--set", "train.max_steps=40", "--set",
                                       "run.rng=per_ticket"};
    std::string label;
    for (const std::string& setting : feature) {
      arguments.emplace_back("--set");
      arguments.push_back(setting);
      label += setting + ' ';
    }
    const std::string number = std::to_string(&feature - features.data());
    ASSERT_EQ(train(own, run_dir("own" + number), arguments).code, 0) << label << log_of("stokerd");
    ASSERT_EQ(train(module, run_dir("module" + number), arguments).code, 0)
        << label << log_of("stokerd");
    std::vector<std::string> files{"model.safetensors"};
    if (label.find("ema") != std::string::npos) files.emplace_back("ema.safetensors");
    const auto start = tensors_of(std::string(STOKER_EXPORTED) + "/plain_mlp/model.safetensors");
    for (const std::string& file : files) {
      const auto a = tensors_of(run_dir("own" + number) + "/checkpoints/latest/" + file);
      const auto b = tensors_of(run_dir("module" + number) + "/checkpoints/latest/" + file);
      ASSERT_EQ(a.size(), 4u);
      for (const auto& [name, values] : a) {
        EXPECT_LT(largest_difference(values, b.at(name)), 1e-4) << label << file << ' ' << name;
        EXPECT_GT(largest_difference(values, start.at(name)), 1e-3)
            << label << name << " is trained";
      }
    }
  }
}

TEST_F(ExportedRunTest, TrainsSameParametersInTwoProcesses) {
  const std::vector<std::string> in_group{"--set", "distributed.reduction=ordered",
                                          "--set", "train.gradient_accumulation_steps=4",
                                          "--set", "control.socket=null"};
  ASSERT_EQ(train(config_, run_dir("alone"), in_group).code, 0) << log_of("stokerd");
  std::vector<std::unique_ptr<Process>> ranks;
  for (const std::string rank : {"0", "1"})
    ranks.push_back(std::make_unique<Process>(
        joined({"/usr/bin/env", "MASTER_ADDR=127.0.0.1",
                "MASTER_PORT=" + std::to_string(port_.number()), "RANK=" + rank, "WORLD_SIZE=2",
                "LOCAL_RANK=" + rank, "LOCAL_WORLD_SIZE=2", program("stokerd"), "--config", config_,
                "--run-dir", run_dir()},
               in_group),
        path("rank-" + rank + ".out")));
  for (const auto& rank : ranks) {
    const auto exit = rank->wait(110s);
    ASSERT_TRUE(exit && exit->code == 0) << text_of(path("rank-0.out"));
  }
  // The running statistics of batch norm are those of rank 0.
  const std::string model = "/checkpoints/latest/model.safetensors";
  const auto a = tensors_of(run_dir() + model), b = tensors_of(run_dir("alone") + model);
  for (const std::string name : {"hidden.weight", "norm.weight", "encode.weight", "out.bias"})
    EXPECT_EQ(a.at(name), b.at(name)) << name;
}

// Dropout inside attention; two outputs, of which the first is scored; generated text, which is shorter than
// the sequences of the module.
TEST_F(ExportedRunTest, TrainsLanguageModel) {
  std::string text =
      text_config("eval: {batch_size: 24, generate: {max_new_tokens: 40, prompt: \"line 1\"}}\n");
  replace(text, "{name: gpt, num_layers: 2, embed_dim: 32, num_heads: 2, context_length: 32}",
          exported("byte_gpt"));
  for (const char* const split : {"[0.0, 0.9]", "[0.9, 1.0]"})
    replace(text, split, std::string(split) + ", sequence: {block_size: 32}");
  const std::string config = write_config(text);
  expect_same_bytes_after_kills(config, 1);
  ASSERT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
  EXPECT_LT(metrics_of(run_dir())["loss"], 5.3) << "untrained: 5.5";
}

// The tag of a word says whether the next word is larger than the previous one; the first and the
// last have none. Batches are padded to their longest sequence, the module has 12 words.
TEST_F(ExportedRunTest, TrainsPaddedSequences) {
  std::mt19937 random(1);
  for (const auto& [name, records] : {std::pair("train.jsonl", 800), std::pair("val.jsonl", 100)}) {
    std::ofstream file(path(name));
    for (int record = 0; record < records; ++record) {
      std::vector<int> words(4 + random() % 9);
      for (int& word : words) word = static_cast<int>(random() % 8);
      std::string texts, tags;
      for (size_t i = 0; i < words.size(); ++i) {
        const bool has_tag = i > 0 && i + 1 < words.size();
        texts += (i > 0 ? ", " : "") + std::to_string(words[i]);
        tags += std::string(i > 0 ? ", " : "") + (!has_tag                      ? "-100"
                                                  : words[i + 1] > words[i - 1] ? "1"
                                                                                : "0");
      }
      file << R"({"words": [)" << texts << R"(], "tags": [)" << tags << "]}\n";
    }
  }
  const std::string fields =
      ", fields: {input_ids: words, labels: tags}, sequence: {max_length: 12}}";
  const std::string config =
      write_config("data:\n  train: {format: jsonl, path: " + path("train.jsonl") + fields +
                   "\n  val: {format: jsonl, path: " + path("val.jsonl") + fields +
                   "\nmodel: " + exported("tagger") +
                   "\ntask: {name: sequence_labeling}\noptimizer: {name: adam, lr: 0.01}\n"
                   "scheduler: {name: constant}\n"
                   "train: {max_steps: 250, micro_batch_size: 32, device: cpu, num_threads: 1}\n");
  const auto loss = [&](const std::string& run, const std::vector<std::string>& more) {
    EXPECT_EQ(train(config, run_dir(run), more).code, 0) << log_of("stokerd");
    EXPECT_EQ(evaluate(run_dir(run)), 0) << log_of("stoker-eval");
    return metrics_of(run_dir(run))["loss"];
  };
  const double padded = loss("run", {"--set", "eval.batch_size=24"});
  EXPECT_GT(metrics_of(run_dir())["accuracy"], 0.95);
  EXPECT_NEAR(loss("one", {"--set", "eval.batch_size=1"}), padded, 1e-5);
}

// Of the same module, which was `compiled` in an earlier release: the checkpoint has the same tensors.
TEST_F(ExportedRunTest, ContinuesRunOfRemovedModel) {
  ASSERT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=40"}).code, 0)
      << log_of("stokerd");
  const std::string stored = run_dir() + "/config.yaml";
  std::string text = text_of(stored);
  replace(text, "name: exported", "name: compiled");
  fs::remove(stored);
  std::ofstream(stored) << text;
  const std::string removed =
      "model.name: compiled was removed; export the Python module with stoker-export";
  EXPECT_EQ(evaluate(run_dir()), 78);
  EXPECT_THAT(log_of("stoker-eval"), HasSubstr(removed));
  EXPECT_EQ(train(stored, run_dir(), {"--set", "train.max_steps=80"}).code, 78);
  EXPECT_THAT(log_of("stokerd"), HasSubstr(removed));
  ASSERT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=80"}).code, 0)
      << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir()), 80u);
  EXPECT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
}

TEST_F(ExportedRunTest, RejectsWhatDoesNotFitWithOneLine) {
  EXPECT_THAT(error_with({"data.train.input_shape=[31]", "data.val.input_shape=[31]"}),
              HasSubstr("the data has F32 [31]"));
  EXPECT_THAT(error_with({"model.path=" + path("none")}),
              HasSubstr("graph.json: No such file or directory; write it with stoker-export"));
  EXPECT_THAT(error_with({"model.name=mlp", "task.name=custom"}), HasSubstr("task.name"));
}

}  // namespace
}  // namespace stoker::test
