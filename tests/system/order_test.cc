// Runs with each sample order: a run that is killed and resumed ends with the same bytes as an
// uninterrupted one, and stokerctl shows the same for both.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;

const std::string kTraining = R"(optimizer: {name: adamw, lr: 0.002}
scheduler: {name: constant, warmup_steps: 10}
train: {max_steps: 600, micro_batch_size: 8, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 20, keep_last: 3}
metrics: {log_every_steps: 5}
)";

class SampleOrderTest : public RunTest {
 protected:
  static constexpr uint64_t kSteps = 600;

  // `train` is the value of data.train; `more` holds further keys of data, or sections after it.
  std::string config_of(const std::string& train, const std::string& more) const {
    std::ofstream weights(path("weights.txt"));
    for (int i = 0; i < 500; ++i) weights << i % 7 << '\n';
    return write_config("data:\n  train: " + train + "\n" + more +
                        R"(
model: {name: mlp, hidden_sizes: [16], dropout: 0.1}
task: {name: classification}
optimizer: {name: adamw, lr: 0.003}
scheduler: {name: constant, warmup_steps: 10}
train: {max_steps: 600, micro_batch_size: 12, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 50, keep_last: 3}
metrics: {log_every_steps: 7}
)");
  }
  // Two text datasets of several files each, and a tiny GPT on them.
  std::string text_config_of(const std::string& train, const std::string& feed) const {
    for (const char* const name : {"code", "prose"}) {
      std::filesystem::create_directories(path(name));
      for (int file = 0; file < 6; ++file) {
        std::ofstream out(path(name) + "/" + std::to_string(file) + ".txt");
        for (int line = 0; line < 40 + 30 * file; ++line)
          out << name << ", file " << file << ", line " << line << '\n';
      }
    }
    return write_config("data:\n  train: " + train +
                        "\n  code: {format: text, path: " + path("code") +
                        "}\n  prose: {format: text, path: " + path("prose") + "}\n" + feed +
                        R"(
model: {name: gpt, num_layers: 1, embed_dim: 16, num_heads: 2, context_length: 16}
)" + kTraining);
  }

  // JSON lines with texts of 1 to 60 letters, and a tiny GPT on them.
  std::string lines_config_of(const std::string& feed) const {
    for (const char* const name : {"train.jsonl", "val.jsonl"}) {
      std::ofstream out(path(name));
      for (int line = 0; line < 331; ++line)
        out << "{\"t\": \""
            << std::string(static_cast<size_t>(1 + line * line % 60), 'a' + line % 9) << "\"}\n";
    }
    return write_config(
        "data:\n  train: {format: jsonl, path: " + path("train.jsonl") +
        ", fields: {text: t}, sequence: {max_length: 61}}\n  val: {format: jsonl, path: " +
        path("val.jsonl") +
        ", fields: {text: t}, sequence: {max_length: 40, on_overflow: truncate}}\n"
        "feed: {bucket_boundaries: [8, 24, 40], " +
        feed + R"(}
eval: {datasets: [val], batch_size: 7}
model: {name: gpt, num_layers: 1, embed_dim: 16, num_heads: 2, context_length: 64}
)" + kTraining);
  }

  std::string show_batch(const std::string& run, uint64_t step) const {
    const std::string log = "show-batch";
    std::filesystem::remove(path(log + ".out"));  // Process appends to the file
    const auto exit = ctl(run, {"--json", "show-batch", std::to_string(step)}, log).wait(30s);
    EXPECT_TRUE(exit && exit->code == 0) << log_of(log);
    return log_of(log);
  }

  static std::vector<std::string> until(uint64_t step) {
    return {"--set", "train.max_steps=" + std::to_string(step)};
  }
  // Kills the run `kills` times, each time after a new checkpoint. It does not end before, however
  // long a checkpoint takes.
  void train_with_kills(const std::string& config, int kills) const {
    for (int kill = 0; kill < kills; ++kill) {
      const uint64_t before = newest_step(run_dir());
      Process trainer = this->trainer(config, run_dir(), until(100'000'000));
      ASSERT_TRUE(wait_until(60s, [&] { return newest_step(run_dir()) > before; }));
      ASSERT_TRUE(trainer.kill());
    }
  }

  // The last step is `steps`, or later on a machine where the kills have come later.
  void expect_same_after_kills(const std::string& config, uint64_t steps) {
    ASSERT_NO_FATAL_FAILURE(train_with_kills(config, 3));
    last_step_ = std::max(steps, newest_step(run_dir()) + 30);
    for (const std::string& run : {run_dir(), run_dir("uninterrupted")})
      ASSERT_EQ(train(config, run, until(last_step_)).code, 0) << log_of("stokerd");
    EXPECT_EQ(model_sha256(run_dir(), last_step_),
              model_sha256(run_dir("uninterrupted"), last_step_));
    EXPECT_EQ(deterministic_records(run_dir()), deterministic_records(run_dir("uninterrupted")));
    for (const uint64_t step : {uint64_t{1}, last_step_ / 2, last_step_, uint64_t{1'000'000'000}})
      EXPECT_EQ(show_batch(run_dir(), step), show_batch(run_dir("uninterrupted"), step)) << step;
  }

  std::string synthetic_config(int samples, const std::string& more = "") const {
    return "{format: synthetic, num_samples: " + std::to_string(samples) +
           ", input_shape: [16], num_classes: 4, noise_std: 0.5" + more + "}";
  }

  uint64_t last_step_ = 0;  // of expect_same_after_kills()
};

TEST_F(SampleOrderTest, SurvivesKillsWithBlockShuffle) {
  expect_same_after_kills(
      config_of(
          synthetic_config(500, ", skip_samples: 3, repeat: 2"),
          "feed: {shuffle: block, shuffle_block_size: 50, last_batch: pad, num_processes: 2}"),
      kSteps);
}

TEST_F(SampleOrderTest, SurvivesKillsWithWeightedSampling) {
  expect_same_after_kills(
      config_of(synthetic_config(500, ", sample_weights_path: " + path("weights.txt")), ""),
      kSteps);
}

TEST_F(SampleOrderTest, SurvivesKillsWithWeightedMixture) {
  const std::string train = "{mixture: {small: 0.25, large: 0.75}}";
  expect_same_after_kills(
      config_of(train, "  small: " + synthetic_config(40) + "\n  large: " + synthetic_config(700)),
      kSteps);
}

TEST_F(SampleOrderTest, SurvivesKillsByteForByteWithReadAhead) {
  const std::string texts = "{concat: [code, prose]}";
  expect_same_after_kills(
      text_config_of(texts, "feed: {read_ahead: 24, num_workers: 3, num_processes: 2}"), 600);
  ASSERT_EQ(
      train(text_config_of(texts, "feed: {read_ahead: 0}"), run_dir("without"), until(last_step_))
          .code,
      0);
  EXPECT_EQ(model_sha256(run_dir("without"), last_step_), model_sha256(run_dir(), last_step_));
  EXPECT_EQ(deterministic_records(run_dir("without")), deterministic_records(run_dir()));
}

TEST_F(SampleOrderTest, SurvivesKillsWithTextBuckets) {
  int number = 0;
  for (const char* const feed :
       {"num_processes: 2", "last_batch: pad", "last_batch: drop, shuffle: none"}) {
    SCOPED_TRACE(feed);
    expect_same_after_kills(lines_config_of(feed), 600);
    for (const std::string& run : {run_dir(), run_dir("uninterrupted")})
      std::filesystem::rename(run, run + "-" + std::to_string(number));
    ++number;
  }
}

// Labels per time step of vector sequences, for a bidirectional LSTM.
TEST_F(SampleOrderTest, SurvivesKillsWithLabeledSequenceBuckets) {
  std::ofstream out(path("places.jsonl"));
  for (int line = 0; line < 200; ++line) {
    std::string values, tags;
    for (int step = 0; step <= line * 7 % 20; ++step) {
      const std::string between = step == 0 ? "" : ", ";
      const int sign = (line + step * step) % 3 - 1;
      values += between + "[" + std::to_string(sign) + ", 0.5]";
      tags += between + std::to_string(sign + 1);
    }
    out << "{\"x\": [" << values << "], \"y\": [" << tags << "]}\n";
  }
  out.close();
  expect_same_after_kills(
      write_config(
          "data:\n  train: {format: jsonl, path: " + path("places.jsonl") +
          ", fields: {input: x, labels: y}, input_shape: [2], sequence: {max_length: 20}}\n" + R"(
feed: {bucket_boundaries: [5, 10]}
eval: {datasets: []}
task: {name: sequence_labeling}
model: {name: blstm, hidden_size: 8, pooling: none}
optimizer: {name: adamw, lr: 0.01}
scheduler: {name: constant, warmup_steps: 10}
train: {max_steps: 400, micro_batch_size: 8, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 20, keep_last: 3}
metrics: {log_every_steps: 5}
)"),
      400);
}

TEST_F(SampleOrderTest, ReportsPaddingRatioAndEvaluatesWithBuckets) {
  const std::string config = lines_config_of("num_workers: 1");
  const std::vector<std::string> short_run{"--set", "train.max_steps=40"};
  ASSERT_EQ(train(config, run_dir(), short_run).code, 0);
  EXPECT_NE(log_of("stokerd").find("padding_without_buckets="), std::string::npos)
      << log_of("stokerd");
  EXPECT_NE(show_batch(run_dir(), 7).find("\"padded_to\":"), std::string::npos);
  // Metrics depend on the evaluation batch size, and the padding that it causes, by rounding only.
  const auto evaluate = [&](const std::string& batch) {
    std::filesystem::remove(path("stoker-eval.out"));
    const auto exit = evaluator(run_dir(), {"--checkpoint", newest_checkpoint(run_dir()), "--set",
                                            "eval.batch_size=" + batch})
                          .wait(60s);
    EXPECT_TRUE(exit && exit->code == 0) << log_of("stoker-eval");
    const std::string output = log_of("stoker-eval");
    const auto result = run::parse_eval_result(output.substr(output.rfind("{\"step\":")), "output");
    EXPECT_TRUE(result.ok() && result->datasets.size() == 1) << output;
    return result.ok() ? result->datasets.at(0) : run::DatasetResult();
  };
  const run::DatasetResult one_by_one = evaluate("1"), many = evaluate("50");
  EXPECT_EQ(one_by_one.samples, 331u);
  EXPECT_EQ(many.samples, 331u);
  ASSERT_FALSE(one_by_one.metrics.empty());
  ASSERT_EQ(many.metrics.size(), one_by_one.metrics.size());
  for (size_t i = 0; i < many.metrics.size(); ++i) {
    const auto& [name, value] = one_by_one.metrics[i];
    EXPECT_EQ(many.metrics[i].first, name);
    EXPECT_NEAR(many.metrics[i].second, value, 1e-5 * std::abs(value)) << name;
  }
}

TEST_F(SampleOrderTest, AppliesNewSampleWeightsFromRestart) {
  const std::string config =
      config_of(synthetic_config(500, ", sample_weights_path: " + path("weights.txt")), "");
  const auto only = [this](int sample) {
    std::ofstream weights(path("weights.txt"));
    for (int i = 0; i < 500; ++i) weights << (i == sample) << '\n';
  };
  only(3);
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=100"}).code, 0);
  only(8);
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=200"}).code, 0);
  EXPECT_NE(show_batch(run_dir(), 100).find("\"sample\":3,"), std::string::npos);
  EXPECT_EQ(show_batch(run_dir(), 100).find("\"sample\":8,"), std::string::npos);
  EXPECT_NE(show_batch(run_dir(), 101).find("\"sample\":8,"), std::string::npos);
  EXPECT_EQ(show_batch(run_dir(), 101).find("\"sample\":3,"), std::string::npos);
}

TEST_F(SampleOrderTest, RejectsChangedOrderSettings) {
  const std::string config =
      config_of(synthetic_config(500), "feed: {shuffle: block, shuffle_block_size: 50}");
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=100"}).code, 0);
  // Only three, because stokerd rejects the start after four failed ones.
  for (const char* const flag :
       {"feed.shuffle_block_size=51", "feed.last_batch=drop", "data.train.repeat=2"}) {
    EXPECT_EQ(train(config, run_dir(), {"--set", flag}).code, 78) << flag;
    EXPECT_NE(log_of("stokerd").find("start a new run with --fresh"), std::string::npos) << flag;
  }
  EXPECT_EQ(
      train(config, run_dir(), {"--set", "train.max_steps=200", "--set", "feed.num_workers=3"})
          .code,
      0);
}

}  // namespace
}  // namespace stoker::test
