// What a group of processes does as one process does: rollbacks, dataset refreshes, the list of the samples of a step,
// and the end when too many samples cannot be read.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <latch>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/store.h"
#include "shared/feed/dataset_versions.h"
#include "tests/system/group_run_fixture.h"

namespace stoker::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;

class GroupDataTest : public GroupRunTest {
 protected:
  // `name`: of an event. The value of `field` in each line, in order.
  std::vector<std::string> values_of(int rank, const std::string& event,
                                     const std::string& field) const {
    std::ifstream log(log_path(rank));
    std::vector<std::string> values;
    for (std::string line; std::getline(log, line);) {
      const size_t at = line.find(' ' + field + '=');
      if (line.find(event) == std::string::npos || at == std::string::npos) continue;
      const size_t begin = at + field.size() + 2;
      values.push_back(line.substr(begin, line.find(' ', begin) - begin));
    }
    return values;
  }
  void control(const std::string& run, const std::string& command) {
    Process client = ctl(run, {command}, "ctl");
    ASSERT_EQ(code_of(client), 0) << log_of("ctl");
  }
};

// ---- Rollback

// The learning rate grows until the loss is not finite, after the first and before the second checkpoint,
// so that all runs return to the same one.
class GroupRollbackTest : public GroupDataTest {
 protected:
  GroupRollbackTest() {
    save_every_ = 10;
    max_steps_ = "96";
  }
  void SetUp() override {
    GroupDataTest::SetUp();
    write_config(R"(
data: {train: {format: synthetic, num_samples: 400, input_shape: [8], num_targets: 2}}
model: {name: mlp, hidden_sizes: [16], dropout: 0.1}
task: {name: regression}
eval: {datasets: []}
optimizer: {name: sgd, lr: 300}
scheduler: {name: constant, warmup_steps: 3000}
train: {max_steps: 1, device: cpu, num_threads: 1, max_grad_norm: null, rollback_lr_factor: 0.001, on_nonfinite: rollback}
distributed: {reduction: ordered}
)",
                 "group.yaml");
  }
};

TEST_F(GroupRollbackTest, TrainsSameBytesAfterRollbackWithAnyNumberOfProcesses) {
  train_alone(run_dir(kAlone));
  ASSERT_THAT(text_of(path("alone.out")), HasSubstr("run rolled back step=10 "));
  for (const int world_size : {2, 4}) {
    const std::string run = run_dir("run-" + std::to_string(world_size));
    expect_success(start_group(world_size, run));
    expect_same_run(run, run_dir(kAlone));
    for (int rank = 0; rank < world_size; ++rank)
      EXPECT_THAT(values_of(rank, "run rolled back", "step"), Contains("10")) << "rank " << rank;
  }
}

TEST_F(GroupRollbackTest, TrainsSameBytesAfterRollbackWithShardedOptimizer) {
  train_alone(run_dir(kAlone));
  expect_success(start_group(2, run_dir(), kSharded));
  EXPECT_THAT(values_of(1, "run rolled back", "step"), Contains("10"));
  expect_same_state(run_dir(), run_dir(kAlone));
}

TEST_F(GroupRollbackTest, EndsAllRanksIfThereIsNoCheckpoint) {
  save_every_ = 1000;
  auto ranks = start_group(2, run_dir());
  EXPECT_EQ(code_of(*ranks[0]), 65);
  EXPECT_EQ(code_of(*ranks[1]), 73);
  EXPECT_THAT(output_of(1), HasSubstr("there is no checkpoint yet to roll back to"));
}

// ---- A table: some samples that cannot be read, and rows that are added

class GroupTableTest : public GroupDataTest {
 protected:
  // Until it is stopped.
  void configure_table(int rows, const std::string& settings_of_data,
                       const std::string& more = "") {
    add_rows(rows);
    write_config("data: {train: {format: csv, fields: {label: kind}, path: " + path("table.csv") +
                     settings_of_data + R"(}}
model: {name: mlp, hidden_sizes: [16], dropout: 0.1}
task: {name: classification}
optimizer: {name: adamw, lr: 0.003}
scheduler: {name: constant, warmup_steps: 10}
train: {max_steps: 1, device: cpu, num_threads: 1}
distributed: {reduction: ordered}
)" + more,
                 "group.yaml");
    max_steps_ = "1000000";
  }
  // In one write, so that a concurrent scan sees all of it or nothing.
  void add_rows(int count) {
    std::string text = rows_ == 0 ? "a,b,kind\n" : "";
    for (const int end = rows_ + count; rows_ < end; ++rows_)
      text += (rows_ % 100 == 77 ? "many" : std::to_string(rows_ % 7)) + "," +
              std::to_string(rows_ % 5) + "," + std::to_string(rows_ % 3) + "\n";
    std::ofstream(path("table.csv"), std::ios::app) << text;
  }
  static feed::DatasetVersions versions_of(const std::string& run) {
    const auto read = feed::read_dataset_versions(run + "/dataset_versions.jsonl");
    return read.ok() ? *read : feed::DatasetVersions();
  }

  int rows_ = 0;
};

// Whichever rank has found that a sample cannot be read.
TEST_F(GroupTableTest, ShowsSameBatchWithAnyNumberOfProcesses) {
  micro_batches_ = 8;
  configure_table(600, "", "feed: {max_sample_error_rate: 1}\n");
  end_at(24);
  train_alone(run_dir(kAlone));
  std::vector<std::string> batches;
  uint64_t replaced = 0;
  for (uint64_t step = 1; step <= 24; ++step) {
    batches.push_back(batch_of(run_dir(kAlone), step));
    replaced += batches.back().find("(replaces unreadable sample ") != std::string::npos;
  }
  EXPECT_GE(replaced, 4u);
  for (const int world_size : {2, 4, 8}) {
    const std::string run = run_dir("run-" + std::to_string(world_size));
    expect_success(start_group(world_size, run));
    for (uint64_t step = 1; step <= 24; ++step)
      EXPECT_EQ(batch_of(run, step), batches[step - 1]) << world_size << " ranks";
  }
  // Fewer ranks, from an earlier step: the others have recorded steps that are trained again.
  const std::string run = run_dir("run-8");
  expect_success(start_group(
      2, run,
      {"--resume", run + "/checkpoints/" + checkpoint::CheckpointStore::checkpoint_name(8)}));
  expect_same_run(run, run_dir(kAlone));
  for (uint64_t step = 1; step <= 24; ++step) EXPECT_EQ(batch_of(run, step), batches[step - 1]);
}

TEST_F(GroupTableTest, StartsGrownDatasetAtSameStepOnAllRanks) {
  for (const std::string refresh : {"epoch", "immediate"}) {
    SCOPED_TRACE(refresh);
    rows_ = 0;
    std::filesystem::remove(path("table.csv"));
    configure_table(77, ", refresh: " + refresh, "feed: {refresh_interval_seconds: 0.05}\n");
    socket_ = "auto";
    const std::string run = run_dir(refresh);
    for (int rank : {0, 1}) std::filesystem::remove(log_path(rank));
    auto ranks = start_group(2, run);
    ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) > 3; }));
    control(run, "pause");
    add_rows(20);
    ASSERT_TRUE(wait_until(kPatience, [&] {
      return output_of(0).find("new data found samples=97") != std::string::npos;
    })) << output_of(0);
    control(run, "resume");
    ASSERT_TRUE(wait_until(kPatience, [&] { return versions_of(run).size() == 2; }));
    EXPECT_EQ(versions_of(run)[1].start.ticket % 4, 0u);
    const uint64_t refreshed = versions_of(run)[1].start.ticket / 4;
    ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) > refreshed + 2; }));
    ranks[1]->signal(SIGTERM);
    expect_success(ranks);
    EXPECT_THAT(values_of(0, "training started", "start_step"),
                ElementsAre("0", std::to_string(refreshed)));
    EXPECT_EQ(values_of(1, "training started", "start_step"),
              values_of(0, "training started", "start_step"));

    // Another number of ranks continues with that version.
    end_at(newest_step(run) + 1);
    expect_success(start_group(4, run));
    // One process that takes the same versions trains the same.
    const std::string alone = run_dir("alone-" + refresh);
    std::filesystem::create_directories(alone);
    std::filesystem::copy(run + "/index", alone + "/index",
                          std::filesystem::copy_options::recursive);
    std::filesystem::copy(run + "/dataset_versions.jsonl", alone + "/dataset_versions.jsonl");
    train_alone(alone);
    expect_same_run(run, alone);

    // Also after the data has grown once more.
    add_rows(20);
    for (int rank = 0; rank < 4; ++rank) std::filesystem::remove(log_path(rank));
    end_at(newest_step(run) + 1);
    expect_success(start_group(4, run));
    for (int rank = 0; rank < 4; ++rank) {
      const auto samples = values_of(rank, "dataset opened", "samples");
      ASSERT_FALSE(samples.empty()) << "rank " << rank;
      EXPECT_EQ(samples.front(), "97") << "rank " << rank;
    }
  }
}

// ---- Commands while a rank has too many sample errors

class GroupSampleErrorsTest : public GroupTableTest {
 protected:
  struct Reply {
    std::string command;
    uint64_t step = 0;
  };

  // In the order of the table, so that each rank has the same four of the 16 rows of each step.
  void configure_errors_of_rank(int rank, int first_step) {
    constexpr int kSteps = 2000;
    std::ofstream table(path("table.csv"));
    table << "a,b,kind\n";
    for (int row = 0; row < 16 * kSteps; ++row) {
      const bool is_bad = row / 16 >= first_step && row % 16 / 4 == rank;
      table << (is_bad ? "many" : std::to_string(row % 7)) << "," << row % 5 << "," << row % 3
            << "\n";
    }
    table.close();
    rows_ = 16 * kSteps;
    save_every_ = 1'000'000;
    configure_table(0, "", "feed: {shuffle: none, max_sample_error_rate: 0.1}\n");
  }
  // Training is paused, and continues when all clients have sent the first ones. Few, because stokerd limits their rate.
  std::vector<Reply> send_commands(const std::string& run, int client, std::latch& all_sent) {
    std::vector<Reply> replies;
    // Its last digit is not 0, which the log omits.
    const std::string lr = "0.00" + std::to_string(client) + "1001";
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"set", "optimizer.lr", lr},
          {"pause"},
          {"checkpoint"},
          {"resume"}}) {
      if (command.front() == "resume") all_sent.arrive_and_wait();
      const std::string log = "client-" + std::to_string(client) + "-" + command.front();
      Process sent = ctl(run, joined({"--json"}, command), log);
      if (const int code = code_of(sent); code != 0) {
        ADD_FAILURE() << command.front() << ": exit code " << code << ", " << log_of(log);
        if (command.front() != "resume") all_sent.count_down();
        return replies;
      }
      const json::value reply = json::parse(log_of(log));
      replies.push_back({.command = command.front() == "set" ? "set " + lr : command.front(),
                         .step = reply.at("step").to_number<uint64_t>()});
    }
    return replies;
  }
  // Of the log, without the time.
  std::vector<std::string> lines_of(int rank, const std::string& event) const {
    std::ifstream log(log_path(rank));
    std::vector<std::string> lines;
    for (std::string line; std::getline(log, line);)
      if (const size_t at = line.find(event); at != std::string::npos)
        lines.push_back(line.substr(at));
    return lines;
  }
};

TEST_F(GroupSampleErrorsTest, EndsAllRanksForOneReasonAfterCommandsOfTwoClients) {
  configure_errors_of_rank(2, 600);
  socket_ = "auto";
  const std::string run = run_dir();
  auto ranks = start_group(4, run, {"--set", "checkpoint.keep_last=100000"});
  // As soon as there is a socket, long before the first error.
  ASSERT_TRUE(wait_until(kPatience, [&] {
    Process pause = ctl(run, {"pause"}, "pause");
    return code_of(pause) == 0;
  })) << log_of("pause");
  std::vector<std::vector<Reply>> replies(2);
  std::latch all_sent(2);
  {
    std::vector<std::jthread> clients;
    for (const int client : {0, 1})
      clients.emplace_back([&, client] {
        replies[static_cast<size_t>(client)] = send_commands(run, client + 1, all_sent);
      });
  }
  EXPECT_EQ(code_of(*ranks[2]), 65);
  constexpr const char* kReason =
      "data.train: [0-9]+ of [0-9]+ samples cannot be read, more than "
      "feed.max_sample_error_rate = 0.1";
  EXPECT_THAT(output_of(2), ContainsRegex(kReason));
  for (const int other : {0, 1, 3}) {
    const int code = other == 0 ? 65 : 73;  // the chief ends as the rank that is the cause
    EXPECT_EQ(code_of(*ranks[static_cast<size_t>(other)]), code);
    EXPECT_THAT(output_of(other),
                ContainsRegex("rank 2 \\([^ ]+, pid " + std::to_string(ranks[2]->pid()) +
                              "\\) failed: [^\n]*" + kReason));
  }
  EXPECT_THAT(text_of(run + "/exit_status.json"),
              AllOf(HasSubstr(R"("exit_code":65)"), HasSubstr("peer lost: rank 2 (")));
  for (const char* const event :
       {"live setting changed step=", "training paused step=", "training resumed step="}) {
    const auto lines = lines_of(0, event);
    EXPECT_FALSE(lines.empty()) << event;
    for (const int other : {1, 2, 3}) EXPECT_EQ(lines_of(other, event), lines) << event << other;
  }
  const auto changes = lines_of(0, "live setting changed step=");
  for (const auto& client : replies) {
    EXPECT_EQ(client.size(), 4u);
    for (const auto& [command, step] : client) {
      if (command == "checkpoint") {
        EXPECT_TRUE(
            fs::exists(run + "/checkpoints/" + checkpoint::CheckpointStore::checkpoint_name(step)));
      }
      if (command.starts_with("set ")) {
        EXPECT_THAT(changes, Contains(AllOf(HasSubstr("step=" + std::to_string(step) + " "),
                                            HasSubstr("current=" + command.substr(4)))));
      }
    }
  }
  expect_valid_checkpoints(run);
}

}  // namespace
}  // namespace stoker::test
