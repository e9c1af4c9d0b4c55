#include "daemon/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <thread>

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/schedule.h"
#include "tests/daemon/train/trainer_session.h"
#include "tests/support/eventually.h"

namespace stoker::train {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(TrainerTest, TrainsToLastStepWithMetricsAndCheckpoints) {
  auto config = small_config(10);
  config.checkpoint.save_every_steps = 4;
  Session run(config, root_);
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kFinished);
  std::vector<uint64_t> reported;
  for (const auto& row : run.rows_) reported.push_back(row.step);
  EXPECT_THAT(reported, ElementsAre(3, 6, 9, 10));
  EXPECT_LT(run.rows_.back().loss, run.rows_.front().loss);
  EXPECT_EQ(run.rows_.back().samples_seen, 40u);
  EXPECT_EQ(run.saved().back(), 10u);
  EXPECT_EQ(run.board_.step(), 10u);
}

TEST_F(TrainerTest, ResumesBitForBitMidIntervalAndMidEpoch) {
  Session whole(small_config(40), root_);
  ASSERT_TRUE(whole.train().ok());

  const std::string other = fresh();
  std::vector<metrics::TrainMetrics> rows;
  std::string last_model;
  for (const uint64_t leave_at : {7u, 23u, 40u}) {
    Session part(small_config(40), other);
    // Requested during step `leave_at`, between two reports; a step is one batch.
    part.on_batch = [&](uint64_t ticket) {
      if (ticket + 1 == leave_at) part.ask(control::Stop{});
    };
    ASSERT_TRUE(part.train().ok());
    EXPECT_EQ(part.state_->step, leave_at);
    rows.insert(rows.end(), part.rows_.begin(), part.rows_.end());
    last_model = part.model_sha256();
  }
  EXPECT_EQ(last_model, whole.model_sha256());
  ASSERT_EQ(rows.size(), whole.rows_.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].step, whole.rows_[i].step);
    EXPECT_EQ(rows[i].loss, whole.rows_[i].loss) << rows[i].step;
    EXPECT_EQ(rows[i].metrics, whole.rows_[i].metrics) << rows[i].step;
    EXPECT_EQ(rows[i].lr, whole.rows_[i].lr);
    EXPECT_EQ(rows[i].grad_norm, whole.rows_[i].grad_norm);
  }
}

// The generators are in another state before each micro-batch, and two processes end in the middle of
// a step.
TEST_F(TrainerTest, DrawsRandomNumbersOfTicketWhateverWasDrawnBefore) {
  for (const config::Rng rng : {config::Rng::kPerTicket, config::Rng::kSequential}) {
    auto config = small_config(9);
    config.train.gradient_accumulation_steps = 4;
    config.run.rng = rng;
    Session whole(config, fresh());
    ASSERT_TRUE(whole.train().ok());
    const std::string root = fresh();
    std::vector<metrics::TrainMetrics> rows;
    for (const uint64_t end : {6u, 21u, 1000u}) {
      Session part(config, root);
      part.on_batch = [](uint64_t ticket) { at::manual_seed(ticket % 3); };
      part.is_valid = [end](const feed::ReceivedBatch& batch) { return batch.ticket != end; };
      ASSERT_TRUE(part.train().ok());
      rows.insert(rows.end(), part.rows_.begin(), part.rows_.end());
      if (end < 1000) {
        EXPECT_EQ(part.state_->step, end / 4);
      } else {
        EXPECT_EQ(part.model_sha256() == whole.model_sha256(), rng == config::Rng::kPerTicket);
      }
    }
    ASSERT_EQ(rows.size(), whole.rows_.size());
    for (size_t i = 0; i < rows.size() && rng == config::Rng::kPerTicket; ++i)
      EXPECT_EQ(rows[i].loss, whole.rows_[i].loss) << rows[i].step;
  }
}

TEST_F(TrainerTest, ResumesBitForBitWithMixup) {
  auto config = small_config(20);
  synthetic_of(config).num_classes = 3;
  config.task.task = config::ClassificationTask{};
  const auto trained = [&](std::vector<config::BatchTransform> transforms,
                           std::optional<uint64_t> leave_at) {
    const std::string root = fresh();
    config.data["train"].batch_transforms = std::move(transforms);
    if (leave_at) {
      Session part(config, root);
      part.on_row = [&](const metrics::TrainMetrics& row) {
        if (row.step == *leave_at) part.ask(control::Stop{});
      };
      EXPECT_TRUE(part.train().ok());
    }
    Session rest(config, root);
    EXPECT_TRUE(rest.train().ok());
    return rest.model_sha256();
  };
  const std::vector<config::BatchTransform> mixup{config::Mixup{.alpha = 0.5}};
  const std::string whole = trained(mixup, std::nullopt);
  EXPECT_EQ(trained(mixup, 6), whole);
  EXPECT_NE(trained({}, std::nullopt), whole);
}

TEST_F(TrainerTest, ResumesBitForBitWithParamGroupsAndFrozenParameters) {
  auto config = small_config(20);
  config.model.freeze = {"0.weight"};
  config.optimizer.param_groups = {{.params = "*.bias", .lr_scale = 2, .weight_decay = 0.0},
                                   {.params = "*.weight", .lr_scale = 0.5}};
  Session whole(config, root_);
  ASSERT_TRUE(whole.train().ok());
  const std::string other = fresh();
  {
    Session part(config, other);
    part.on_row = [&](const metrics::TrainMetrics& row) {
      if (row.step == 6) part.ask(control::Stop{});
    };
    ASSERT_TRUE(part.train().ok());
  }
  Session rest(config, other);
  ASSERT_TRUE(rest.train().ok());
  EXPECT_EQ(rest.model_sha256(), whole.model_sha256());
}

TEST_F(TrainerTest, ResumesBitForBitAfterIncompleteStep) {
  auto config = small_config(9);
  config.train.gradient_accumulation_steps = 4;
  config.run.rng = config::Rng::kSequential;
  Session whole(config, root_);
  ASSERT_TRUE(whole.train().ok());
  const std::string root = fresh();
  for (const uint64_t end : {6u, 21u, 1000u}) {
    Session part(config, root);
    part.is_valid = [end](const feed::ReceivedBatch& batch) { return batch.ticket != end; };
    ASSERT_TRUE(part.train().ok());
    EXPECT_EQ(part.state_->step, std::min<uint64_t>(end / 4, 9));
    if (end == 1000) {
      EXPECT_EQ(part.model_sha256(), whole.model_sha256());
    }
  }
}

TEST_F(TrainerTest, SeedsGeneratorOtherwiseForEachTicket) {
  Session run(small_config(1), root_);
  const auto drawn = [&](uint64_t seed, uint64_t ticket) {
    run.state_->seed_generators(seed, ticket);
    return at::rand({4});
  };
  EXPECT_TRUE(at::equal(drawn(1, 5), drawn(1, 5)));
  EXPECT_FALSE(at::equal(drawn(1, 5), drawn(1, 6)));
  EXPECT_FALSE(at::equal(drawn(1, 5), drawn(2, 5)));
}

TEST_F(TrainerTest, StopsBetweenStepsAndSavesCurrentStep) {
  Session run(small_config(1000), root_);
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step == 6) run.ask(control::Stop{});
  };
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(*outcome, TrainerOutcome::kStopped);
  EXPECT_THAT(run.saved(), ElementsAre(6));
  EXPECT_THAT(run.replies_, ElementsAre(HasSubstr("\"state\":\"stopping\"")));
}

TEST_F(TrainerTest, PausesUntilResumed) {
  Session run(small_config(9), root_);
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step == 3) run.ask(control::Pause{});
  };
  auto training = std::async(std::launch::async, [&] { return run.train(); });
  EXPECT_TRUE(
      test::eventually([&] { return run.board_.read()->state == control::TrainerState::kPaused; }));
  EXPECT_EQ(run.board_.step(), 3u);
  EXPECT_EQ(training.wait_for(0s), std::future_status::timeout);
  run.mailbox_.post({control::Resume{}, {}});
  const auto outcome = training.get();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(*outcome, TrainerOutcome::kFinished);
}

TEST_F(TrainerTest, AnswersAnotherThreadWhileItTrainsAndSaves) {
  auto config = small_config(2000);
  config.checkpoint.save_every_steps = 7;
  config.metrics.log_every_steps = 1;
  Session run(config, root_);
  std::atomic<int> num_replies{0};
  int num_commands = 0;
  std::jthread client([&](const std::stop_token& stop) {
    uint64_t step = 0;
    while (!stop.stop_requested()) {
      const auto status = run.board_.read();
      EXPECT_GE(status->step, step);
      step = status->step;
      const uint64_t last_saved = run.writer_->stats().last_step;  // read before the other
      EXPECT_LE(last_saved, run.board_.step());
      if (num_commands > num_replies) continue;
      ++num_commands;
      run.mailbox_.post({num_commands % 2 == 0
                             ? control::Command(control::SaveCheckpoint{})
                             : control::Command(control::SetSetting{"optimizer.lr", "0.001"}),
                         [&](const Result<std::string>&) { ++num_replies; }});
    }
  });
  const auto outcome = run.train();
  client.request_stop();
  client.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_GT(num_replies, 2);
  EXPECT_EQ(run.saved().back(), 2000u);
}

// The pause arrives during the last step before the rollback, too late for the loop to pause.
TEST_F(TrainerTest, RemainsPausedAfterRollback) {
  auto config = small_config(9);
  config.train.gradient_accumulation_steps = 2;
  config.train.on_nonfinite = config::OnNonfinite::kRollback;
  config.train.max_nonfinite = 1;
  config.metrics.log_every_steps = 1;
  std::promise<Session*> in_first_step;
  std::promise<void> acknowledged;
  auto session = in_first_step.get_future();
  uint64_t reads = 0;
  Session diverging(config, root_, [&](uint64_t) {
    if (++reads == 5) {  // the second batch of the first step
      session.get()->mailbox_.post(
          {control::Pause{}, [&](const Result<std::string>&) { acknowledged.set_value(); }});
      acknowledged.get_future().wait();
    }
    return true;
  });
  diverging.on_batch = [&](uint64_t ticket) {
    if (ticket == 0) in_first_step.set_value(&diverging);
  };
  const auto rolled_back = diverging.train();
  ASSERT_TRUE(rolled_back.ok()) << rolled_back.status().to_string();
  ASSERT_EQ(*rolled_back, TrainerOutcome::kRolledBack);

  Session next(config, root_);
  next.channels_.is_paused = diverging.channels_.is_paused;
  auto training = std::async(std::launch::async, [&] { return next.train(); });
  EXPECT_TRUE(test::eventually(
      [&] { return next.board_.read()->state == control::TrainerState::kPaused; }));
  EXPECT_EQ(next.board_.step(), 0u);
  next.mailbox_.post({control::Resume{}, {}});
  const auto outcome = training.get();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(*outcome, TrainerOutcome::kFinished);
}

// A client asks for the status as soon as it has the answer.
TEST_F(TrainerTest, ShowsPauseAndItsEndBeforeTheirAnswers) {
  Session run(small_config(9), root_);
  std::vector<control::TrainerState> shown;  // when a command was answered
  const auto note = [&](const Result<std::string>& reply) {
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    shown.push_back(run.board_.read()->state);
  };
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step != 3) return;
    run.mailbox_.post({control::Pause{}, note});
    run.mailbox_.post({control::Resume{}, note});
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(shown, ElementsAre(control::TrainerState::kPaused, control::TrainerState::kTraining));
}

TEST_F(TrainerTest, ComputesScheduleFromLearningRateThatWasSetAcrossResume) {
  const auto config = small_config(12);
  {
    Session run(config, root_);
    run.on_row = [&](const metrics::TrainMetrics& row) {
      if (row.step == 3) run.ask(control::SetSetting{"optimizer.lr", "0.001"});
      if (row.step == 6) run.ask(control::Stop{});
    };
    ASSERT_TRUE(run.train().ok());
    ASSERT_THAT(run.replies_, Not(IsEmpty()));
    EXPECT_THAT(run.replies_[0], AllOf(HasSubstr(R"({"step":3,"key":"optimizer.lr","value":1E-3,)"),
                                       HasSubstr(R"("lr":)")));
    EXPECT_EQ(run.board_.read()->live_settings.size(), 1u);
  }
  Session rest(config, root_);
  ASSERT_TRUE(rest.train().ok());
  ASSERT_FALSE(rest.rows_.empty());
  EXPECT_EQ(rest.rows_[0].step, 9u);
  EXPECT_EQ(rest.rows_[0].lr, learning_rate(config.scheduler, 0.001, 8, config.train.max_steps))
      << "to the last bit";
}

// No loss is a hundredth of the first one: ReduceLROnPlateau(patience=0, factor=0.5, cooldown=1) then reduces after each
// second interval from the second one on.
config::Config plateau_config(uint64_t steps) {
  auto config = small_config(steps);
  config.scheduler = {
      .schedule =
          config::ReduceOnPlateauScheduler{
              .every_steps = 2, .factor = 0.5, .patience = 0, .threshold = 0.99, .cooldown = 1},
      .warmup_steps = 0};
  return config;
}

TEST_F(TrainerTest, ReducesLearningRateOnPlateauOfTrainingLoss) {
  Session run(plateau_config(14), root_);
  ASSERT_TRUE(run.train().ok());
  std::map<uint64_t, double> rates;
  for (const metrics::TrainMetrics& row : run.rows_) rates[row.step] = row.lr;
  const std::map<uint64_t, double> expected{{2, 0.01},    {3, 0.01},    {4, 0.01},
                                            {6, 0.005},   {8, 0.005},   {9, 0.0025},
                                            {10, 0.0025}, {12, 0.0025}, {14, 0.00125}};
  EXPECT_EQ(rates, expected) << "of each interval, and of each third step";
  EXPECT_THAT(run.board_.read()->live_settings,
              ElementsAre(std::pair<std::string, std::string>{"scheduler.num_reductions", "3"}));
}

TEST_F(TrainerTest, ReducesLearningRateAfterLastStepForExtendedRun) {
  Session undisturbed(plateau_config(14), fresh());
  ASSERT_TRUE(undisturbed.train().ok());
  const std::string root = fresh();
  {
    Session run(plateau_config(12), root);
    ASSERT_TRUE(run.train().ok());
    EXPECT_THAT(run.board_.read()->live_settings,
                ElementsAre(std::pair<std::string, std::string>{"scheduler.num_reductions", "3"}));
  }
  Session rest(plateau_config(14), root);
  ASSERT_TRUE(rest.train().ok());
  EXPECT_EQ(rest.model_sha256(), undisturbed.model_sha256());
}

TEST_F(TrainerTest, ResumesPlateauBitForBit) {
  Session undisturbed(plateau_config(14), fresh());
  ASSERT_TRUE(undisturbed.train().ok());
  for (const uint64_t stop_at : {3, 5, 8}) {
    const std::string root = fresh();
    auto config = plateau_config(14);
    config.metrics.log_every_steps = 1;
    {
      Session run(config, root);
      run.on_row = [&](const metrics::TrainMetrics& row) {
        if (row.step == stop_at) run.ask(control::Stop{});
      };
      ASSERT_TRUE(run.train().ok());
    }
    Session rest(config, root);
    ASSERT_TRUE(rest.train().ok());
    EXPECT_EQ(rest.rows_.back().lr, undisturbed.rows_.back().lr) << stop_at;
    EXPECT_EQ(rest.model_sha256(), undisturbed.model_sha256()) << stop_at;
  }
}

TEST_F(TrainerTest, RestoresConfiguredValueAfterUnset) {
  const auto config = small_config(12);
  Session run(config, root_);
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step == 3) run.ask(control::SetSetting{"optimizer.lr", "0.001"});
    if (row.step == 6) run.ask(control::UnsetSetting{"optimizer.lr"});
  };
  ASSERT_TRUE(run.train().ok());
  ASSERT_EQ(run.rows_.size(), 4u);
  const auto planned = [&](double lr, uint64_t step) {
    return learning_rate(config.scheduler, lr, step, config.train.max_steps);
  };
  EXPECT_EQ(run.rows_[1].lr, planned(0.001, 5));
  EXPECT_EQ(run.rows_[2].lr, planned(0.01, 8));
  EXPECT_THAT(run.board_.read()->live_settings, IsEmpty());
}

TEST_F(TrainerTest, ChangesIntervalsOfReportsAndSaves) {
  Session run(small_config(12), root_);
  run.on_row = [&](const metrics::TrainMetrics& row) {
    wait_until_saved(run);
    if (row.step != 3) return;
    run.ask(control::SetSetting{"metrics.log_every_steps", "2"});
    run.ask(control::SetSetting{"checkpoint.save_every_steps", "5"});
  };
  ASSERT_TRUE(run.train().ok());
  std::vector<uint64_t> reported;
  for (const auto& row : run.rows_) reported.push_back(row.step);
  EXPECT_THAT(reported, ElementsAre(3, 4, 6, 8, 10, 12));
  EXPECT_THAT(run.saved(), ElementsAre(5, 10, 12));
}

TEST_F(TrainerTest, DryRunOfSettingChangesNothing) {
  const auto config = small_config(9);
  Session undisturbed(config, fresh());
  ASSERT_TRUE(undisturbed.train().ok());
  Session run(config, root_);
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step != 6) return;
    run.ask(control::SetSetting{.key = "optimizer.lr", .value = "0.5", .dry_run = true});
    run.ask(control::SetSetting{.key = "train.max_steps", .value = "15", .dry_run = true});
    run.ask(control::SetSetting{.key = "train.max_steps", .value = "2", .dry_run = true});
    run.ask(control::UnsetSetting{.key = "optimizer.lr", .dry_run = true});
  };
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kFinished);
  EXPECT_THAT(run.replies_,
              ElementsAre(testing::AllOf(HasSubstr(R"("step":6,"key":"optimizer.lr","value":)"),
                                         HasSubstr(R"("dry_run":true)")),
                          HasSubstr(R"("key":"train.max_steps","value":15)"),
                          HasSubstr("is not above the current step 6"), HasSubstr("optimizer.lr")));
  EXPECT_TRUE(run.state_->settings.empty());
  EXPECT_EQ(run.model_sha256(), undisturbed.model_sha256());
}

// The ring ends at the step that was configured, so that a longer run needs another segment.
TEST_F(TrainerTest, ContinuesInNextSegmentToLaterLastStep) {
  const auto config = small_config(9);
  {
    Session run(config, root_);
    run.on_row = [&](const metrics::TrainMetrics& row) {
      if (row.step == 6) run.ask(control::SetSetting{"train.max_steps", "15"});
    };
    const auto outcome = run.train();
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_EQ(*outcome, TrainerOutcome::kNewSettings);
    EXPECT_THAT(run.saved(), ElementsAre(6));
    EXPECT_THAT(run.replies_[0], HasSubstr(R"("key":"train.max_steps","value":15)"));
    EXPECT_EQ(run.board_.read()->max_steps, 15u);
  }
  Session rest(config, root_);
  EXPECT_EQ(rest.state_->settings.size(), 1u);
  ASSERT_TRUE(rest.train().ok());
  EXPECT_EQ(rest.rows_[0].lr, learning_rate(config.scheduler, 0.01, 8, 15));
}

// The ring holds batches of producers that cannot send them again.
TEST_F(TrainerTest, ContinuesInNextSegmentAfterFirstStep) {
  Session run(small_config(9), root_);
  run.ask(control::SetSetting{"feed.num_workers", "3"});
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kNewSettings);
  EXPECT_THAT(run.saved(), ElementsAre(1));
}

TEST_F(TrainerTest, EndsAtEarlierLastStep) {
  Session run(small_config(12), root_);
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step != 6) return;
    run.ask(control::SetSetting{"train.max_steps", "6"});
    run.ask(control::SetSetting{"train.max_steps", "8"});
  };
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kFinished);
  EXPECT_EQ(run.state_->step, 8u);
  EXPECT_THAT(run.saved(), ElementsAre(8));
  ASSERT_EQ(run.replies_.size(), 2u);
  EXPECT_THAT(run.replies_[0],
              HasSubstr("train.max_steps: 6 is not above the current step 6; `stop` ends the run"));
}

TEST_F(TrainerTest, RejectsSettingsThatCannotChange) {
  Session run(small_config(3), root_);
  run.ask(control::SetSetting{"train.micro_batch_size", "8"});
  run.ask(control::SetSetting{"optimizer.lr", "fast"});
  run.ask(control::UnsetSetting{"optimizer.lr"});
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(run.replies_, ElementsAre(HasSubstr("cannot change during the run"),
                                        HasSubstr("optimizer.lr=fast: must be a number"),
                                        HasSubstr("nothing to restore")));
  EXPECT_THAT(run.state_->settings, IsEmpty());
}

TEST_F(TrainerTest, RepliesToCheckpointCommandAfterSave) {
  Session run(small_config(9), root_);
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step == 3) run.ask(control::SaveCheckpoint{});
  };
  ASSERT_TRUE(run.train().ok());
  EXPECT_EQ(run.saved().front(), 3u);
  EXPECT_THAT(run.replies_, ElementsAre("{\"step\":3}"));
}

TEST_F(TrainerTest, StoresRunIdentityAndQuarantineInCheckpoint) {
  auto config = small_config(8);
  config.checkpoint.save_every_steps = 4;
  {
    Session run(config, root_);
    wait_for_saves(run);
    ASSERT_TRUE(run.train().ok());
  }
  Session next(config, root_);
  EXPECT_THAT(next.state_->quarantined, ElementsAre(31, 7));
  const auto newest = next.store_.open_newest({});
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->manifest().data_digest, "the data");
  EXPECT_EQ(newest->manifest().step, 8u);
  EXPECT_EQ(newest->manifest().next_ticket, 8u);
  EXPECT_EQ(newest->manifest().sample_errors, 108u) << "of the tickets before its own";
  EXPECT_EQ(newest->manifest().parent_checkpoint, "step-000000004");
}

TEST_F(TrainerTest, SavesInitialStateOnCheckpointCommandBeforeFirstStep) {
  Session run(small_config(9), root_);
  run.ask(control::SaveCheckpoint{});
  ASSERT_TRUE(run.train().ok());
  EXPECT_EQ(run.saved().front(), 0u);
  EXPECT_THAT(run.replies_, ElementsAre("{\"step\":0}"));
}

// The watchdog compares the progress; how long the producer pauses is no matter.
TEST_F(TrainerTest, ProgressesWhileProducerPauses) {
  std::promise<void> end_of_pause;
  Session run(small_config(9), root_, [paused = end_of_pause.get_future().share()](uint64_t) {
    paused.wait();
    return false;
  });
  uint64_t first = 0;
  int waits = 0;
  run.waits = [&] {
    if (++waits == 1) first = run.board_.progress();
    if (waits == 4) {
      EXPECT_EQ(run.board_.progress(), first + 3);
      run.stop_.request_stop();
      end_of_pause.set_value();
    }
    return true;
  };
  EXPECT_TRUE(run.train().ok());
  EXPECT_EQ(waits, 4);
}

TEST_F(TrainerTest, FailsRunWithoutCheckpointOnNonfiniteLoss) {
  auto config = small_config(50);
  make_divergent(config, 1e20);
  Session run(config, root_);
  const auto outcome = run.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(outcome.status().message(), HasSubstr("not finite at step"));
  EXPECT_TRUE(run.saved().empty());
}

TEST_F(TrainerTest, DoesNotChangeFiniteRunWithSkipPolicy) {
  for (const config::OptimizerVariant& method :
       {config::OptimizerVariant(config::SgdConfig{.lr = 0.01, .weight_decay = 0.1}),
        config::OptimizerVariant(
            config::SgdConfig{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1}),
        config::OptimizerVariant(config::AdamConfig{.lr = 0.01, .weight_decay = 0.1}),
        config::OptimizerVariant(config::AdamWConfig{.lr = 0.01})}) {
    std::vector<std::string> hashes;
    for (const auto policy : {config::OnNonfinite::kFail, config::OnNonfinite::kSkipStep}) {
      auto config = small_config(10);
      config.optimizer.method = method;
      config.train.on_nonfinite = policy;
      Session run(config, fresh());
      ASSERT_TRUE(run.train().ok());
      hashes.push_back(run.model_sha256());
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  }
}

TEST_F(TrainerTest, SkipsNonfiniteStepsAndContinues) {
  auto config = small_config(32);  // two epochs with one nonfinite step each
  config.train.on_nonfinite = config::OnNonfinite::kSkipStep;
  Session run(config, root_, [](uint64_t sample) { return sample == 5; });
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kFinished);
  EXPECT_EQ(run.state_->skipped_steps, 2u);
  EXPECT_EQ(run.board_.read()->skipped_steps, 2u);
  for (const metrics::TrainMetrics& row : run.rows_)
    EXPECT_TRUE(std::isfinite(row.loss)) << row.step;
  const auto without_norm = std::ranges::count_if(
      run.rows_, [](const auto& row) { return !std::isfinite(row.grad_norm); });
  EXPECT_LE(without_norm, 2) << "of a record of a skipped step";
  Session again(config, root_);
  EXPECT_EQ(again.state_->skipped_steps, 2u) << "it is part of the checkpoint";
}

TEST_F(TrainerTest, DoesNotChangeModelOnSkippedSteps) {
  for (const config::OptimizerVariant& method :
       {config::OptimizerVariant(
            config::SgdConfig{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1}),
        config::OptimizerVariant(config::AdamWConfig{.lr = 0.01})}) {
    auto config = small_config(4);
    config.optimizer.method = method;
    config.train.on_nonfinite = config::OnNonfinite::kSkipStep;
    config.metrics.log_every_steps = 1;
    Session run(config, fresh(), [](uint64_t) { return true; });
    run.ask(control::SaveCheckpoint{});  // before the first step
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

TEST_F(TrainerTest, FailsRunAfterTooManyConsecutiveSkippedSteps) {
  auto config = small_config(50);
  config.train.on_nonfinite = config::OnNonfinite::kSkipStep;
  config.train.max_nonfinite = 6;
  Session run(config, root_, [](uint64_t) { return true; });
  const auto outcome = run.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(outcome.status().message(), HasSubstr("at step 6 (6 consecutive steps)"));
}

TEST_F(TrainerTest, RequestsRollbackWithoutSavingNonfiniteState) {
  auto config = small_config(50);
  config.train.on_nonfinite = config::OnNonfinite::kRollback;
  config.train.max_nonfinite = 2;
  config.checkpoint.save_every_steps = 3;
  Session run(config, root_, [](uint64_t) { return true; });
  run.on_row = [](const metrics::TrainMetrics&) { FAIL() << "a spoiled step was reported"; };
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kRolledBack);
  EXPECT_TRUE(run.saved().empty());
}

TEST_F(TrainerTest, FailsRunAfterTooManyRollbacks) {
  auto config = small_config(50);
  config.train.on_nonfinite = config::OnNonfinite::kRollback;
  config.train.max_nonfinite = 2;
  Session run(config, root_, [](uint64_t) { return true; });
  run.state_->rollbacks = 2;
  const auto outcome = run.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("after 2 rollbacks"));
}

TEST_F(TrainerTest, StopsAndSavesStepWhenRingCloses) {
  Session run(small_config(1000), root_);
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step == 6) run.ring_->close();
  };
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(*outcome, TrainerOutcome::kStopped);
  EXPECT_GE(run.saved().back(), 6u);
}

}  // namespace
}  // namespace stoker::train
