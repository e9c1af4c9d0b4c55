// TrainerGroupTest: trainers that share the steps of a run, as threads of one process. They share the
// generator of the process too, so their models have no dropout; the system tests have.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/train/trainer.h"
#include "tests/daemon/train/thread_group.h"
#include "tests/daemon/train/trainer_session.h"
#include "tests/support/eventually.h"

namespace stoker::train {

inline config::Config shared_config(uint64_t steps) {
  auto config = small_config(steps);
  mlp_of(config).dropout = 0;
  config.train.gradient_accumulation_steps = 4;
  config.distributed.reduction = config::Reduction::kOrdered;
  config.run.rng = config::Rng::kPerTicket;
  config.metrics.log_every_steps = 1;
  return config;
}

class TrainerGroupTest : public TrainerTest {
 protected:
  // Each rank has its own folder.
  void open(const config::Config& config, int world_size) {
    open(config, world_size, [this] { return fresh(); });
  }
  // All ranks have the same one, as processes do.
  void open_shared(const config::Config& config, int world_size, const std::string& folder) {
    open(config, world_size, [&] { return folder; });
  }
  void open(const config::Config& config, int world_size,
            const std::function<std::string()>& folder) {
    ranks_.clear();
    group_ = std::make_unique<ThreadGroup>(world_size);
    for (int rank = 0; rank < world_size; ++rank) {
      ModelContext context{.files = files_of_(rank)};
      context.maybe_group = &group_->rank(rank);
      context.may_commit = may_commit_;
      context.make_engine = make_engine_;
      const auto is_poisoned = [this, rank](uint64_t sample) { return is_poisoned_(rank, sample); };
      ranks_.push_back(std::make_unique<Session>(config, folder(), is_poisoned, context));
    }
  }
  std::vector<Result<TrainerOutcome>> train() {
    std::vector<Result<TrainerOutcome>> outcomes(ranks_.size(), TrainerOutcome::kFinished);
    {
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < ranks_.size(); ++rank)
        threads.emplace_back([this, &outcomes, rank] {
          auto& outcome = outcomes[rank] = ranks_[rank]->train();
          if (!outcome.ok()) group_->rank(static_cast<int>(rank)).report_failure(outcome.status());
        });
    }
    return outcomes;
  }
  void train_to_end() {
    for (const auto& outcome : train()) ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  }
  void expect_all(TrainerOutcome expected) {
    for (const auto& outcome : train()) {
      ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
      EXPECT_EQ(*outcome, expected);
    }
  }
  std::vector<uint64_t> steps_of_ranks() const {
    std::vector<uint64_t> steps;
    for (const auto& session : ranks_) steps.push_back(session->state_->step);
    return steps;
  }
  // From other threads.
  static void wait_until_paused(Session& session) {
    EXPECT_TRUE(test::eventually(
        [&] { return session.board_.read()->state == control::TrainerState::kPaused; }));
  }
  Session& rank(size_t rank) { return *ranks_[rank]; }
  Session& chief() { return rank(0); }

  // For the sessions that are opened later; called on the threads of the workers.
  std::function<bool(int rank, uint64_t sample)> is_poisoned_ = [](int, uint64_t) { return false; };
  std::function<FileSystem&(int rank)> files_of_ = [](int) -> FileSystem& {
    return default_file_system();
  };
  Status may_commit_;  // an error prevents each commit
  StepEngine::Factory make_engine_;
  std::unique_ptr<ThreadGroup> group_;
  std::vector<std::unique_ptr<Session>> ranks_;
};

inline void expect_same_records(const Session& run, const Session& other) {
  ASSERT_EQ(run.rows_.size(), other.rows_.size());
  for (size_t i = 0; i < run.rows_.size(); ++i) {
    EXPECT_EQ(run.rows_[i].step, other.rows_[i].step);
    EXPECT_EQ(run.rows_[i].loss, other.rows_[i].loss) << run.rows_[i].step;
    EXPECT_EQ(run.rows_[i].grad_norm, other.rows_[i].grad_norm) << run.rows_[i].step;
    EXPECT_EQ(run.rows_[i].lr, other.rows_[i].lr) << run.rows_[i].step;
    EXPECT_EQ(run.rows_[i].samples_seen, other.rows_[i].samples_seen);
  }
}

// Large enough to be cut several times, with all that an update can depend on.
inline config::Config sharded_config(uint64_t steps) {
  auto config = shared_config(steps);
  mlp_of(config).hidden_sizes = {80, 40};
  config.train.ema_decay = 0.9;
  config.train.max_grad_norm = 0.1;
  config.optimizer.param_groups = {{.params = "*.bias", .lr_scale = 2, .weight_decay = 0}};
  config.model.freeze = {"0.*"};
  config.model.unfreeze_at_step = 4;
  config.distributed.shard = config::Shard::kOptimizer;
  return config;
}

}  // namespace stoker::train
