#include "daemon/train/trainer.h"

#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/schedule.h"
#include "shared/base/coordinator.h"
#include "shared/dataset/dataset_decorator.h"
#include "shared/feed/plan_settings.h"
#include "shared/feed/reader_pool.h"

namespace stoker::train {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

config::Config small_config(uint64_t steps) {
  config::Config config;
  config.data["train"].kind = config::DatasetKind::kSynthetic;
  config.data["train"].samples = 64;
  config.data["train"].features = {8};
  config.data["train"].targets = 2;
  config.model.kind = config::ModelKind::kMlp;
  config.model.hidden = {16};
  config.model.dropout = 0.1;  // so that the generator's state matters
  config.task.kind = config::TaskKind::kRegression;
  config.optimizer.lr = 0.01;
  config.schedule.warmup_steps = 2;
  config.train.steps = steps;
  config.train.batch = 4;
  config.checkpoint.every_steps = 0;
  config.checkpoint.every_seconds = 0;
  config.metrics.every_steps = 3;
  return config;
}

// A data set in which some samples hold what is not a number.
class PoisonedDataset final : public dataset::DatasetDecorator {
 public:
  PoisonedDataset(std::unique_ptr<dataset::Dataset> inner,
                  std::function<bool(uint64_t)> is_poisoned)
      : DatasetDecorator(*inner), inner_(std::move(inner)), is_poisoned_(std::move(is_poisoned)) {}

  Status read(uint64_t sample, const dataset::DrawKey& draw,
              std::span<const std::span<std::byte>> outputs) const override {
    STOKER_RETURN_IF_ERROR(inner_->read(sample, draw, outputs));
    const float poison = std::nanf("");
    if (is_poisoned_(sample)) std::memcpy(outputs[0].data(), &poison, sizeof poison);
    return {};
  }

 private:
  std::unique_ptr<dataset::Dataset> inner_;
  std::function<bool(uint64_t)> is_poisoned_;
};

// One process's part of a run: everything between a checkpoint directory and the trainer.
class Session {
 public:
  Session(
      const config::Config& config, const std::string& root,
      std::function<bool(uint64_t)> is_poisoned = [](uint64_t) { return false; })
      : config_(config), store_(root + "/checkpoints", real_files()) {
    at::set_num_threads(1);
    writer::WriterSettings settings;
    settings.retention = [] { return checkpoint::Retention{.keep_last = 100}; };
    settings.delays.clear();
    writer_ = std::make_unique<writer::CheckpointWriter>(store_, settings);
    data_ = std::make_unique<PoisonedDataset>(
        *dataset::open_dataset("train", config.data.at("train"), root + "/index", {}),
        std::move(is_poisoned));
    plan_.emplace(*feed::plan_settings(config, *data_, {}));
    state_ = *TrainingState::create(config, *data_, c10::Device(c10::kCPU));
    const auto newest = store_.open_newest({});
    if (newest.ok()) {
      EXPECT_TRUE(state_->restore(*newest).ok());
    }
    const ring::BatchLayout layout(data_->spec(), static_cast<uint64_t>(config.train.batch));
    const auto end = config.train.steps * static_cast<uint64_t>(config.train.accumulate);
    ring_ = *ring::ShmRing::create(layout,
                                   {.slots = 2, .first_ticket = state_->ticket, .end_ticket = end});
    pool_ =
        std::make_unique<feed::ReaderPool>(*ring_, *ring_->add_producer("test"), *data_, *plan_);
    pool_->start(1, threads_);
    threads_.start("checkpoints", [this](std::stop_token stop) { return writer_->run(stop); });
    trainer_.emplace(config_, *state_,
                     TrainerLinks{*ring_,
                                  *plan_,
                                  *writer_,
                                  mailbox_,
                                  board_,
                                  system_clock(),
                                  [this](const metrics::TrainRow& row) {
                                    rows_.push_back(row);
                                    if (on_row) on_row(row);
                                    return uint64_t{0};
                                  },
                                  [] {
                                    return std::vector<uint64_t>{31, 7};
                                  },
                                  {.data_digest = "the data"},
                                  0});
  }
  ~Session() {
    threads_.request_stop();
    EXPECT_TRUE(threads_.join(60s).ok());
  }

  Result<Trainer::Outcome> train() { return trainer_->run(stop_.get_token()); }
  void ask(Request::Kind kind, double value = 0) {
    mailbox_.post({kind, value, [this](Result<std::string> reply) {
                     replies_.push_back(reply.ok() ? *reply : reply.status().to_string());
                   }});
  }
  std::vector<uint64_t> saved() const {
    std::vector<uint64_t> steps;
    for (const auto& entry : *store_.list()) steps.push_back(entry.step);
    return steps;
  }
  std::string model_sha256() const {
    const auto newest = store_.open_newest({});
    EXPECT_TRUE(newest.ok());
    return newest->manifest().files.at(0).sha256;
  }

  std::function<void(const metrics::TrainRow&)> on_row;  // on the trainer's thread
  const config::Config config_;
  checkpoint::CheckpointStore store_;
  std::unique_ptr<writer::CheckpointWriter> writer_;
  std::unique_ptr<dataset::Dataset> data_;
  std::optional<dataset::SamplePlan> plan_;
  std::unique_ptr<TrainingState> state_;
  std::unique_ptr<ring::ShmRing> ring_;
  std::unique_ptr<feed::ReaderPool> pool_;
  Mailbox mailbox_;
  StatusBoard board_;
  std::vector<metrics::TrainRow> rows_;
  std::vector<std::string> replies_;
  std::optional<Trainer> trainer_;
  std::stop_source stop_;
  Coordinator threads_;
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() { root_ = fresh(); }
  ~TrainerTest() override {
    for (const std::string& folder : folders_) std::filesystem::remove_all(folder);
  }
  std::string fresh() {
    std::string name = (std::filesystem::temp_directory_path() / "stoker-train-XXXXXX").string();
    folders_.emplace_back(::mkdtemp(name.data()));
    return folders_.back();
  }

  std::vector<std::string> folders_;
  std::string root_;
};

TEST_F(TrainerTest, TrainsToTheLastStepReportsAndSaves) {
  auto config = small_config(10);
  config.checkpoint.every_steps = 4;
  Session run(config, root_);
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, Trainer::Outcome::kFinished);
  std::vector<uint64_t> reported;
  for (const auto& row : run.rows_) reported.push_back(row.step);
  EXPECT_THAT(reported, ElementsAre(3, 6, 9, 10));
  EXPECT_LT(run.rows_.back().loss, run.rows_.front().loss);
  EXPECT_EQ(run.rows_.back().samples, 40u);
  EXPECT_EQ(run.saved().back(), 10u);
  EXPECT_EQ(run.board_.step(), 10u);
}

TEST_F(TrainerTest, ResumesBitForBitInTheMiddleOfAnIntervalAndAnEpoch) {
  Session whole(small_config(40), root_);
  ASSERT_TRUE(whole.train().ok());

  const std::string other = fresh();
  std::vector<metrics::TrainRow> rows;
  for (const uint64_t leave_at : {7u, 23u, 40u}) {
    Session part(small_config(40), other);
    // The first report of this part asks for a save at the step that follows it; the stop is then
    // between two reports.
    part.on_row = [&](const metrics::TrainRow& row) {
      if (row.step + 3 > leave_at && leave_at < 40) part.ask(Request::Kind::kStop);
    };
    ASSERT_TRUE(part.train().ok());
    rows.insert(rows.end(), part.rows_.begin(), part.rows_.end());
    if (leave_at == 40) {
      EXPECT_EQ(part.model_sha256(), whole.model_sha256());
    }
  }
  ASSERT_EQ(rows.size(), whole.rows_.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].step, whole.rows_[i].step);
    EXPECT_EQ(rows[i].loss, whole.rows_[i].loss) << rows[i].step;
    EXPECT_EQ(rows[i].lr, whole.rows_[i].lr);
    EXPECT_EQ(rows[i].grad_norm, whole.rows_[i].grad_norm);
  }
}

TEST_F(TrainerTest, ResumesBitForBitWithGroupsAndFrozenParameters) {
  auto config = small_config(20);
  config.model.freeze = {"0.weight"};
  config.optimizer.groups = {{.match = "*.bias", .lr_scale = 2, .weight_decay = 0.0},
                             {.match = "*.weight", .lr_scale = 0.5}};
  Session whole(config, root_);
  ASSERT_TRUE(whole.train().ok());
  const std::string other = fresh();
  {
    Session part(config, other);
    part.on_row = [&](const metrics::TrainRow& row) {
      if (row.step == 6) part.ask(Request::Kind::kStop);
    };
    ASSERT_TRUE(part.train().ok());
  }
  Session rest(config, other);
  ASSERT_TRUE(rest.train().ok());
  EXPECT_EQ(rest.model_sha256(), whole.model_sha256());
}

TEST_F(TrainerTest, AccumulatedMicroBatchesAreOneStep) {
  auto config = small_config(6);
  config.model.dropout = 0;
  Session whole(config, root_);
  ASSERT_TRUE(whole.train().ok());
  config.train.batch = 2;
  config.train.accumulate = 2;
  Session parts(config, fresh());
  ASSERT_TRUE(parts.train().ok());
  EXPECT_EQ(parts.rows_.back().samples, whole.rows_.back().samples);
  EXPECT_NEAR(parts.rows_.back().loss, whole.rows_.back().loss, 1e-6);
}

TEST_F(TrainerTest, StopsBetweenStepsAndSavesThatStep) {
  Session run(small_config(1000), root_);
  run.on_row = [&](const metrics::TrainRow& row) {
    if (row.step == 6) run.ask(Request::Kind::kStop);
  };
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(*outcome, Trainer::Outcome::kStopped);
  EXPECT_THAT(run.saved(), ElementsAre(6));
  EXPECT_THAT(run.replies_, ElementsAre(HasSubstr("\"state\":\"stopping\"")));
}

TEST_F(TrainerTest, APauseHoldsUntilResumed) {
  Session run(small_config(9), root_);
  run.on_row = [&](const metrics::TrainRow& row) {
    if (row.step == 3) run.ask(Request::Kind::kPause);
  };
  auto training = std::async(std::launch::async, [&] { return run.train(); });
  while (run.board_.read()->state != control::TrainerState::kPaused) std::this_thread::yield();
  EXPECT_EQ(run.board_.step(), 3u);
  EXPECT_EQ(training.wait_for(0s), std::future_status::timeout);
  run.mailbox_.post({Request::Kind::kResume, 0, {}});
  const auto outcome = training.get();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(*outcome, Trainer::Outcome::kFinished);
}

TEST_F(TrainerTest, SetLrScalesTheScheduleFromThenOnAlsoAfterAResume) {
  const auto config = small_config(12);
  {
    Session run(config, root_);
    run.on_row = [&](const metrics::TrainRow& row) {
      if (row.step == 3) run.ask(Request::Kind::kSetLr, 0.001);
      if (row.step == 6) run.ask(Request::Kind::kStop);
    };
    ASSERT_TRUE(run.train().ok());
  }
  Session rest(config, root_);
  ASSERT_TRUE(rest.train().ok());
  const auto planned = [&](uint64_t step) {
    return learning_rate(config.schedule, config.optimizer.lr, step, config.train.steps);
  };
  const double scale = 0.001 / planned(3);
  ASSERT_FALSE(rest.rows_.empty());
  EXPECT_EQ(rest.rows_[0].step, 9u);
  EXPECT_EQ(rest.rows_[0].lr, scale * planned(8)) << "to the last bit";
}

TEST_F(TrainerTest, ACheckpointCommandIsAnsweredWhenItIsSaved) {
  Session run(small_config(9), root_);
  run.on_row = [&](const metrics::TrainRow& row) {
    if (row.step == 3) run.ask(Request::Kind::kCheckpoint);
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_EQ(run.saved().front(), 3u);
  EXPECT_THAT(run.replies_, ElementsAre("{\"step\":3}"));
}

TEST_F(TrainerTest, ACheckpointSaysWhatTheRunIsAndWhatItSetAside) {
  auto config = small_config(8);
  config.checkpoint.every_steps = 4;
  {
    Session run(config, root_);
    ASSERT_TRUE(run.train().ok());
  }
  Session next(config, root_);
  EXPECT_THAT(next.state_->quarantined, ElementsAre(31, 7));
  const auto newest = next.store_.open_newest({});
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->manifest().data_digest, "the data");
  EXPECT_EQ(newest->manifest().step, 8u);
  EXPECT_EQ(newest->manifest().ticket, 8u);
  if (next.saved().size() == 2) {
    EXPECT_EQ(newest->manifest().parent, "step-000000004");
  }
}

TEST_F(TrainerTest, ACheckpointCommandBeforeTheFirstStepSavesTheBeginning) {
  Session run(small_config(9), root_);
  run.ask(Request::Kind::kCheckpoint);
  ASSERT_TRUE(run.train().ok());
  EXPECT_EQ(run.saved().front(), 0u);
  EXPECT_THAT(run.replies_, ElementsAre("{\"step\":0}"));
}

TEST_F(TrainerTest, ALossThatIsNotANumberEndsTheRunAndSavesNothing) {
  auto config = small_config(50);
  config.optimizer.kind = config::OptimizerKind::kSgd;
  config.optimizer.lr = 1e20;
  config.optimizer.clip_norm = 0;
  config.schedule.warmup_steps = 0;
  Session run(config, root_);
  const auto outcome = run.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.status().code(), Code::kCorrupt);
  EXPECT_THAT(outcome.status().message(), HasSubstr("not a number at step"));
  EXPECT_TRUE(run.saved().empty());
}

TEST_F(TrainerTest, SkippingChangesNothingWhereEverythingIsFinite) {
  for (const auto kind : {config::OptimizerKind::kSgd, config::OptimizerKind::kMomentum,
                          config::OptimizerKind::kAdam, config::OptimizerKind::kAdamW}) {
    std::vector<std::string> hashes;
    for (const char* const policy : {"stop", "skip"}) {
      auto config = small_config(10);
      config.optimizer.kind = kind;
      config.train.on_nonfinite = policy;
      Session run(config, fresh());
      ASSERT_TRUE(run.train().ok());
      hashes.push_back(run.model_sha256());
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  }
}

TEST_F(TrainerTest, AStepThatIsNotFiniteIsSkippedAndTheOthersCount) {
  auto config = small_config(32);  // two epochs, with one bad step each
  config.train.on_nonfinite = "skip";
  Session run(config, root_, [](uint64_t sample) { return sample == 5; });
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, Trainer::Outcome::kFinished);
  EXPECT_EQ(run.state_->skipped_steps, 2u);
  EXPECT_EQ(run.board_.read()->skipped_steps, 2u);
  for (const metrics::TrainRow& row : run.rows_) {
    EXPECT_TRUE(std::isfinite(row.loss)) << row.step;
    EXPECT_TRUE(std::isfinite(row.grad_norm)) << row.step;
  }
  Session again(config, root_);
  EXPECT_EQ(again.state_->skipped_steps, 2u) << "it is part of the checkpoint";
}

TEST_F(TrainerTest, SkippedStepsLeaveTheModelAsItWas) {
  for (const auto kind : {config::OptimizerKind::kMomentum, config::OptimizerKind::kAdamW}) {
    auto config = small_config(4);
    config.optimizer.kind = kind;
    config.train.on_nonfinite = "skip";
    config.metrics.every_steps = 1;
    Session run(config, fresh(), [](uint64_t) { return true; });
    run.ask(Request::Kind::kCheckpoint);  // before the first step
    ASSERT_TRUE(run.train().ok());
    const auto entries = *run.store_.list();
    ASSERT_EQ(entries.size(), 2u);
    const auto first = *checkpoint::CheckpointStore::open_verified(entries.front().path);
    const auto last = *checkpoint::CheckpointStore::open_verified(entries.back().path);
    EXPECT_EQ(first.manifest().files.at(0).sha256, last.manifest().files.at(0).sha256);
    EXPECT_EQ(first.manifest().files.at(1).sha256, last.manifest().files.at(1).sha256);
    EXPECT_TRUE(std::isnan(run.rows_.back().loss));
  }
}

TEST_F(TrainerTest, TooManySkippedStepsInARowEndTheRun) {
  auto config = small_config(50);
  config.train.on_nonfinite = "skip";
  config.train.nonfinite_limit = 6;
  Session run(config, root_, [](uint64_t) { return true; });
  const auto outcome = run.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.status().code(), Code::kCorrupt);
  EXPECT_THAT(outcome.status().message(), HasSubstr("at step 6, nor at the 5 steps before"));
}

TEST_F(TrainerTest, ASpoiledStateAsksForARollbackAndIsNotSaved) {
  auto config = small_config(50);
  config.train.on_nonfinite = "rollback";
  config.train.nonfinite_limit = 2;
  config.checkpoint.every_steps = 3;
  Session run(config, root_, [](uint64_t) { return true; });
  run.on_row = [](const metrics::TrainRow&) { FAIL() << "a spoiled step was reported"; };
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, Trainer::Outcome::kRollBack);
  EXPECT_TRUE(run.saved().empty());
}

TEST_F(TrainerTest, TooManyRollbacksEndTheRun) {
  auto config = small_config(50);
  config.train.on_nonfinite = "rollback";
  config.train.nonfinite_limit = 2;
  Session run(config, root_, [](uint64_t) { return true; });
  run.state_->rollbacks = 2;
  const auto outcome = run.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("after 2 rollbacks"));
}

TEST_F(TrainerTest, ARingThatClosesEndsTrainingWithTheStepSaved) {
  Session run(small_config(1000), root_);
  run.on_row = [&](const metrics::TrainRow& row) {
    if (row.step == 6) run.ring_->close();
  };
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(*outcome, Trainer::Outcome::kStopped);
  EXPECT_GE(run.saved().back(), 6u);
}

}  // namespace
}  // namespace stoker::train
