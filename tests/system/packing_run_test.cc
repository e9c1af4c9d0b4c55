// Runs on packed documents: the same bytes in any process, after kills and when documents are added,
// and the evaluation of documents alone.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/dataset_refresh_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class PackingRunTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    write_documents("train.jsonl", 300, 1);
    write_documents("val.jsonl", 60, 2);
    const auto dataset = [this](const std::string& name) {
      return "  " + name + ": {format: jsonl, path: " + path(name + ".jsonl") +
             ", fields: {input_ids: ids}, sequence: {max_length: 24, packing: true}}\n";
    };
    config_ = write_config(
        "data:\n" + dataset("train") + dataset("val") +
        "model: {name: llama, num_layers: 1, num_heads: 2, num_key_value_heads: 1, embed_dim: 16, "
        "context_length: 24, vocab_size: 10}\n"
        "train: {max_steps: 40, micro_batch_size: 4, device: cpu, num_threads: 1}\n"
        "checkpoint: {save_every_steps: 10}\neval: {batch_size: 7}\n");
  }
  // Counting documents of 1 to 24 tokens.
  void write_documents(const std::string& name, int documents, unsigned seed) const {
    std::mt19937 random(seed);
    std::ofstream file(path(name));
    for (int i = 0; i < documents; ++i) {
      const auto length = 1 + random() % 24, first = random() % 10;
      file << "{\"ids\": [";
      for (size_t token = 0; token < length; ++token)
        file << (token == 0 ? "" : ", ") << (first + token) % 10;
      file << "]}\n";
    }
  }
  std::map<std::string, double> trained_and_evaluated(const std::string& run,
                                                      const std::vector<std::string>& more = {}) {
    EXPECT_EQ(train(config_, run_dir(run), more).code, 0) << log_of("stokerd");
    const auto ended = evaluator(run_dir(run), {"--once"}).wait(120s);
    EXPECT_TRUE(ended && ended->code == 0) << log_of("stoker-eval");
    const auto metrics = newest_result(run_dir(run)).metrics;
    return {metrics.begin(), metrics.end()};
  }

  std::string config_;
};

TEST_F(PackingRunTest, EvaluatesDocumentsAsIfAlone) {
  const auto packed = trained_and_evaluated("packed");
  const auto alone = trained_and_evaluated("alone", {"--set", "data.val.sequence.packing=false"});
  for (const std::string metric : {"loss", "perplexity", "accuracy"})
    EXPECT_NEAR(packed.at(metric), alone.at(metric), 1e-5 * alone.at(metric)) << metric;
}

TEST_F(PackingRunTest, EvaluatesPackedAndPaddedDatasetsOfOtherLengths) {
  const auto first = trained_and_evaluated(
      "both",
      {"--set", "eval.datasets=[train, val]", "--set", "data.val.sequence.packing=false", "--set",
       "data.val.sequence.max_length=12", "--set", "data.val.sequence.on_overflow=drop"});
  EXPECT_GT(first.at("loss"), 0);
  const auto result = run::parse_eval_result(
      text_of(run::eval_result_path(run_dir("both") + "/eval", newest_step(run_dir("both")))), "");
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  ASSERT_EQ(result->datasets.size(), 2u);
  EXPECT_EQ(result->datasets[1].dataset, "val");
  EXPECT_GT(result->datasets[1].samples, 0u);
}

// New documents change which documents are in a sample.
class PackingRefreshTest : public DatasetRefreshFixture {
 protected:
  // Documents of `length` tokens.
  void add(const std::string& name, int documents, int length) const {
    std::ofstream file(path("new"));
    for (int i = 0; i < documents; ++i) {
      file << "{\"ids\": [";
      for (int token = 0; token < length; ++token)
        file << (token == 0 ? "" : ", ") << (i + token) % 10;
      file << "]}\n";
    }
    file.close();
    std::filesystem::create_directories(path("documents"));
    std::filesystem::rename(path("new"), path("documents/" + name));
  }
};

TEST_F(PackingRefreshTest, FillsSamplesWithNewDocumentsAndSurvivesKill) {
  add("first.jsonl", 40, 16);
  const std::string config = write_config(
      "data:\n  train: {format: jsonl, path: " + path("documents") +
      ", glob: \"*.jsonl\", fields: {input_ids: ids}, sequence: {max_length: 24, packing: true}, "
      "refresh: epoch}\n"
      "feed: {refresh_interval_seconds: 0.05}\n"
      "model: {name: llama, num_layers: 1, num_heads: 2, embed_dim: 16, context_length: 24, "
      "vocab_size: 10}\n"
      "scheduler: {name: constant}\ncheckpoint: {save_every_steps: 50, keep_last: 1000}\n"
      "metrics: {log_every_steps: 23}\n"
      "train: {max_steps: 100000000, micro_batch_size: 4, device: cpu, num_threads: 1}\n");
  Process trainer = paused_trainer(config);
  add("second.jsonl", 24, 8);  // they fit next to those of 16
  ASSERT_TRUE(wait_until(60s, [&] { return log_contains("new data found samples=40"); }))
      << log_of("stokerd");
  send_command("resume");
  ASSERT_TRUE(wait_until(60s, [&] { return history(run_dir()).size() == 2; }));
  trainer.signal(SIGKILL);
  ASSERT_TRUE(trainer.wait(60s).has_value());
  const auto states = history(run_dir());
  ASSERT_EQ(states.size(), 2u);
  const uint64_t ticket = states[1].start.ticket;
  const uint64_t last = std::max(newest_step(run_dir()), ticket) + 13;
  const std::vector<std::string> until{"--set", "train.max_steps=" + std::to_string(last)};
  ASSERT_EQ(train(config, run_dir(), until).code, 0) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), HasSubstr("documents=64 samples=40"));
  EXPECT_EQ(size_at(ticket + 1), 40u);
  EXPECT_EQ(epoch_at(ticket + 1), epoch_at(ticket) + 1);
  expect_complete_epoch(ticket, 40);

  std::filesystem::copy(run_dir(), run_dir("again"), std::filesystem::copy_options::recursive);
  const std::string first = run_dir("again") + "/checkpoints/" + checkpoints(run_dir()).front();
  ASSERT_EQ(train(config, run_dir("again"), joined(until, {"--resume", first})).code, 0);
  EXPECT_EQ(history(run_dir("again")), states);
  EXPECT_EQ(model_sha256(run_dir("again"), last), model_sha256(run_dir(), last));
  EXPECT_EQ(deterministic_records(run_dir("again")), deterministic_records(run_dir()));
}

}  // namespace
}  // namespace stoker::test
