// What the results and the resources of a group depend on: the cores that its launcher allows, the layers of
// the model, the kind of the sums, and whether there is a group at all.
#include <sched.h>
#include <sys/types.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/core_share.h"
#include "tests/system/group_run_fixture.h"

namespace stoker::test {
namespace {

using testing::HasSubstr;

// As taskset, mpirun and srun do: the processes that this thread starts run on one core.
class BoundToCore {
 public:
  explicit BoundToCore(int core) {
    EXPECT_EQ(::sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~BoundToCore() { EXPECT_EQ(::sched_setaffinity(0, sizeof before_, &before_), 0); }
  BoundToCore(const BoundToCore&) = delete;
  BoundToCore& operator=(const BoundToCore&) = delete;

 private:
  cpu_set_t before_;
};

// Of all threads of the process, except those that have just ended.
void expect_bound(pid_t pid, int core) {
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    const int tid = std::atoi(thread.path().filename().c_str());
    cpu_set_t allowed;
    if (::sched_getaffinity(tid, sizeof allowed, &allowed) != 0) continue;
    EXPECT_TRUE(CPU_COUNT(&allowed) == 1 && CPU_ISSET(core, &allowed))
        << "thread " << tid << " of process " << pid << " may use other cores than " << core;
  }
}

TEST_F(GroupRunTest, UsesCoresThatLauncherAllowsEachRank) {
  const std::vector<int> cores = group::read_allowed_cores().cores;
  if (cores.size() < 2) GTEST_SKIP() << "this process may use one core only";
  configure_endless();
  std::vector<std::unique_ptr<Process>> ranks;
  for (const int rank : {0, 1}) {
    const BoundToCore bound(cores[static_cast<size_t>(rank)]);
    ranks.push_back(std::make_unique<Process>(
        start_rank(rank, 2, run_dir(), {"--set", "train.num_threads=null"})));
  }
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run_dir()) > 0; }));
  for (const int rank : {0, 1}) {
    const int core = cores[static_cast<size_t>(rank)];
    expect_logged("rank-" + std::to_string(rank),
                  "group opened world_size=2 num_threads=1 cores=" + std::to_string(core) + " ");
    const pid_t pid = ranks[static_cast<size_t>(rank)]->pid();
    expect_bound(pid, core);
    const auto readers = children_of(pid, "stoker-feed");
    EXPECT_FALSE(readers.empty());
    for (const pid_t reader : readers) expect_bound(reader, core);
  }
  ranks.back()->signal(SIGTERM);
  expect_success(ranks);
}

TEST_F(GroupRunTest, ReportsBatchNormAsReasonWhyResultsDependOnNumberOfRanks) {
  configure(8);
  expect_success(start_group(
      2, run_dir(),
      {"--set",
       "model={name: sequential, layers: [linear: {out_features: 32}, batch_norm, relu, linear]}",
       "--set", "distributed.consistency_check_every_steps=1"}));
  EXPECT_EQ(newest_step(run_dir()), 8u);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(output_of(rank),
                HasSubstr("reason=\"batch norm's statistics, such as 1.running_mean, are of the "
                          "micro-batches of one rank\""));
    EXPECT_EQ(count_in_log(rank, "results depend on the number of ranks"), 1);
  }
}

// The initial weights of rank 0, which the others get, are not contiguous in memory.
TEST_F(GroupRunTest, TrainsSameBytesWithWeightsInChannelsLast) {
  configure(16);
  const std::vector<std::string> settings{
      "--set",
      "data.train.input_shape=[3, 8, 8]",
      "--set",
      "data.val.input_shape=[3, 8, 8]",
      "--set",
      "train.channels_last=true",
      "--set",
      "model={name: sequential, layers: [conv2d: {out_channels: 4, kernel_size: 3}, relu, flatten, "
      "linear]}"};
  train_alone(run_dir(kAlone), settings);
  expect_success(start_group(2, run_dir("two"), settings));
  expect_same_run(run_dir("two"), run_dir(kAlone));
  expect_success(start_group(4, run_dir("four"), joined(settings, kSharded)));
  expect_same_state(run_dir("four"), run_dir(kAlone));
  // In its own order, so that only the ranks are compared, by themselves.
  expect_success(start_group(2, run_dir("sums"),
                             joined(settings, {"--set", "distributed.reduction=allreduce", "--set",
                                               "distributed.consistency_check_every_steps=1"})));
  EXPECT_EQ(newest_step(run_dir("sums")), 16u);
}

// Of each step.
std::vector<double> losses_of(const std::string& records) {
  std::vector<double> losses;
  std::istringstream lines(records);
  for (std::string line; std::getline(lines, line);)
    losses.push_back(json::parse(line).at("loss").to_number<double>());
  return losses;
}

// Equal on all ranks, which compare their parameters after each step, and except for rounding those of one
// process.
TEST_F(GroupRunTest, TrainsNearOneProcessWithAllReduceOfFourRanks) {
  configure(24);
  train_alone(run_dir(kAlone));
  expect_success(start_group(
      4, run_dir(),
      {"--set", "distributed.reduction=allreduce", "--set", "distributed.bucket_mib=0.001", "--set",
       "distributed.consistency_check_every_steps=1"}));
  const auto expected = losses_of(text_of(run_dir(kAlone) + "/metrics/train.jsonl"));
  const auto found = losses_of(text_of(run_dir() + "/metrics/train.jsonl"));
  ASSERT_EQ(found.size(), 24u);
  ASSERT_EQ(expected.size(), 24u);
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-3 * expected[i]) << "step " << i + 1;
}

// What is for groups changes nothing for one process without the section `distributed`: neither a launcher that
// starts one rank, nor the sums of a group, which add two micro-batches in the same order.
TEST_F(GroupRunTest, TrainsSameBytesAloneWithoutSettingsOfGroups) {
  write_config(small_config(), "group.yaml");
  max_steps_ = "24";
  micro_batches_ = 2;
  train_alone(run_dir(kAlone));
  expect_success(start_group(1, run_dir("launched")));
  expect_same_run(run_dir("launched"), run_dir(kAlone));
  train_alone(run_dir("ordered"),
              {"--set", "distributed.reduction=ordered", "--set", "run.rng=sequential"});
  expect_same_run(run_dir("ordered"), run_dir(kAlone));
  // Other random numbers are another run, so that the comparison can fail.
  train_alone(run_dir("per-ticket"), {"--set", "distributed.reduction=ordered"});
  EXPECT_NE(deterministic_records(run_dir("per-ticket")), deterministic_records(run_dir(kAlone)));
}

}  // namespace
}  // namespace stoker::test
