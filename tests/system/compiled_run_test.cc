// Runs of a Python module that was compiled with its loss: model.name: compiled.
#include <algorithm>
#include <cmath>
#include <csignal>
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
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// Packages that only scripts/fault_tests.sh compiled exports, because each takes half a minute.
constexpr const char* kNotExported = "exported by scripts/fault_tests.sh compiled only";

class CompiledRunTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    if (!copy_package("mlp"))
      GTEST_SKIP() << "there is no package: StokerExport.Package needs a Python with PyTorch";
    std::string text = small_config();
    replace(text, "max_steps: 400", "max_steps: 80");
    replace(text, "{name: mlp, hidden_sizes: [32], dropout: 0.1}", compiled("mlp"));
    replace(text, "{name: cosine, warmup_steps: 10, min_lr: 0.0001}", "{name: constant}");
    config_ = write_config(text);
  }
  // false: it was not exported by these sources.
  bool copy_package(const std::string& name) const {
    if (name != "mlp" && !is_full_test()) return false;
    const std::string package = std::string(STOKER_COMPILED) + "/" + name;
    if (!fs::exists(package + "/manifest.json")) return false;
    fs::copy(package, path(name));
    return true;
  }
  std::string compiled(const std::string& package) const {
    return "{name: compiled, path: " + path(package + "/manifest.json") + "}";
  }
  static void replace(std::string& text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  int evaluate(const std::string& run) const {
    const auto exit = evaluator(run, {"--once"}).wait(90s);
    return exit ? exit->code : -1;
  }
  static std::map<std::string, double> metrics_of(const std::string& run) {
    const run::DatasetResult result = newest_result(run);
    return {result.metrics.begin(), result.metrics.end()};
  }
  static std::vector<std::byte> tensor_of(const std::string& file, const std::string& name) {
    const auto opened = checkpoint::SafetensorsFile::open(file);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    std::vector<std::byte> bytes((*opened)->find(name)->bytes());
    EXPECT_TRUE((*opened)->read(name, bytes).ok());
    return bytes;
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
    std::cout << "exact: compiled: " << kills << " kills, " << last << " steps\n";
  }
  // The newest checkpoint, exported with stokerctl, loads into the module with strict=True.
  void expect_loads_into_python(const std::string& module, const std::string& weight,
                                const std::string& tied_to_it) const {
    Process exporter = ctl(run_dir(),
                           {"export", std::to_string(newest_step(run_dir())), "--output",
                            path("out.pt"), "--format", "torch"},
                           "ctl");
    ASSERT_EQ(exporter.wait(30s)->code, 0) << log_of("ctl");
    const auto loaded =
        try_run_python(STOKER_LOAD_EXPORT_PY, {path("out.pt"), module, weight, tied_to_it});
    if (!loaded) GTEST_SKIP() << "there is no Python with PyTorch (set STOKER_PYTHON)";
    EXPECT_EQ(loaded->code, 0) << loaded->err;
  }
  // A rank in each working directory, as on hosts whose file systems differ.
  std::vector<std::unique_ptr<Process>> start_ranks(const std::vector<std::string>& directories,
                                                    const std::vector<std::string>& more) const {
    std::vector<std::unique_ptr<Process>> ranks;
    for (const std::string& directory : directories) {
      const std::string rank = std::to_string(ranks.size());
      const std::string size = std::to_string(directories.size());
      ranks.push_back(std::make_unique<Process>(
          joined({"/usr/bin/env", "-C", directory, "MASTER_ADDR=127.0.0.1",
                  "MASTER_PORT=" + std::to_string(port_.number()), "RANK=" + rank,
                  "WORLD_SIZE=" + size, "LOCAL_RANK=" + rank, "LOCAL_WORLD_SIZE=" + size,
                  program("stokerd"), "--config", config_, "--run-dir", run_dir()},
                 more),
          path("rank-" + rank + ".out")));
    }
    return ranks;
  }
  // The error with which a run of the configuration with these changes ends; one line.
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

  const std::vector<std::string> kInGroup{"--set", "distributed.reduction=ordered",
                                          "--set", "train.gradient_accumulation_steps=4",
                                          "--set", "control.socket=null"};
  std::string config_;

 private:
  const ReservedPort port_;
};

// Twenty kills in scripts/fault_tests.sh; with dropout, batch norm and a buffer that is replaced.
TEST_F(CompiledRunTest, EndsWithTheSameBytesAfterKills) {
  expect_same_bytes_after_kills(config_, is_full_test() ? 20 : 3);
}

TEST_F(CompiledRunTest, LearnsAndIsEvaluatedAndLoadsIntoPython) {
  ASSERT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=400"}).code, 0)
      << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), HasSubstr("compiled model tested"));
  // A step whose predecessor is still being saved has none.
  EXPECT_LE(checkpoints(run_dir()).size(), 3u) << "checkpoint.keep_last";
  EXPECT_TRUE(fs::exists(run_dir() + "/checkpoints/step-000000400"));
  ASSERT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
  EXPECT_GT(metrics_of(run_dir())["accuracy"], 0.9) << "four classes";
  expect_loads_into_python("mlp", "encode.weight", "decode.weight");
}

TEST_F(CompiledRunTest, SavesUpdatedBuffers) {
  ASSERT_EQ(train(config_, run_dir()).code, 0) << log_of("stokerd");
  const std::string saved = run_dir() + "/checkpoints/latest/model.safetensors";
  int64_t batches = 0;
  const std::vector<std::byte> bytes = tensor_of(saved, "norm.num_batches_tracked");
  ASSERT_EQ(bytes.size(), sizeof batches);
  std::memcpy(&batches, bytes.data(), sizeof batches);
  EXPECT_EQ(batches, 80);
  EXPECT_NE(tensor_of(saved, "average"), tensor_of(path("mlp/model.safetensors"), "average"));
}

TEST_F(CompiledRunTest, IsPausedAndExportedWhileItTrains) {
  const Progress before = progress_of(run_dir());
  Process trainer = this->trainer(config_, run_dir(), {"--set", "train.max_steps=100000000"});
  ASSERT_FALSE(wait_for(KillPoint::kCheckpointSaved, trainer, run_dir(), before));
  ASSERT_EQ(ctl(run_dir(), {"pause"}, "ctl").wait(30s)->code, 0) << log_of("ctl");
  expect_loads_into_python("mlp", "encode.weight", "decode.weight");
  ASSERT_EQ(ctl(run_dir(), {"resume"}, "ctl").wait(30s)->code, 0) << log_of("ctl");
  const uint64_t paused_at = newest_record_step(run_dir());
  ASSERT_TRUE(wait_until(60s, [&] { return newest_record_step(run_dir()) > paused_at; }));
  trainer.signal(SIGTERM);
  EXPECT_EQ(trainer.wait(60s)->code, 0) << log_of("stokerd");
}

TEST_F(CompiledRunTest, ReportsTheLossAloneWithTaskCustom) {
  // The last of the three batches of the evaluation is shorter.
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

TEST_F(CompiledRunTest, AccumulatesFreezesGroupsAndAverages) {
  ASSERT_EQ(
      train(config_, run_dir(),
            {"--set", "train.gradient_accumulation_steps=2", "--set", "model.freeze=[hidden.*]",
             "--set", "train.ema_decay=0.9", "--set", "optimizer.weight_decay=0", "--set",
             "optimizer.param_groups=[{params: \"encode.*\", lr_scale: 0.000001}]"})
          .code,
      0)
      << log_of("stokerd");
  ASSERT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
  const std::string start = path("mlp/model.safetensors");
  const std::string saved = run_dir() + "/checkpoints/latest/";
  EXPECT_EQ(tensor_of(saved + "model.safetensors", "hidden.weight"),
            tensor_of(start, "hidden.weight"));
  const auto change = [&](const char* name) {
    const auto [from, to] =
        std::pair(tensor_of(start, name), tensor_of(saved + "model.safetensors", name));
    double largest = 0;
    for (size_t at = 0; at < from.size(); at += sizeof(float)) {
      float before = 0, after = 0;
      std::memcpy(&before, from.data() + at, sizeof before);
      std::memcpy(&after, to.data() + at, sizeof after);
      largest = std::max(largest, std::abs(static_cast<double>(after) - before));
    }
    return largest;
  };
  EXPECT_GT(change("out.weight"), 1e-2);
  EXPECT_LT(change("encode.weight"), 1e-5) << "its learning rate is a millionth";
  EXPECT_NE(tensor_of(saved + "ema.safetensors", "out.weight"),
            tensor_of(saved + "model.safetensors", "out.weight"));
}

// The running statistics of batch norm are those of rank 0.
TEST_F(CompiledRunTest, TrainsSameParametersInTwoProcesses) {
  ASSERT_EQ(train(config_, run_dir("alone"), kInGroup).code, 0) << log_of("stokerd");
  for (const auto& rank : start_ranks({folder_, folder_}, kInGroup)) {
    const auto exit = rank->wait(110s);
    ASSERT_TRUE(exit && exit->code == 0) << text_of(path("rank-0.out"));
  }
  for (const std::string file : {"optimizer.safetensors", "trainer_state.safetensors"})
    EXPECT_TRUE(text_of(run_dir() + "/checkpoints/latest/" + file) ==
                text_of(run_dir("alone") + "/checkpoints/latest/" + file))
        << file;
  const std::string model = "/checkpoints/latest/model.safetensors";
  for (const std::string name : {"hidden.weight", "norm.weight", "encode.weight", "out.bias"})
    EXPECT_EQ(tensor_of(run_dir() + model, name), tensor_of(run_dir("alone") + model, name));
}

TEST_F(CompiledRunTest, NamesRankWithOtherPackage) {
  fs::copy(path("mlp"), path("other"));
  std::ofstream(path("other/manifest.json"), std::ios::app) << '\n';
  const auto ranks = start_ranks({path("mlp"), path("other")},
                                 joined(kInGroup, {"--set", "model.path=./manifest.json"}));
  for (const int rank : {0, 1}) {
    const std::string log = path("rank-" + std::to_string(rank) + ".out");
    EXPECT_EQ(code_of(*ranks[static_cast<size_t>(rank)]), 78) << text_of(log);
    EXPECT_THAT(text_of(log),
                ContainsRegex("rank 1 \\([^ ]+, pid " + std::to_string(ranks[1]->pid()) +
                              "\\): model file digest is [0-9a-f]+, but [0-9a-f]+ on rank 0"));
  }
  EXPECT_EQ(newest_record_step(run_dir()), 0u);
}

TEST_F(CompiledRunTest, RejectsWhatDoesNotFitWithOneLine) {
  EXPECT_THAT(error_with({"train.precision=bf16"}), HasSubstr("was exported for fp32"));
  EXPECT_THAT(error_with({"train.micro_batch_size=4097"}), HasSubstr("for batches of 1 to 4096"));
  EXPECT_THAT(error_with({"eval.batch_size=4097"}),
              HasSubstr("for batches of 1 to 4096 samples, eval.batch_size is 4097"));
  EXPECT_THAT(error_with({"data.train.input_shape=[31]", "data.val.input_shape=[31]"}),
              HasSubstr("the data has F32 [31]"));
  EXPECT_THAT(error_with({"train.channels_last=true"}), HasSubstr("train.channels_last"));
  EXPECT_THAT(error_with({"model.path=" + path("mlp")}),
              HasSubstr("is a folder: name its manifest.json"));
  EXPECT_THAT(error_with({"model.name=mlp", "task.name=custom"}), HasSubstr("task.name"));
}

TEST_F(CompiledRunTest, EvaluatorRejectsBatchSizeAtStart) {
  ASSERT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=4"}).code, 0) << log_of("stokerd");
  // Also without a checkpoint to evaluate.
  for (const char* const mode : {"--once", "--follow"}) {
    const auto exit = evaluator(run_dir(), {mode, "--set", "eval.batch_size=4097"}).wait(90s);
    ASSERT_TRUE(exit.has_value());
    EXPECT_EQ(exit->code, 78);
    EXPECT_THAT(log_of("stoker-eval"),
                HasSubstr("for batches of 1 to 4096 samples, eval.batch_size is 4097"));
    fs::remove_all(run_dir() + "/checkpoints");
  }
}

TEST_F(CompiledRunTest, TrainsInBf16WhatWasExportedForIt) {
  if (!copy_package("mlp_bf16")) GTEST_SKIP() << kNotExported;
  const std::string path_of_it = "model.path=" + path("mlp_bf16/manifest.json");
  EXPECT_THAT(error_with({path_of_it}),
              HasSubstr("was exported for bf16, train.precision is fp32"));
  ASSERT_EQ(
      train(config_, run_dir(),
            {"--set", path_of_it, "--set", "train.precision=bf16", "--set", "train.max_steps=400"})
          .code,
      0)
      << log_of("stokerd");
  ASSERT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
  EXPECT_GT(metrics_of(run_dir())["accuracy"], 0.9);
}

// Two outputs, of which the first is scored; dropout inside attention; tokens, of which the
// evaluator's samples have fewer than the module takes.
TEST_F(CompiledRunTest, TrainsLanguageModel) {
  if (!copy_package("gpt")) GTEST_SKIP() << kNotExported;
  std::string text =
      text_config("eval: {batch_size: 24, generate: {max_new_tokens: 40, prompt: \"line 1\"}}\n");
  replace(text, "{name: gpt, num_layers: 2, embed_dim: 32, num_heads: 2, context_length: 32}",
          compiled("gpt"));
  for (const char* const split : {"[0.0, 0.9]", "[0.9, 1.0]"})
    replace(text, split, std::string(split) + ", sequence: {block_size: 32}");
  const std::string config = write_config(text);
  expect_same_bytes_after_kills(config, 20);
  ASSERT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
  EXPECT_LT(metrics_of(run_dir())["loss"], 3.5) << "untrained: 5.5";
  expect_loads_into_python("gpt", "tok.weight", "head.weight");
}

// The tag of a word says whether the next word is larger than the previous one; the first and the
// last have none. Batches are padded to their longest sequence, the module has 12 words.
TEST_F(CompiledRunTest, TrainsPaddedSequences) {
  if (!copy_package("tagger")) GTEST_SKIP() << kNotExported;
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
                   "\nmodel: " + compiled("tagger") +
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

}  // namespace
}  // namespace stoker::test
