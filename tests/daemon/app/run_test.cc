#include "daemon/app/run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/service/run_directory.h"
#include "shared/base/hash.h"
#include "shared/config/load_config.h"
#include "shared/run/lineage.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace stoker::app {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::UnorderedElementsAre;
using testing::UnorderedElementsAreArray;

std::string replaced(std::string text, const std::string& before, const std::string& now) {
  const size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  return at == std::string::npos ? text : text.replace(at, before.size(), now);
}

// Of a tensor of 32-bit numbers in a checkpoint, which stays valid.
void set_first_value(const std::string& checkpoint, const std::string& tensor, float value) {
  FileSystem& files = default_file_system();
  const auto read = [&](const std::string& name) {
    return *read_file(join_path(checkpoint, name), 1 << 20);
  };
  const auto write = [&](const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_file_atomically(files, join_path(checkpoint, name), text).ok());
  };
  const std::string model = read("model.safetensors"), manifest = read("manifest.json");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, model.data(), sizeof header_bytes);
  const size_t named = model.find('"' + tensor + '"');
  ASSERT_NE(named, std::string::npos);
  const std::string key = "\"data_offsets\":[";
  const size_t offset = std::stoull(model.substr(model.find(key, named) + key.size()));
  std::string changed = model;
  std::memcpy(changed.data() + sizeof header_bytes + header_bytes + offset, &value, sizeof value);
  const std::string described = replaced(manifest, sha256_hex(model), sha256_hex(changed));
  std::string sums = replaced(read("SHA256SUMS"), sha256_hex(model), sha256_hex(changed));
  sums = replaced(sums, sha256_hex(manifest), sha256_hex(described));
  write("model.safetensors", changed);
  write("manifest.json", described);
  write("SHA256SUMS", sums);
}

// A run of four steps in the process of the test, with its workers as threads.
class RunTest : public testing::Test {
 protected:
  RunTest() : layout_(folder_ / "run") {
    EXPECT_TRUE(directory_.ok()) << directory_.status().to_string();
    auto config = config::parse_config(
        "data: {train: {format: synthetic, num_samples: 64, input_shape: [4], num_targets: 1}}\n"
        "model: {name: mlp, hidden_sizes: [8]}\n"
        "task: {name: regression}\n"
        "train: {max_steps: 4, micro_batch_size: 4, device: cpu, num_threads: 1}\n"
        "feed: {num_workers: 1, num_processes: 0}\n"
        "metrics: {tensorboard: false}\n",
        "test.yaml", {"run.dir=" + layout_.root()});
    EXPECT_TRUE(config.ok()) << config.status().message();
    if (config.ok()) config_ = *std::move(config);
    run_.emplace(config_, command_, layout_, system_clock());
  }
  // Runs to the end; `on_training` as in Run::train().
  Result<run::RunOutcome> train(const std::function<void()>& on_training = [] {}) {
    return run_->train(std::stop_token(), [&] {
      steps_at_start_.push_back(run_->step());
      EXPECT_TRUE(run_->is_prepared());
      on_training();
    });
  }
  void post(control::Command command) {
    run_->post(std::move(command), [this](const Result<std::string>& reply) {
      replies_.push_back(reply.ok() ? *reply : reply.status().to_string());
    });
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(layout_.checkpoints_dir()))
      if (entry.is_directory() && !entry.is_symlink()) names.push_back(entry.path().filename());
    return names;
  }

  static std::string name_of(uint64_t step) {
    return checkpoint::CheckpointStore::checkpoint_name(step);
  }
  // The configuration without train.max_steps.
  config::Config epochs(std::vector<std::string> overrides) const {
    overrides.push_back("train.max_steps=");
    auto config = config::parse_config(config::to_yaml(config_), "test.yaml", overrides);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config.ok() ? *std::move(config) : config::Config();
  }

  std::string checkpoint_path(uint64_t step) const {
    return join_path(layout_.checkpoints_dir(), checkpoint::CheckpointStore::checkpoint_name(step));
  }

  const test::TemporaryDirectory folder_{test::quick_folder()};
  const run::RunLayout layout_;
  const Result<service::RunDirectory> directory_ =
      service::RunDirectory::open(layout_, system_clock());
  config::Config config_;
  CommandLine command_;
  std::vector<uint64_t> steps_at_start_;
  std::vector<std::string> replies_;
  std::optional<app::Run> run_;  // testing::Test has a private Run()
};

TEST_F(RunTest, SavesLastStepAndReportsIt) {
  const auto outcome = train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, run::RunOutcome::kFinished);
  EXPECT_THAT(steps_at_start_, ElementsAre(0));
  EXPECT_THAT(checkpoints(), ElementsAre(checkpoint::CheckpointStore::checkpoint_name(4)));
  const auto status = run_->status();
  EXPECT_EQ(status->step, 4u);
  EXPECT_EQ(status->checkpoint.last_saved_step, 4u);
  EXPECT_EQ(status->feed.queue_capacity, static_cast<uint64_t>(config_.feed.prefetch_batches));
}

TEST_F(RunTest, ContinuesFromNewestCheckpoint) {
  ASSERT_TRUE(train().ok());
  config_.train.max_steps = 6;
  run_.emplace(config_, command_, layout_, system_clock());
  const auto outcome = train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_THAT(steps_at_start_, ElementsAre(0, 4));
  EXPECT_EQ(run_->step(), 6u);
}

// 64 samples: 16 micro-batches.
TEST_F(RunTest, ResolvesEpochsFromData) {
  config_ =
      epochs({"train.max_epochs=1.5", "train.gradient_accumulation_steps=2",
              "checkpoint.save_every_steps={epochs: 0.5}", "scheduler.warmup_steps={epochs: 0.2}"});
  run_.emplace(config_, command_, layout_, system_clock());
  ASSERT_TRUE(train().ok());
  EXPECT_EQ(run_->step(), 12u);
  EXPECT_EQ(run_->status()->max_steps, 12u);
  EXPECT_THAT(checkpoints(), UnorderedElementsAre(name_of(4), name_of(8), name_of(12)));
  const auto stored = config::load_config(layout_.config_file(), {});
  ASSERT_TRUE(stored.ok()) << stored.status().message();
  EXPECT_EQ(stored->train.max_steps, 12u);
  EXPECT_EQ(stored->scheduler.warmup_steps, 2u);
  EXPECT_EQ(stored->epochs, config_.epochs);
}

// After one epoch in 16 steps, a second one takes 8.
TEST_F(RunTest, EndsAfterSameEpochsWithAnotherBatchSize) {
  config_ = epochs({"train.max_epochs=1"});
  run_.emplace(config_, command_, layout_, system_clock());
  ASSERT_TRUE(train().ok());
  EXPECT_EQ(run_->step(), 16u);
  config_ = epochs({"train.max_epochs=2", "train.micro_batch_size=8"});
  command_.allowed[ChangeKind::kBatch] = true;
  run_.emplace(config_, command_, layout_, system_clock());
  ASSERT_TRUE(train().ok());
  EXPECT_EQ(run_->step(), 24u);
  // The next start counts from its own checkpoint.
  run_.emplace(config_, command_, layout_, system_clock());
  ASSERT_TRUE(train().ok());
  EXPECT_EQ(run_->step(), 24u);
}

TEST_F(RunTest, TakesMoreEpochsDuringRun) {
  config_ = epochs({"train.max_epochs=1"});
  run_.emplace(config_, command_, layout_, system_clock());
  post(control::SetSetting{.key = "train.max_epochs", .value = "1.25"});
  ASSERT_TRUE(train().ok());
  EXPECT_EQ(run_->step(), 20u);
  EXPECT_THAT(replies_, ElementsAre(HasSubstr("\"value\":1.25")));
}

// The second segment continues from the checkpoints of this run.
TEST_F(RunTest, SavesStateResumedFromElsewhereBeforeNextSegment) {
  ASSERT_TRUE(train().ok());
  const std::string elsewhere = folder_ / "elsewhere";
  std::filesystem::rename(layout_.checkpoints_dir(), elsewhere);
  std::filesystem::remove(layout_.last_checkpoint_file());
  const std::string fourth = checkpoint::CheckpointStore::checkpoint_name(4);
  command_.resume = join_path(elsewhere, fourth);
  config_.train.max_steps = 6;
  run_.emplace(config_, command_, layout_, system_clock());
  post(control::SetSetting{.key = "feed.num_workers", .value = "2"});
  const auto outcome = train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(steps_at_start_.back(), 4u);
  EXPECT_EQ(run_->step(), 6u);
  EXPECT_THAT(checkpoints(), IsSupersetOf({fourth}));
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_THAT(replies_[0], HasSubstr("\"step\":4"));
}

TEST_F(RunTest, DrawsNoInitialWeightsThatCheckpointReplaces) {
  ASSERT_TRUE(train().ok());
  // On a new run, a pattern that applies to no parameter is an error.
  config_.model.init = {{"fc.*", config::ZerosInit{}}};
  config_.train.max_steps = 6;
  run_.emplace(config_, command_, layout_, system_clock());
  const auto outcome = train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(run_->step(), 6u);
  // Tensors without a counterpart in the checkpoint keep their initial values.
  command_.allowed[ChangeKind::kModel] = true;
  run_.emplace(config_, command_, layout_, system_clock());
  EXPECT_THAT(train().status().message(), HasSubstr("model.init: 'fc.*' applies to no parameter"));
}

TEST_F(RunTest, SavesInitialStateAndResumesFromIt) {
  config_.checkpoint.save_at_start = true;
  run_.emplace(config_, command_, layout_, system_clock());
  ASSERT_TRUE(train().ok());
  const std::string first = checkpoint::CheckpointStore::checkpoint_name(0),
                    last = checkpoint::CheckpointStore::checkpoint_name(4);
  EXPECT_THAT(checkpoints(), UnorderedElementsAre(first, last));
  command_.resume = join_path(layout_.checkpoints_dir(), first);
  run_.emplace(config_, command_, layout_, system_clock());
  const auto outcome = train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_THAT(steps_at_start_, ElementsAre(0, 0));
  EXPECT_THAT(checkpoints(), IsSupersetOf({first, last}));
  EXPECT_EQ(run_->status()->checkpoint.failed_total, 0u) << "step 0 was saved again";
}

// With the files of its evaluator still there.
TEST_F(RunTest, LeavesBranchOfRunWhoseCheckpointsWereRemoved) {
  const auto manifest = [this] {
    return sha256_hex(*read_file(checkpoint_path(4) + "/manifest.json", 1 << 20));
  };
  const auto is_present = [this](const std::string& sha256) {
    return run::read_lineage(layout_.lineage_file())->contains(4, sha256);
  };
  ASSERT_TRUE(train().ok());
  const std::string removed = manifest();
  EXPECT_TRUE(is_present(removed));
  std::filesystem::remove_all(layout_.checkpoints_dir());
  std::filesystem::remove(layout_.last_checkpoint_file());
  run_.emplace(config_, command_, layout_, system_clock());
  ASSERT_TRUE(train().ok());
  ASSERT_NE(manifest(), removed) << "it has the time";
  EXPECT_TRUE(is_present(manifest()));
  EXPECT_FALSE(is_present(removed));
}

// As earlier releases could save it.
TEST_F(RunTest, NamesEarlierCheckpointIfStateIsNotFinite) {
  config_.model.arch =
      config::SequentialConfig{.layers = {config::BatchNormLayer{}, config::LinearLayer{}}};
  config_.checkpoint.save_at_start = true;
  run_.emplace(config_, command_, layout_, system_clock());
  ASSERT_TRUE(train().ok());
  const auto names = checkpoints();
  const auto error_of_start = [&] {
    config_.train.max_steps = 6;
    run_.emplace(config_, command_, layout_, system_clock());
    const Status error = train().status();
    EXPECT_EQ(exit_code_for(error), ExitCode::kDataError) << error.to_string();
    EXPECT_THAT(checkpoints(), UnorderedElementsAreArray(names));
    return error.message();
  };
  set_first_value(checkpoint_path(4), "0.running_var", std::numeric_limits<float>::infinity());
  EXPECT_EQ(error_of_start(), checkpoint_path(4) +
                                  ": 0.running_var is not finite; nothing was changed; resume from "
                                  "an earlier one with --resume " +
                                  checkpoint_path(0));
  set_first_value(checkpoint_path(0), "0.running_mean", std::nanf(""));
  EXPECT_EQ(error_of_start(),
            checkpoint_path(4) +
                ": 0.running_var is not finite; nothing was changed; start over with --fresh");

  set_first_value(checkpoint_path(0), "0.running_mean", 0);
  command_.resume = checkpoint_path(0);
  run_.emplace(config_, command_, layout_, system_clock());
  const auto outcome = train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(steps_at_start_.back(), 0u);
  EXPECT_EQ(run_->step(), 6u);
}

TEST_F(RunTest, RejectsPretrainedWeightsThatAreNotFinite) {
  ASSERT_TRUE(train().ok());
  set_first_value(checkpoint_path(4), "0.weight", std::nanf(""));
  const std::string weights = folder_ / "weights.safetensors";
  std::filesystem::rename(checkpoint_path(4) + "/model.safetensors", weights);
  std::filesystem::remove_all(layout_.checkpoints_dir());
  std::filesystem::remove(layout_.last_checkpoint_file());
  config_.model.pretrained.emplace().path = weights;
  run_.emplace(config_, command_, layout_, system_clock());
  const Status error = train().status();
  EXPECT_EQ(exit_code_for(error), ExitCode::kDataError);
  EXPECT_THAT(error.message(), HasSubstr("0.weight is not finite before the first step; check "
                                         "model.pretrained.path"));
  EXPECT_FALSE(std::filesystem::exists(layout_.last_checkpoint_file()));
}

TEST_F(RunTest, InspectsInputsWithTheirFiles) {
  for (const char* const name : {"a.csv", "b.csv"}) {
    std::ofstream file(folder_ / name);
    file << "x,y\n";
    for (int row = 0; row < 4; ++row) file << row << ",1\n";
  }
  auto config = config::parse_config(
      "data: {train: {format: csv, path: " + (folder_ / "") +
          ", glob: \"*.csv\",\n"
          "               fields: {input: [x], target: [y]}}}\n"
          "model: {name: mlp, hidden_sizes: [8]}\n"
          "task: {name: regression}\n"
          "train: {max_steps: 2, micro_batch_size: 8, device: cpu, num_threads: 1}\n"
          "feed: {num_workers: 1, num_processes: 0, shuffle: none}\n"
          "metrics: {tensorboard: false}\n",
      "test.yaml", {"run.dir=" + layout_.root()});
  ASSERT_TRUE(config.ok()) << config.status().message();
  config_ = *std::move(config);
  run_.emplace(config_, command_, layout_, system_clock());
  const auto outcome = train([&] {
    post(control::OpenInspection{.glob = "*",
                                 .steps = 1,
                                 .parameters = false,
                                 .gradients = false,
                                 .activations = false,
                                 .inputs = true});
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  const auto read = run_->peek_inspection(1, 0);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_THAT(*read, HasSubstr(R"("step":1,"ticket":0,"num_files":2,"files":[")"));
  EXPECT_THAT(*read, AllOf(HasSubstr("a.csv"), HasSubstr("b.csv")));
  EXPECT_THAT(*read,
              HasSubstr(R"("name":"input","dtype":"F32","shape":[8,1],"count":8,"mean":1.5E0,)"));
}

TEST_F(RunTest, ChangesNothingOnStopBeforePreparation) {
  run_->request_stop();
  const auto outcome = train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, run::RunOutcome::kStopped);
  EXPECT_THAT(steps_at_start_, IsEmpty());
  EXPECT_FALSE(run_->is_prepared());
  EXPECT_FALSE(std::filesystem::exists(layout_.config_file()));
  EXPECT_THAT(checkpoints(), IsEmpty());
}

// The wait itself is tested in resume_checkpoint_test.cc.
TEST_F(RunTest, PublishesLockThatItWaitsForUntilStopped) {
  ASSERT_TRUE(train().ok());
  const std::string sums = join_path(
      layout_.checkpoints_dir(), checkpoint::CheckpointStore::checkpoint_name(4) + "/SHA256SUMS");
  const UniqueFd held(::open(sums.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX | LOCK_NB), 0);
  run_.emplace(config_, command_, layout_, system_clock());
  std::string waiting_for;
  std::thread user([&] {
    EXPECT_TRUE(
        test::eventually([&] { return !(waiting_for = run_->status()->waiting_for).empty(); }));
    run_->request_stop();
  });
  const auto outcome = train();
  user.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, run::RunOutcome::kStopped);
  EXPECT_THAT(waiting_for, HasSubstr(sums + ": locked exclusively by pid "));
  EXPECT_EQ(run_->status()->waiting_for, "");
  EXPECT_THAT(steps_at_start_, ElementsAre(0)) << "it was not trained again";
}

TEST_F(RunTest, ReturnsExceptionsAsErrors) {
  const auto outcome = train([] { throw std::bad_alloc(); });
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.status().code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(outcome.status().message(), HasSubstr("the host has no memory left"));
}

TEST_F(RunTest, ExecutesCommandsPostedBeforeFirstStep) {
  const auto outcome = train([&] { post(control::Stop{}); });
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, run::RunOutcome::kStopped);
  EXPECT_EQ(run_->step(), 0u);
  EXPECT_THAT(replies_, ElementsAre(HasSubstr("\"state\":\"stopping\"")));
}

TEST_F(RunTest, RejectsProducerDuringPreparation) {
  const auto attached = run_->attach(::getpid(), UniqueFd());
  EXPECT_EQ(attached.status().code(), StatusCode::kBusy);
  EXPECT_THAT(attached.status().message(), HasSubstr("being prepared"));
}

TEST_F(RunTest, RejectsPendingAndLaterCommandsWhenTrainingHasFailed) {
  command_.resume = layout_.root() + "/missing";
  post(control::SaveCheckpoint{});
  EXPECT_THAT(replies_, IsEmpty());
  EXPECT_FALSE(train().ok());
  EXPECT_EQ(replies_.size(), 1u);
  post(control::Pause{});
  EXPECT_THAT(replies_,
              ElementsAre(HasSubstr("training has ended"), HasSubstr("training has ended")));
}

}  // namespace
}  // namespace stoker::app
