// The sample error file and the error count across restarts of a run.
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/store.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class SampleErrorsTest : public RunTest {
 protected:
  // A table of 600 rows, two of which hold text instead of a number. Checkpoints are saved only on
  // request and at the end.
  std::string config_of(const std::string& feed) const {
    std::ofstream table(path("table.csv"));
    table << "a,b,kind\n";
    for (int row = 0; row < 600; ++row)
      table << (row == 100 || row == 377 ? "many" : std::to_string(row % 7)) << ',' << row % 5
            << ',' << row % 3 << '\n';
    return write_config("data: {train: {format: csv, fields: {label: kind}, path: " +
                        path("table.csv") + "}}\nfeed: {max_sample_error_rate: 1, " + feed + R"(}
model: {name: mlp, hidden_sizes: [8]}
task: {name: classification}
optimizer: {name: adamw, lr: 0.003}
scheduler: {name: constant, warmup_steps: 10}
train: {max_steps: 10000000, micro_batch_size: 6, gradient_accumulation_steps: 2, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: null, save_every_seconds: null, keep_last: 100}
metrics: {log_every_steps: 50}
)");
  }

  static std::vector<std::string> sorted_records(const std::string& run) {
    return sorted_lines(text_of(run + "/sample_errors.jsonl"));
  }
  static std::vector<std::string> sorted_lines(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> lines;
    // The last line can be incomplete.
    for (std::string line; std::getline(in, line) && !in.eof();) lines.push_back(line);
    std::ranges::sort(lines);
    return lines;
  }
  static uint64_t step_of(const std::string& line) {
    return boost::json::parse(line).at("step").to_number<uint64_t>();
  }
  static uint64_t num_listed(const std::string& run, uint64_t up_to_step) {
    const auto lines = sorted_lines(text_if_exists(run + "/sample_errors.jsonl"));
    return static_cast<uint64_t>(std::ranges::count_if(
        lines, [&](const std::string& line) { return step_of(line) <= up_to_step; }));
  }
  static std::string checkpoint_dir(const std::string& run, uint64_t step) {
    return run + "/checkpoints/" + checkpoint::CheckpointStore::checkpoint_name(step);
  }
  static uint64_t num_counted(const std::string& run, uint64_t step) {
    const auto manifest = checkpoint::parse_manifest(
        text_of(checkpoint_dir(run, step) + "/manifest.json"), "manifest");
    EXPECT_TRUE(manifest.ok() && manifest->sample_errors.has_value());
    return manifest.ok() ? manifest->sample_errors.value_or(0) : 0;
  }
  uint64_t reported_by_status() {
    std::ofstream(path("status.out"));  // Process appends to the file
    const auto exit = ctl(run_dir(), {"--json", "status"}, "status").wait(30s);
    std::smatch number;
    const std::string output = log_of("status");
    if (!exit || exit->code != 0 ||
        !std::regex_search(output, number, std::regex("\"sample_errors\":([0-9]+)")))
      return 0;
    return std::stoull(number[1]);
  }

  // Runs until another checkpoint is saved and, unless `immediately`, until sample errors after that
  // checkpoint are recorded; then kills the run.
  void run_until_killed(const std::string& config, bool immediately) {
    const uint64_t before = newest_step(run_dir());
    Process trainer = this->trainer(config, run_dir());
    ASSERT_TRUE(wait_until(
        60s, [&] { return num_listed(run_dir(), ~0ull) > num_listed(run_dir(), before); }));
    ASSERT_TRUE(wait_until(60s, [&] {
      return reported_by_status() > (before == 0 ? 0 : num_counted(run_dir(), before));
    })) << "the count of earlier attempts is lost";
    ASSERT_TRUE(wait_until(60s, [&] {
      trainer.signal(SIGUSR1);
      return newest_step(run_dir()) > before;
    }));
    ASSERT_TRUE(immediately || wait_until(60s, [&] {
                  return num_listed(run_dir(), ~0ull) >
                         num_listed(run_dir(), newest_step(run_dir()));
                }));
    trainer.signal(SIGKILL);
    const auto killed = trainer.wait(60s);
    ASSERT_TRUE(killed.has_value());
    ASSERT_EQ(killed->signal, SIGKILL) << "the run ended before all kills";
    const uint64_t saved = newest_step(run_dir());
    EXPECT_EQ(num_counted(run_dir(), saved), num_listed(run_dir(), saved))
        << "what the checkpoint of step " << saved << " counts is not in the file";
  }

  void expect_same_list_after_kills(const std::string& feed) {
    const std::string config = config_of(feed);
    for (const bool immediately : {false, true, false, true})
      ASSERT_NO_FATAL_FAILURE(run_until_killed(config, immediately));
    // Beyond the step that the run has reached.
    const uint64_t steps = newest_step(run_dir()) + 3000;
    const std::vector<std::string> until_step{"--set", "train.max_steps=" + std::to_string(steps)};
    ASSERT_EQ(train(config, run_dir(), until_step).code, 0);
    ASSERT_EQ(train(config, run_dir("uninterrupted"), until_step).code, 0);
    EXPECT_THAT(log_of("stokerd"), HasSubstr("sample error records truncated"));
    EXPECT_THAT(log_of("stokerd"), Not(HasSubstr("sample error records missing")));
    const auto list = sorted_records(run_dir());
    EXPECT_GT(list.size(), 100u);
    EXPECT_EQ(list, sorted_records(run_dir("uninterrupted")));
    EXPECT_EQ(num_counted(run_dir(), steps), list.size());
    EXPECT_EQ(num_counted(run_dir("uninterrupted"), steps), list.size());
    EXPECT_EQ(model_sha256(run_dir(), steps), model_sha256(run_dir("uninterrupted"), steps));
    for (const std::string& name : checkpoints(run_dir())) {
      const uint64_t step = *checkpoint::CheckpointStore::parse_checkpoint_name(name);
      EXPECT_EQ(num_counted(run_dir(), step), num_listed(run_dir("uninterrupted"), step)) << name;
    }
  }
};

TEST_F(SampleErrorsTest, MatchesUninterruptedRunAfterKillsWithWorkerProcesses) {
  expect_same_list_after_kills("num_processes: 2, num_workers: 3");
}

TEST_F(SampleErrorsTest, MatchesUninterruptedRunAfterKillsWithInProcessWorkers) {
  expect_same_list_after_kills("num_processes: 0, num_workers: 2");
}

// A sample error file and a checkpoint as written by an earlier release.
TEST_F(SampleErrorsTest, CountsFileRecordsWhenCheckpointHasNoCount) {
  const std::string config = config_of("num_workers: 2");
  const std::vector<std::string> half{"--set", "train.max_steps=1000"};
  const std::vector<std::string> all{"--set", "train.max_steps=2000"};
  ASSERT_EQ(train(config, run_dir("uninterrupted"), all).code, 0);
  ASSERT_EQ(train(config, run_dir(), half).code, 0);
  const std::string folder = checkpoint_dir(run_dir(), 1000);
  const std::string manifest = text_of(folder + "/manifest.json");
  std::ofstream(folder + "/manifest.json")
      << std::regex_replace(manifest, std::regex(",\"sample_errors\":[0-9]+"), "");
  ASSERT_EQ(
      std::system(
          ("cd " + folder + " && sha256sum *.safetensors manifest.json > SHA256SUMS").c_str()),
      0);
  const std::string list = text_of(run_dir() + "/sample_errors.jsonl");
  std::ofstream(run_dir() + "/sample_errors.jsonl")
      << std::regex_replace(list, std::regex("\"step\":[0-9]+,"), "")
      << "{\"ticket\":5000,\"sample\":100}\n";  // of a step that was lost
  ASSERT_EQ(train(config, run_dir(), all).code, 0) << log_of("stokerd");
  EXPECT_EQ(num_counted(run_dir(), 2000), num_counted(run_dir("uninterrupted"), 2000));
  EXPECT_EQ(sorted_records(run_dir()).size(), sorted_records(run_dir("uninterrupted")).size());
}

TEST_F(SampleErrorsTest, ClearsRecordsWhenRunRestartsWithoutCheckpoint) {
  const std::string config = config_of("num_workers: 2");
  const std::vector<std::string> until_1000{"--set", "train.max_steps=1000"};
  ASSERT_EQ(train(config, run_dir("uninterrupted"), until_1000).code, 0);
  {
    Process trainer = this->trainer(config, run_dir());
    ASSERT_TRUE(wait_until(60s, [&] { return num_listed(run_dir(), ~0ull) > 40; }));
    trainer.signal(SIGKILL);
    ASSERT_TRUE(trainer.wait(60s).has_value());
  }
  ASSERT_THAT(checkpoints(run_dir()), IsEmpty());
  ASSERT_EQ(train(config, run_dir(), until_1000).code, 0);
  EXPECT_EQ(sorted_records(run_dir()), sorted_records(run_dir("uninterrupted")));
}

}  // namespace
}  // namespace stoker::test
