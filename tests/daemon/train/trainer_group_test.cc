// What the ranks of a group train, save and report together.
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/cpu_engine.h"
#include "daemon/train/gradient_buckets.h"
#include "daemon/train/group_step.h"
#include "tests/daemon/train/trainer_group_fixture.h"

namespace stoker::train {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class TrainerGroupOfSizeTest : public TrainerGroupTest, public testing::WithParamInterface<int> {};

TEST_P(TrainerGroupOfSizeTest, TrainsAsOneProcess) {
  const auto config = shared_config(12);
  Session alone(config, root_);
  ASSERT_TRUE(alone.train().ok());
  open(config, GetParam());
  train_to_end();
  EXPECT_EQ(chief().model_sha256(), alone.model_sha256());
  for (const auto& session : ranks_) expect_same_records(*session, alone);
}

INSTANTIATE_TEST_SUITE_P(Sizes, TrainerGroupOfSizeTest, testing::Values(2, 4));

TEST_F(TrainerGroupTest, ReducesLearningRateOnPlateauAsOneProcess) {
  auto config = shared_config(10);
  config.scheduler = {.schedule =
                          config::ReduceOnPlateauScheduler{
                              .every_steps = 2, .factor = 0.5, .patience = 0, .threshold = 0.99},
                      .warmup_steps = 0};
  Session alone(config, fresh());
  ASSERT_TRUE(alone.train().ok());
  EXPECT_EQ(alone.rows_.back().lr, config.optimizer.lr() / 8) << "reduced after steps 4, 6 and 8";
  open(config, 2);
  train_to_end();
  for (const auto& session : ranks_) expect_same_records(*session, alone);
}

TEST_F(TrainerGroupTest, TrainsEachTicketOnOneRank) {
  open(shared_config(2), 2);
  std::vector<std::vector<uint64_t>> tickets(2);
  for (size_t i = 0; i < 2; ++i)
    rank(i).on_batch = [&tickets, i](uint64_t ticket) { tickets[i].push_back(ticket); };
  train_to_end();
  EXPECT_THAT(tickets[0], ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(tickets[1], ElementsAre(2, 3, 6, 7));
}

TEST_F(TrainerGroupTest, SavesOnChiefOnly) {
  auto config = shared_config(6);
  config.checkpoint.save_every_steps = 2;
  open(config, 2);
  wait_for_saves(chief());
  train_to_end();
  EXPECT_THAT(chief().saved(), ElementsAre(2, 4, 6));
  EXPECT_THAT(rank(1).saved(), IsEmpty());
  // Of both ranks: see Session::sample_errors_before(). The chief counts up to its own step.
  const auto newest = chief().store_.open_newest({});
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->manifest().sample_errors, 2 * (100u + 24u));
}

TEST_F(TrainerGroupTest, StopsAllRanksAtSameStepOnRequestOfAny) {
  open(shared_config(100), 4);
  rank(2).on_batch = [this](uint64_t ticket) {
    if (ticket == 4 * 5 + 2) rank(2).ask(control::Stop{});  // in step 6
  };
  for (const auto& outcome : train()) {
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_EQ(*outcome, TrainerOutcome::kStopped);
  }
  const uint64_t stopped_at = chief().state_->step;
  EXPECT_GE(stopped_at, 6u);
  EXPECT_LE(stopped_at, 7u);
  for (const auto& session : ranks_) EXPECT_EQ(session->state_->step, stopped_at);
  EXPECT_THAT(chief().saved(), ElementsAre(stopped_at));
  EXPECT_THAT(rank(2).replies_, ElementsAre(HasSubstr(R"("state":"stopping")")));
}

TEST_F(TrainerGroupTest, IsPreemptedOnAllRanksIfOneIs) {
  open(shared_config(100), 2);
  rank(1).on_batch = [this](uint64_t ticket) {
    if (ticket == 4 * 5 + 2) rank(1).ask(control::Stop{.is_preemption = true});
  };
  for (const auto& outcome : train()) {
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_EQ(*outcome, TrainerOutcome::kPreempted);
  }
  EXPECT_THAT(chief().saved(), ElementsAre(chief().state_->step));
}

TEST_F(TrainerGroupTest, SavesQuarantineOfAllRanks) {
  open(shared_config(8), 2);
  chief().quarantined_ = {31, 7};
  rank(1).quarantined_ = {};
  rank(1).on_batch = [this](uint64_t ticket) {
    if (ticket == 4 * 5 + 2) rank(1).quarantined_ = {50, 31};
  };
  train_to_end();
  EXPECT_THAT(chief().state_->quarantined, ElementsAre(31, 7, 50));
}

TEST_F(TrainerGroupTest, NamesRankWhoseParametersDiffer) {
  auto config = shared_config(40);
  config.distributed.consistency_check_every_steps = 10;
  open(config, 4);
  rank(2).on_batch = [this](uint64_t ticket) {  // in step 14
    if (ticket != 4 * 13 + 2) return;
    const at::NoGradGuard no_grad;
    rank(2).state_->model().parameters().front().view({-1})[0].add_(1e-3);
  };
  for (const auto& outcome : train()) {
    ASSERT_FALSE(outcome.ok());
    EXPECT_THAT(outcome.status().message(), HasSubstr("after step 20: wrong on rank 2; test"));
  }
  EXPECT_EQ(chief().state_->step, 20u);
}

// A CpuEngine on which each micro-batch takes 10 ms.
class TimedEngine final : public StepEngine {
 public:
  explicit TimedEngine(Calls calls) : inner_(std::move(calls)) {}
  void run(const feed::ReceivedBatch& batch, MicroBatchInfo micro_batch) override {
    inner_.run(batch, micro_batch);
  }
  void submit(cuda::Work work) override { inner_.submit(std::move(work)); }
  bool is_asynchronous() const override { return false; }
  void read(const std::vector<at::Tensor>& scalars, OnRead take) override {
    inner_.read(scalars, std::move(take));
  }
  bool poll() override { return false; }
  void synchronize() override {}
  void on_gradients_complete(size_t sum) override { inner_.on_gradients_complete(sum); }
  cuda::DeviceUsage device_usage() override {
    cuda::DeviceUsage usage = inner_.device_usage();
    usage.work_ms = 10 * static_cast<double>(usage.works);
    return usage;
  }

 private:
  CpuEngine inner_;
};

TEST_F(TrainerGroupTest, ReportsTimesOfEachRank) {
  make_engine_ = [](StepEngine::Calls calls) -> Result<std::unique_ptr<StepEngine>> {
    return std::unique_ptr<StepEngine>(std::make_unique<TimedEngine>(std::move(calls)));
  };
  open(shared_config(8), 2);
  train_to_end();
  const auto status = chief().board_.read();
  ASSERT_EQ(status->group.ranks.size(), 2u);
  for (const auto& rank : status->group.ranks) {
    EXPECT_GT(rank.compute_ms, 0);
    EXPECT_GE(rank.compute_ms, rank.data_wait_ms);
  }
  // Each rank computes two of the four micro-batches of a step.
  EXPECT_DOUBLE_EQ(status->device_time_ms, 20);
  EXPECT_EQ(chief().channels_.group_exchanges, 8u);
  EXPECT_FALSE(chief().channels_.expects_exchange);
}

// ---- distributed.shard: optimizer

std::map<std::string, std::string> tensors_of(const checkpoint::TensorSource& source) {
  std::map<std::string, std::string> tensors;
  for (const TensorSpec& spec : source.tensors()) {
    std::string bytes(spec.bytes(), ' ');
    EXPECT_TRUE(source.read(spec.name, std::as_writable_bytes(std::span(bytes))).ok());
    tensors[to_string(spec)] = bytes;
  }
  return tensors;
}

// Parameters, optimizer state, EMA weights and the rest.
std::map<std::string, std::map<std::string, std::string>> newest_state(const std::string& folder) {
  const checkpoint::CheckpointStore store(folder + "/checkpoints", default_file_system());
  const auto newest = store.open_newest({});
  EXPECT_TRUE(newest.ok()) << newest.status().to_string();
  std::map<std::string, std::map<std::string, std::string>> state;
  for (const char* const file :
       {"model.safetensors", "ema.safetensors", "trainer_state.safetensors"})
    state[file] = tensors_of(**newest->open_tensors(file));
  state["optimizer"] = tensors_of(**newest->open_optimizer());
  return state;
}

TEST_P(TrainerGroupOfSizeTest, TrainsShardedOptimizerAsOneProcess) {
  const auto config = sharded_config(12);
  Session alone(config, root_);
  ASSERT_TRUE(alone.train().ok());
  const std::string shared = fresh();
  open_shared(config, GetParam(), shared);
  train_to_end();
  EXPECT_EQ(newest_state(shared), newest_state(root_));
  for (const auto& session : ranks_) expect_same_records(*session, alone);
  const auto newest = chief().store_.open_newest({});
  EXPECT_EQ(newest->manifest().optimizer_shards, GetParam());
  // Of the state, each rank has its part.
  const auto& status = chief().board_.read()->group;
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : alone.state_->optimizer().state()) bytes += tensor.nbytes();
  ASSERT_EQ(status.ranks.size(), static_cast<size_t>(GetParam()));
  for (const auto& rank : status.ranks)
    EXPECT_NEAR(static_cast<double>(rank.optimizer_bytes), static_cast<double>(bytes) / GetParam(),
                0.2 * static_cast<double>(bytes));
}

TEST_F(TrainerGroupTest, ContinuesShardedRunWithOtherNumberOfRanks) {
  const auto config = sharded_config(20);
  Session alone(config, root_);
  ASSERT_TRUE(alone.train().ok());
  const std::string shared = fresh();
  // Without shards, then with, and back. The last one ends the run.
  for (const int world_size : {1, 2, 4, 2, 1}) {
    open_shared(config, world_size, shared);
    chief().on_batch = [this, first = chief().state_->step](uint64_t ticket) {
      if (ticket == 4 * (first + 1)) chief().ask(control::Stop{});
    };
    train_to_end();
  }
  open_shared(config, 4, shared);
  train_to_end();
  EXPECT_EQ(chief().state_->step, 20u);
  EXPECT_EQ(newest_state(shared), newest_state(root_));
}

TEST_F(TrainerGroupTest, SavesShardsAtStepsAndOnRequest) {
  auto config = sharded_config(11);
  config.checkpoint.save_every_steps = 6;
  config.checkpoint.save_at_start = true;
  open_shared(config, 2, fresh());
  for (size_t each : {0, 1}) wait_for_saves(rank(each));
  rank(1).on_batch = [this](uint64_t ticket) {
    if (ticket == 4 * 1 + 2) rank(1).ask(control::SaveCheckpoint{});  // in step 2
  };
  chief().on_batch = [this](uint64_t ticket) {
    if (ticket == 4 * 7) chief().ask(control::SaveCheckpoint{});  // in step 8
  };
  train_to_end();
  // A request that is taken between two steps, and not while waiting for a batch, needs one more.
  EXPECT_THAT(chief().saved(), ElementsAre(0, AnyOf(3, 4), 6, AnyOf(8, 9), 11));
  EXPECT_THAT(chief().replies_, ElementsAre(HasSubstr("\"step\":")));
}

// As after a failure of the workers, or a stop of the process, of one rank.
TEST_F(TrainerGroupTest, SavesNoShardsWhenOneRankEndsAlone) {
  for (const bool is_stop : {false, true}) {
    open_shared(sharded_config(20), 2, fresh());
    rank(1).on_batch = [&](uint64_t ticket) {
      if (ticket != 4 * 5 + 2) return;  // in step 6
      if (is_stop) {
        rank(1).stop_.request_stop();
      } else {
        rank(1).ring_->close();
      }
    };
    rank(1).is_valid = [](const feed::ReceivedBatch& batch) { return batch.ticket != 4 * 5 + 2; };
    const auto outcomes = train();
    EXPECT_EQ(outcomes[1].status().code(), StatusCode::kCancelled);
    EXPECT_THAT(outcomes[1].status().message(),
                HasSubstr("training ended on this rank only, at step 5; its part of"));
    EXPECT_EQ(outcomes[0].status().code(), StatusCode::kPeerLost);
    EXPECT_THAT(outcomes[0].status().message(), HasSubstr("rank 1 failed: "));
    EXPECT_THAT(chief().saved(), IsEmpty());
  }
}

TEST_F(TrainerGroupTest, SavesShardsDuringPause) {
  open_shared(sharded_config(6), 2, fresh());
  chief().on_batch = [this](uint64_t ticket) {
    if (ticket == 4) chief().ask(control::Pause{});  // in step 2
  };
  std::jthread client([this] {
    std::promise<bool> saved;
    wait_until_paused(chief());
    chief().mailbox_.post({control::SaveCheckpoint{},
                           [&saved](Result<std::string> reply) { saved.set_value(reply.ok()); }});
    EXPECT_TRUE(saved.get_future().get());
    chief().mailbox_.post({control::Resume{}, [](const Result<std::string>&) {}});
  });
  train_to_end();
  client.join();
  const auto saved = chief().saved();
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_LT(saved[0], 4u);
  EXPECT_EQ(saved[1], 6u);
}

TEST_F(TrainerGroupTest, CountsSkippedSaveOnceDuringPause) {
  auto config = sharded_config(8);
  config.checkpoint.save_every_steps = 1;
  std::promise<void> gate;
  group_ = std::make_unique<ThreadGroup>(2);
  const std::string folder = fresh();
  for (const int rank : {0, 1}) {
    ModelContext context;
    context.maybe_group = &group_->rank(rank);
    if (rank == 0) context.before_commit = [opened = gate.get_future().share()] { opened.wait(); };
    ranks_.push_back(std::make_unique<Session>(config, folder, kNoPoison, std::move(context)));
  }
  chief().on_batch = [this](uint64_t ticket) {
    if (ticket == 4 * 2) chief().ask(control::Pause{});  // in step 3
  };
  std::jthread client([&] {
    wait_until_paused(chief());
    const uint64_t skipped = chief().writer_->stats().skipped;
    EXPECT_GT(skipped, 0u);
    std::promise<bool> saved;
    chief().mailbox_.post({control::SaveCheckpoint{},
                           [&saved](Result<std::string> reply) { saved.set_value(reply.ok()); }});
    const uint64_t exchanges = chief().channels_.group_exchanges;
    EXPECT_TRUE(
        test::eventually([&] { return chief().channels_.group_exchanges >= exchanges + 3; }));
    EXPECT_EQ(chief().writer_->stats().skipped, skipped);
    gate.set_value();
    EXPECT_TRUE(saved.get_future().get());
    chief().mailbox_.post({control::Resume{}, [](const Result<std::string>&) {}});
  });
  train_to_end();
}

TEST_F(TrainerGroupTest, RecordsSameHistogramsWithShards) {
  auto config = sharded_config(6);
  config.metrics.histogram_every_steps = 3;
  Session alone(config, root_);
  ASSERT_TRUE(alone.train().ok());
  open_shared(config, 2, fresh());
  train_to_end();
  const auto histograms = [](const Session& run) {
    std::string text;
    for (const auto& [step, summaries] : run.histograms_)
      for (const auto& [name, summary] : summaries)
        text += std::to_string(step) + ' ' + name + ' ' +
                boost::json::serialize(metrics::to_json(summary)) + '\n';
    return text;
  };
  EXPECT_THAT(histograms(alone), HasSubstr("6 gradients/"));
  EXPECT_EQ(histograms(chief()), histograms(alone));
}

// The gradients of the shards only: all of them are exchanged once, and so are the parameters.
TEST_P(TrainerGroupOfSizeTest, SumsGradientsOfShardsOnly) {
  auto config = sharded_config(8);
  config.train.max_grad_norm.reset();
  config.distributed.reduction = config::Reduction::kAllReduce;
  config.distributed.bucket_mib = 1e-4;
  auto replicated = config;
  replicated.distributed.shard = config::Shard::kNone;
  const std::string other = fresh();
  open_shared(replicated, GetParam(), other);
  train_to_end();
  const auto records = chief().rows_;
  const std::string shared = fresh();
  open_shared(config, GetParam(), shared);
  train_to_end();
  EXPECT_EQ(newest_state(shared), newest_state(other));
  int64_t total = 0;
  for (const at::Tensor& flat : chief().state_->optimizer().flat_gradients()) total += flat.numel();
  for (int rank = 0; rank < GetParam(); ++rank) {
    const auto& sizes = group_->scattered_sizes(rank);
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), 8 * total);
    EXPECT_THAT(group_->started_sizes(rank), IsEmpty());
  }
  // Of the same gradients, but the squares are added shard by shard.
  ASSERT_EQ(chief().rows_.size(), records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(chief().rows_[i].loss, records[i].loss);
    EXPECT_NEAR(chief().rows_[i].grad_norm, records[i].grad_norm, 1e-6 * records[i].grad_norm);
  }
  for (const auto& session : ranks_) expect_same_records(*session, chief());
}

TEST_F(TrainerGroupTest, ClipsGradientsOfShardsByNormOfAll) {
  auto config = sharded_config(8);
  config.train.max_grad_norm = 0.01;
  config.train.max_grad_value = 0.002;
  config.distributed.reduction = config::Reduction::kAllReduce;
  auto replicated = config;
  replicated.distributed.shard = config::Shard::kNone;
  open_shared(replicated, 4, fresh());
  train_to_end();
  const auto records = chief().rows_;
  open_shared(config, 4, fresh());
  train_to_end();
  ASSERT_EQ(chief().rows_.size(), records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_NEAR(chief().rows_[i].grad_norm, records[i].grad_norm, 1e-4 * records[i].grad_norm);
    EXPECT_NEAR(chief().rows_[i].loss, records[i].loss, 1e-4 * records[i].loss);
  }
}

// A rank finds an overflow only in gradients that it has.
TEST_F(TrainerGroupTest, SumsAllGradientsForLossScaling) {
  auto config = sharded_config(2);
  config.train.precision = config::Precision::kFp16;
  config.distributed.reduction = config::Reduction::kAllReduce;
  open_shared(config, 2, fresh());
  train_to_end();
  EXPECT_THAT(group_->scattered_sizes(0), IsEmpty());
}

TEST_F(TrainerGroupTest, SkipsNonfiniteStepOfShardsOnAllRanks) {
  auto config = sharded_config(4);
  config.train.on_nonfinite = config::OnNonfinite::kSkipStep;
  config.distributed.reduction = config::Reduction::kAllReduce;
  open_shared(config, 2, fresh());
  // Of the last layer: the gradient of no other parameter is infinite, nor is the loss.
  rank(1).state_->model().parameters().back().register_hook(
      [](const at::Tensor& gradient) { return gradient / 0; });
  train_to_end();
  for (const auto& session : ranks_) {
    EXPECT_EQ(session->state_->skipped_steps, 4u);
    EXPECT_EQ(session->model_sha256(), chief().model_sha256());
  }
}

// The second moment of finite gradients can overflow, and the parameters stay finite.
TEST_F(TrainerGroupTest, DecidesTogetherAboutNonfiniteStateOfOneShard) {
  for (const auto on_nonfinite : {config::OnNonfinite::kFail, config::OnNonfinite::kRollback})
    for (const uint64_t saved_step : {4, 8}) {
      auto config = sharded_config(8);
      config.train.on_nonfinite = on_nonfinite;
      if (saved_step < 8) config.checkpoint.save_every_steps = saved_step;
      open_shared(config, 2, fresh());
      rank(1).on_row = [this](const metrics::TrainMetrics& row) {
        if (row.step != 2) return;
        const at::NoGradGuard no_grad;
        for (const auto& [name, tensor] : rank(1).state_->optimizer().state())
          if (name.starts_with("exp_avg_sq.") && tensor.numel() > 0)
            tensor.fill_(std::numeric_limits<float>::infinity());
      };
      for (const auto& outcome : train()) {
        if (on_nonfinite == config::OnNonfinite::kRollback) {
          ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
          EXPECT_EQ(*outcome, TrainerOutcome::kRolledBack);
          continue;
        }
        EXPECT_EQ(outcome.status().code(), StatusCode::kCorrupt) << outcome.status().to_string();
        EXPECT_THAT(outcome.status().message(),
                    AllOf(HasSubstr("rank 1: the optimizer's exp_avg_sq."),
                          HasSubstr("is not finite at step " + std::to_string(saved_step))));
      }
      EXPECT_THAT(steps_of_ranks(), ElementsAre(saved_step, saved_step));
      EXPECT_THAT(chief().saved(), IsEmpty());
    }
}

// ---- distributed.reduction: allreduce

TEST_F(TrainerGroupTest, SumsBucketsDuringBackwardPass) {
  auto config = shared_config(12);
  config.distributed.reduction = config::Reduction::kAllReduce;
  config.distributed.bucket_mib = 1e-4;  // about 26 F32: some parameters have their own bucket
  auto alone_config = config;
  alone_config.distributed.reduction.reset();
  Session alone(alone_config, root_);
  ASSERT_TRUE(alone.train().ok());

  open(config, 2);
  train_to_end();
  expect_same_records(rank(1), chief());
  ASSERT_EQ(chief().rows_.size(), alone.rows_.size());
  for (size_t i = 0; i < alone.rows_.size(); ++i)  // two sums of two, in place of four in a row
    EXPECT_NEAR(chief().rows_[i].loss, alone.rows_[i].loss, 1e-4);
  const auto& sizes = group_->started_sizes(0);
  EXPECT_EQ(sizes, group_->started_sizes(1));
  EXPECT_GT(sizes.size(), 2 * 12u);
  // The memory of all gradients, in each step.
  int64_t total = 0;
  for (const at::Tensor& flat : chief().state_->optimizer().flat_gradients()) total += flat.numel();
  EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), 12 * total);
}

// Also if a bucket, the first one, has a layer that is frozen, whose hook is not called.
TEST_F(TrainerGroupTest, StartsSumsBeforeEndOfBackwardPass) {
  for (const bool is_frozen : {false, true}) {
    Session session(shared_config(1), fresh());
    train::Optimizer& optimizer = session.state_->optimizer();
    ThreadGroup group(1);
    GradientBuckets buckets(group.rank(0), optimizer, 1e-4);
    ASSERT_GT(buckets.size(), 2u);
    if (is_frozen) session.state_->model().parameters().back().set_requires_grad(false);
    at::Tensor loss = at::zeros({});
    for (const auto& [name, parameter] : model::named_tensors(session.state_->model()))
      if (parameter.requires_grad()) loss = loss + parameter.sum();
    buckets.begin([&](size_t bucket) { buckets.start(bucket); });
    loss.backward();
    EXPECT_EQ(group.started_sizes(0).size(), buckets.size()) << is_frozen;
    buckets.end();
    EXPECT_TRUE(buckets.finish({}).ok());
  }
}

TEST_F(TrainerGroupTest, SumsBucketsOfParametersWithoutGradient) {
  Session session(shared_config(1), root_);
  train::Optimizer& optimizer = session.state_->optimizer();
  ThreadGroup group(1);
  GradientBuckets buckets(group.rank(0), optimizer, 1e-4);
  buckets.begin([&](size_t bucket) { buckets.start(bucket); });
  EXPECT_THAT(group.started_sizes(0), IsEmpty());
  buckets.end();
  EXPECT_EQ(group.started_sizes(0).size(), buckets.size());
  EXPECT_TRUE(buckets.finish({}).ok());
}

TEST_F(TrainerGroupTest, StartsNoSumsDuringCapturedPass) {
  Session session(shared_config(1), root_);
  ThreadGroup group(1);
  GradientBuckets buckets(group.rank(0), session.state_->optimizer(), 1e-4);
  std::vector<size_t> completed, all(buckets.size());
  std::iota(all.begin(), all.end(), 0);
  const at::Tensor last = session.state_->model().parameters().back();  // the first bucket
  buckets.begin([&](size_t bucket) { completed.push_back(bucket); });
  last.sum().backward();
  EXPECT_THAT(completed, ElementsAre(0));
  buckets.end();
  EXPECT_EQ(completed, all);
  EXPECT_THAT(group.started_sizes(0), IsEmpty());
  for (int replay = 1; replay <= 2; ++replay) {
    for (const size_t bucket : all) buckets.start(bucket);
    EXPECT_TRUE(buckets.finish({}).ok());
    EXPECT_EQ(group.started_sizes(0).size(), replay * buckets.size());
  }
}

// ---- GroupStep

TEST(GroupStepTest, GivesAllRanksBuffersOfChief) {
  ThreadGroup group(2);
  const std::vector<at::Tensor> buffers{at::full({3}, 0.5), at::full({3}, 7.25)};
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] {
        GroupStep step(group.rank(rank), 2, {buffers[static_cast<size_t>(rank)]});
        EXPECT_TRUE(step.sum({}, {}, {}, {}, {}).ok());
      });
  }
  for (const at::Tensor& buffer : buffers) EXPECT_TRUE(buffer.eq(0.5).all().item<bool>());
}

TEST(GroupStepTest, SetsFlagsOfAnyRankOnAll) {
  ThreadGroup group(2);
  std::vector<std::vector<char>> flags{{1, 0, 0, 1}, {0, 0, 1, 1}};
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] {
        GroupStep step(group.rank(rank), 2);
        EXPECT_TRUE(step.sum({}, {}, {}, {}, {}, &flags[static_cast<size_t>(rank)]).ok());
      });
  }
  for (const std::vector<char>& all : flags) EXPECT_EQ(all, (std::vector<char>{1, 0, 1, 1}));
}

TEST_F(TrainerGroupTest, SavesOnRequestOfOtherRank) {
  open(shared_config(20), 2);
  wait_for_saves(chief());
  rank(1).on_batch = [this](uint64_t ticket) {
    if (ticket == 4 * 3 + 2) rank(1).ask(control::SaveCheckpoint{});
  };
  train_to_end();
  ASSERT_EQ(chief().saved().size(), 2u);
  EXPECT_GE(chief().saved().front(), 4u);
  EXPECT_LE(chief().saved().front(), 5u);
}

TEST_F(TrainerGroupTest, ChangesLearningRateOnAllRanksAtSameStep) {
  open(shared_config(20), 2);
  chief().on_batch = [this](uint64_t ticket) {
    if (ticket == 4 * 8) chief().ask(control::SetSetting{"optimizer.lr", "0.002"});
  };
  train_to_end();
  ASSERT_EQ(chief().state_->settings.size(), 1u);
  EXPECT_EQ(rank(1).state_->settings, chief().state_->settings);
  expect_same_records(rank(1), chief());
  EXPECT_THAT(chief().replies_, ElementsAre(HasSubstr(R"("lr":)")));
}

TEST_F(TrainerGroupTest, RestoresSettingAndEndsEarlierOnAllRanks) {
  open(shared_config(20), 2);
  chief().on_row = [this](const metrics::TrainMetrics& row) {
    if (row.step != 3) return;
    chief().ask(control::SetSetting{"optimizer.lr", "0.002"});
    chief().ask(control::SetSetting{"train.max_steps", "15"});
    chief().ask(control::UnsetSetting{"optimizer.lr"});
    chief().ask(control::SetSetting{"log.level", "loud"});
  };
  train_to_end();
  EXPECT_EQ(rank(1).state_->step, 15u);
  EXPECT_EQ(rank(1).state_->settings, chief().state_->settings);
  expect_same_records(rank(1), chief());
  EXPECT_THAT(chief().replies_, ElementsAre(HasSubstr(R"({"step":4,)"), HasSubstr(R"({"step":5,)"),
                                            HasSubstr(R"({"step":6,)"), HasSubstr("got 'loud'")));
}

TEST_F(TrainerGroupTest, PausesAllRanksUntilResumed) {
  open(shared_config(20), 2);
  chief().on_row = [this](const metrics::TrainMetrics& row) {
    if (row.step == 3) chief().ask(control::Pause{});
  };
  std::vector<uint64_t> paused_at;
  std::jthread client([this, &paused_at] {
    for (const auto& session : ranks_) {
      wait_until_paused(*session);
      paused_at.push_back(session->board_.step());
    }
    chief().ask(control::Resume{});
  });
  train_to_end();
  client.join();
  EXPECT_THAT(paused_at, ElementsAre(4, 4));
  EXPECT_EQ(rank(1).state_->step, 20u);
}

TEST_F(TrainerGroupTest, StopsWhilePaused) {
  open(shared_config(1000), 2);
  chief().ask(control::Pause{});
  std::jthread client([this] {
    wait_until_paused(rank(1));
    rank(1).ask(control::Stop{});
  });
  for (const auto& outcome : train()) {
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_EQ(*outcome, TrainerOutcome::kStopped);
  }
  EXPECT_EQ(rank(1).state_->step, chief().state_->step);
}

TEST_F(TrainerGroupTest, FailsAllRanksWithoutCheckpointAfterLostPeer) {
  open(shared_config(20), 2);
  group_->lose_at(5);
  for (const auto& outcome : train()) {
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.status().code(), StatusCode::kPeerLost);
  }
  EXPECT_EQ(chief().state_->step, 4u);
  EXPECT_THAT(chief().saved(), IsEmpty());
}

TEST_F(TrainerGroupTest, RejectsAllRequestsAfterLostPeer) {
  open(shared_config(20), 2);
  chief().ask(control::OpenInspection{.glob = "*"});
  chief().ask(control::Profile{.steps = 10});
  chief().on_row = [this](const metrics::TrainMetrics& row) {
    if (row.step == 4) chief().ask(control::Pause{});  // takes effect after the next step
  };
  group_->lose_at(5);
  for (const auto& outcome : train()) EXPECT_FALSE(outcome.ok());
  const auto ended = HasSubstr("training has ended: peer lost: ");
  EXPECT_THAT(chief().replies_, ElementsAre(HasSubstr("\"inspection\":1"), ended, ended));
  EXPECT_THAT(chief().profiles_, IsEmpty());
  const auto records = chief().channels_.inspections.read(1, 0);
  ASSERT_TRUE(records.ok()) << records.status().to_string();
  EXPECT_THAT(*records, HasSubstr("\"end_reason\":\"training ended\""));
  chief().ask(control::Resume{});
  EXPECT_THAT(chief().replies_.back(), ended);
}

TEST_F(TrainerGroupTest, FindsNonfiniteLossOnAllRanksAtSameStep) {
  auto config = shared_config(40);
  config.metrics.log_every_steps = 10;
  make_divergent(config, 1e8);
  open(config, 2);
  for (const auto& outcome : train()) {
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.status().code(), StatusCode::kCorrupt);
  }
  EXPECT_EQ(rank(1).state_->step, chief().state_->step);
  EXPECT_THAT(chief().saved(), IsEmpty());
}

// The loss of collectives that were ended can be anything.
TEST_F(TrainerGroupTest, ReportsLostRankInPlaceOfNonfiniteLoss) {
  for (const auto on_nonfinite : {config::OnNonfinite::kFail, config::OnNonfinite::kRollback}) {
    auto config = shared_config(40);
    config.train.on_nonfinite = on_nonfinite;
    make_divergent(config, 1e8);
    open(config, 2);
    group_->lose_devices();
    for (const auto& outcome : train()) {
      ASSERT_FALSE(outcome.ok());
      EXPECT_EQ(outcome.status().code(), StatusCode::kPeerLost);
    }
  }
}

TEST_F(TrainerGroupTest, SavesNothingOfCollectivesThatWereEnded) {
  auto config = shared_config(20);
  config.checkpoint.save_every_steps = 1;
  open(config, 2);
  group_->lose_devices();
  const auto outcomes = train();
  ASSERT_FALSE(outcomes[0].ok());
  EXPECT_EQ(outcomes[0].status().code(), StatusCode::kPeerLost);
  EXPECT_THAT(chief().saved(), IsEmpty());
}

TEST_F(TrainerGroupTest, ResumesWithOtherNumberOfRanks) {
  Session alone(shared_config(20), root_);
  ASSERT_TRUE(alone.train().ok());

  const std::string folder = fresh();
  group_ = std::make_unique<ThreadGroup>(2);
  const auto part = [&](uint64_t stop_at, int world_size) {
    ranks_.clear();
    group_ = std::make_unique<ThreadGroup>(world_size);
    for (int rank = 0; rank < world_size; ++rank) {
      ModelContext context;
      context.maybe_group = world_size > 1 ? &group_->rank(rank) : nullptr;
      ranks_.push_back(
          std::make_unique<Session>(shared_config(20), folder, kNoPoison, std::move(context)));
    }
    chief().on_row = [this, stop_at](const metrics::TrainMetrics& row) {
      if (row.step == stop_at) chief().ask(control::Stop{});
    };
    train_to_end();
  };
  part(5, 2);
  part(9, 1);
  part(13, 4);
  part(20, 2);
  EXPECT_EQ(chief().state_->step, 20u);
  EXPECT_EQ(chief().model_sha256(), alone.model_sha256());
}

}  // namespace
}  // namespace stoker::train
