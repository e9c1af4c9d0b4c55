// Ranks that would not train the same run: all end with 78 before the first step, and name the rank and
// what differs. The setting that differs is in group_run_test.cc.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/app/group_start.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/config/load_config.h"
#include "shared/run/run_layout.h"
#include "tests/system/group_run_fixture.h"

namespace stoker::test {
namespace {

using testing::ContainsRegex;

class GroupMismatchTest : public GroupRunTest {
 protected:
  // As hosts whose file systems differ: a working directory for each rank.
  std::string directory_of(int rank) const { return path("host-" + std::to_string(rank)); }
  void write_on_each(const std::string& name, const std::string& first, const std::string& second) {
    for (const int rank : {0, 1}) {
      std::filesystem::create_directories(directory_of(rank));
      std::ofstream(directory_of(rank) + "/" + name, std::ios::binary)
          << (rank == 0 ? first : second);
    }
  }
  void configure_model(const std::string& model) {
    std::string config = small_config("distributed: {reduction: ordered}\n");
    const size_t begin = config.find("{name: mlp");
    ASSERT_NE(begin, std::string::npos);
    config.replace(begin, config.find('\n', begin) - begin, model);
    write_config(config, "group.yaml");
    max_steps_ = "24";
  }
  // `variables` of rank 1.
  void expect_mismatch(const std::string& name, const std::string& values,
                       const std::vector<std::string>& more = {},
                       const std::vector<std::string>& variables = {}) {
    for (const int rank : {0, 1}) std::filesystem::create_directories(directory_of(rank));
    auto chief = start_rank(0, 2, run_dir(), more, {"/usr/bin/env", "-C", directory_of(0)});
    auto other = start_rank(1, 2, run_dir(), more,
                            joined({"/usr/bin/env", "-C", directory_of(1)}, variables));
    EXPECT_EQ(code_of(chief), 78);
    EXPECT_EQ(code_of(other), 78);
    for (const int rank : {0, 1})
      EXPECT_THAT(output_of(rank),
                  ContainsRegex("rank 1 \\([^ ]+, pid " + std::to_string(other.pid()) +
                                "\\): " + name + " is " + values + " on rank 0; start all ranks"));
    EXPECT_EQ(newest_record_step(run_dir()), 0u);
  }
};

TEST_F(GroupMismatchTest, NamesRankWhoseBuildComputesDifferently) {
  configure(24);
  expect_mismatch("CPU capability", "DEFAULT, but [A-Z0-9]+", {}, {"ATEN_CPU_CAPABILITY=default"});
}

// This test is rank 1, as stokerd starts it, of a build that differs in its version only.
TEST_F(GroupMismatchTest, NamesRankWithOtherVersion) {
  ::signal(SIGPIPE, SIG_IGN);
  configure(24);
  std::vector<std::string> overrides;
  const std::vector<std::string> command = arguments(run_dir());
  for (size_t i = 0; i < command.size(); ++i)
    if (command[i] == "--set") overrides.push_back(command[i + 1]);
  const auto config = config::load_config(path("group.yaml"), overrides);
  ASSERT_TRUE(config.ok()) << config.status().message();
  group::SharedSettings settings = app::shared_settings(*config);
  const auto version =
      std::ranges::find(settings, "stoker version", &group::SharedSettings::value_type::first);
  ASSERT_NE(version, settings.end());
  const std::string own = std::exchange(version->second, "0.0.0");

  auto chief = start_rank(0, 2, run_dir());
  const run::RunLayout layout(run_dir());
  std::filesystem::create_directories(layout.rank_dir(1));
  const auto lock = lock_file(app::layout_of_rank(layout, 1).lock_file(), "the test");
  ASSERT_TRUE(lock.ok()) << lock.status().message();
  const auto opened = app::open_process_group(*config,
                                              {.launcher = group::Launcher::kTorchrun,
                                               .rank = 1,
                                               .world_size = 2,
                                               .local_rank = 1,
                                               .local_world_size = 2,
                                               .store_host = "127.0.0.1",
                                               .store_port = static_cast<uint16_t>(port_.number())},
                                              layout, {}, nullptr, {});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Status same = (*opened)->check_same(settings, {});
  EXPECT_EQ(exit_code_for(same), ExitCode::kConfiguration);
  EXPECT_EQ(code_of(chief), 78);
  const std::string difference = "rank 1 \\([^ ]+, pid " + std::to_string(::getpid()) +
                                 "\\): stoker version is 0.0.0, but " + own +
                                 " on rank 0; start all ranks";
  EXPECT_THAT(same.message(), ContainsRegex(difference));
  EXPECT_THAT(output_of(0), ContainsRegex(difference));
  EXPECT_EQ(newest_record_step(run_dir()), 0u);
}

// Also if its parameters are the same.
TEST_F(GroupMismatchTest, NamesRankWithOtherPlugin) {
  const std::string plugin = text_of(STOKER_PLUGINS "/gated_mlp.so");
  configure_model("{name: plugin, path: model.so}");
  write_on_each("model.so", plugin, plugin + '\n');
  expect_mismatch("model file digest", "[0-9a-f]+, but [0-9a-f]+");
  write_on_each("model.so", plugin, text_of(STOKER_PLUGINS "/odd_plugin.so"));
  expect_mismatch("model digest", "[0-9a-f]+, but [0-9a-f]+");
}

TEST_F(GroupMismatchTest, NamesRankThatReadsOtherData) {
  write_on_each("table.csv", "a,b,kind\n1,2,0\n3,4,1\n", "a,b,kind\n1,2,0\n3,5,1\n5,6,1\n");
  write_config(R"(
data: {train: {format: csv, fields: {label: kind}, path: table.csv}}
model: {name: mlp, hidden_sizes: [16]}
task: {name: classification}
train: {max_steps: 1, device: cpu, num_threads: 1}
distributed: {reduction: ordered}
)",
               "group.yaml");
  max_steps_ = "24";
  expect_mismatch("data.train fingerprint", "[0-9a-f]+, but [0-9a-f]+");
}

// Weights that the checkpoints of the run do not have.
TEST_F(GroupMismatchTest, NamesRankThatReadsOtherPretrainedWeights) {
  write_config(text_config("distributed: {reduction: ordered}\n"), "group.yaml");
  for (const int rank : {0, 1}) {
    max_steps_ = std::to_string(rank + 1);
    const std::string base = run_dir("base-" + std::to_string(rank));
    train_alone(base);
    std::filesystem::create_directories(directory_of(rank));
    std::filesystem::copy(newest_checkpoint(base), directory_of(rank) + "/base",
                          std::filesystem::copy_options::recursive);
  }
  max_steps_ = "24";
  expect_mismatch("base weights", "[0-9a-f]+, but [0-9a-f]+",
                  {"--set", "model.pretrained.path=base", "--set",
                   "model.lora={r: 2, lora_alpha: 4, target_modules: all-linear}"});
}

}  // namespace
}  // namespace stoker::test
