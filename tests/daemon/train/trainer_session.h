// Session: runs the trainer on a small model in the process of the test, with all components
// between a checkpoint directory and the trainer.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "daemon/train/group_step.h"
#include "daemon/train/sharded_commit.h"
#include "daemon/train/trainer.h"
#include "shared/base/coordinator.h"
#include "shared/data/dataset_decorator.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/feed/worker_pool.h"
#include "tests/support/eventually.h"

namespace stoker::train {

// For configurations based on small_config().
inline config::SyntheticDataset& synthetic_of(config::Config& config) {
  return std::get<config::SyntheticDataset>(config.data.at("train").source);
}
inline config::MlpConfig& mlp_of(config::Config& config) {
  return std::get<config::MlpConfig>(config.model.arch);
}

inline config::Config small_config(uint64_t steps) {
  config::Config config;
  config.data["train"].source =
      config::SyntheticDataset{.num_samples = 64, .input_shape = {8}, .num_targets = 2};
  // With dropout, the state of the generator matters.
  config.model.arch = config::MlpConfig{.hidden_sizes = {16}, .dropout = 0.1};
  config.task.task = config::RegressionTask{};
  config.eval.datasets.clear();
  config.optimizer.set_lr(0.01);
  config.scheduler.warmup_steps = 2;
  config.train.max_steps = steps;
  config.train.micro_batch_size = 4;
  config.checkpoint.save_every_steps.reset();
  config.checkpoint.save_every_seconds.reset();
  config.metrics.log_every_steps = 3;
  return config;
}

// Plain SGD steps so large that the parameters soon overflow.
inline void make_divergent(config::Config& config, double lr) {
  config.optimizer.method = config::SgdConfig{.lr = lr, .weight_decay = 0.1};
  config.train.max_grad_norm.reset();
  config.scheduler.warmup_steps = 0;
}

// A dataset in which some samples contain NaN.
class PoisonedDataset final : public data::DatasetDecorator {
 public:
  PoisonedDataset(std::unique_ptr<data::Dataset> inner, std::function<bool(uint64_t)> is_poisoned)
      : DatasetDecorator(*inner), inner_(std::move(inner)), is_poisoned_(std::move(is_poisoned)) {}

  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    STOKER_RETURN_IF_ERROR(inner_->read(sample, random_key, outputs));
    const float poison = std::nanf("");
    if (is_poisoned_(sample)) std::memcpy(outputs[0].data(), &poison, sizeof poison);
    return {};
  }

 private:
  std::unique_ptr<data::Dataset> inner_;
  std::function<bool(uint64_t)> is_poisoned_;
};

// The environment of a session, in addition to its configuration.
struct ModelContext {
  FileSystem& files = default_file_system();  // for the checkpoints
  Clock& clock = system_clock();
  std::function<void()> before_commit = [] {};  // on the writer thread
  Status may_commit = {};                       // an error prevents each commit
  std::vector<std::chrono::milliseconds> delays = {};
  bool save_after_resume = false;
  StepEngine::Factory make_engine = {};
  c10::Device device = c10::Device(c10::kCPU);
  group::ProcessGroup* maybe_group = nullptr;
  bool has_device_memory = false;
  bool is_saved = true;
};

// The part of a run that one process executes.
class Session : private BatchSource, private MetricsSink {
 public:
  Session(
      const config::Config& config, const std::string& root,
      std::function<bool(uint64_t)> is_poisoned = [](uint64_t) { return false; },
      ModelContext around = {})
      : config_(config), store_(root + "/checkpoints", around.files), channels_(around.clock) {
    at::set_num_threads(1);
    writer::WriterOptions options;
    options.delete_expired = [](bool) {};
    options.before_commit = [before = std::move(around.before_commit),
                             may_commit = around.may_commit] {
      before();
      return may_commit;
    };
    options.delays = std::move(around.delays);
    if (around.maybe_group != nullptr && config.distributed.shard == config::Shard::kOptimizer)
      share_commits(options, around);
    writer_ = std::make_unique<writer::CheckpointWriter>(store_, options, around.clock);
    data_ = std::make_unique<PoisonedDataset>(
        *data::pipeline::open_dataset("train", config.data.at("train"), root + "/index", {}),
        std::move(is_poisoned));
    plan_.emplace(*feed::make_plan_options(config, *data_, {}));
    Optimizer::Shard shard;
    if (sharded_commit_) shard = {around.maybe_group->rank(), around.maybe_group->world_size()};
    state_ = *TrainingState::create(config, data_->info(), around.device, shard);
    const auto newest = store_.open_newest({});
    checkpoint::Manifest manifest{.data_digest = "the data"};
    if (newest.ok()) {
      EXPECT_TRUE(state_->restore(*newest).ok());
      manifest.parent_checkpoint = checkpoint::CheckpointStore::checkpoint_name(state_->step);
    }
    const ring::BatchLayout layout(data_->spec(),
                                   static_cast<uint64_t>(config.train.micro_batch_size));
    const auto end =
        config.train.max_steps * static_cast<uint64_t>(config.train.gradient_accumulation_steps);
    ring::RingOptions ring{.slots = 2, .first_ticket = state_->ticket, .end_ticket = end};
    if (around.maybe_group != nullptr)
      ring.share = GroupStep(*around.maybe_group, config.train.gradient_accumulation_steps).share();
    ring_ = *ring::ShmRing::create(layout, ring);
    pool_ =
        std::make_unique<feed::WorkerPool>(*ring_, *ring_->add_producer("test"), *data_, *plan_);
    pool_->start(1, threads_);
    threads_.start("checkpoints", [this](std::stop_token stop) { return writer_->run(stop); });
    trainer_.emplace(
        config_, *state_, static_cast<BatchSource&>(*this), static_cast<MetricsSink&>(*this),
        channels_, *writer_, around.clock,
        TrainerStart{
            .manifest = manifest,
            .metrics_bytes = 0,
            .save_after_resume = around.save_after_resume,
            .is_saved = around.is_saved,
            .maybe_group = around.maybe_group,
            .has_device_memory = around.has_device_memory,
            .on_setting_change =
                [this](uint64_t step, const config::Config&, const config::SettingChange& change) {
                  setting_changes_.push_back(std::to_string(step) + " " + change.key + " " +
                                             change.current);
                }},
        std::move(around.make_engine));
  }
  ~Session() override {
    threads_.request_stop();
    EXPECT_TRUE(threads_.join(std::chrono::seconds(60)).ok());
  }

  Result<TrainerOutcome> train() {
    ended_ = trainer_->run(stop_.get_token());
    return feed_.ok() ? ended_ : feed_.with_context("feed");
  }
  // As a permanent error of the workers: the data ends, and training with this reason. On the trainer thread.
  void fail_feed(const Status& reason) {
    feed_ = reason;
    ring_->close();
  }
  void ask(control::Command command) {
    mailbox_.post({std::move(command), [this](Result<std::string> reply) {
                     replies_.push_back(reply.ok() ? *reply : reply.status().to_string());
                   }});
  }
  std::vector<uint64_t> saved() const {
    std::vector<uint64_t> steps;
    for (const auto& entry : *store_.list()) steps.push_back(entry.step);
    return steps;
  }
  void share_commits(writer::WriterOptions& options, const ModelContext& around) {
    sharded_commit_.emplace(*around.maybe_group, store_, around.files,
                            ShardedCommitOptions{.poll_interval = std::chrono::milliseconds(1)});
    options.commit = [this](const checkpoint::CheckpointContent& content,
                            const std::stop_token& stop) {
      return sharded_commit_->commit(content, stop);
    };
    options.after_attempts = [this](const auto& result, const std::stop_token& stop) {
      sharded_commit_->announce(result, stop);
    };
    if (!around.maybe_group->is_chief()) options.delays.clear();
  }
  std::string model_sha256() const {
    const auto newest = store_.open_newest({});
    EXPECT_TRUE(newest.ok());
    return newest->manifest().files.at(0).sha256;
  }

  // On the trainer thread: for each reported record, and for each batch before it is trained on.
  std::function<void(const metrics::TrainMetrics&)> on_row;
  std::function<void(uint64_t ticket)> on_batch;
  std::function<bool()> waits = [] { return false; };  // for a producer of the data
  std::function<bool(uint64_t ticket)> has_new_version = [](uint64_t) { return false; };
  // Whether a batch may be used; called after on_batch.
  std::function<bool(const feed::ReceivedBatch&)> is_valid = [](const auto&) { return true; };
  std::vector<uint64_t> quarantined_{31, 7};
  const config::Config config_;
  checkpoint::CheckpointStore store_;
  std::optional<ShardedCommit> sharded_commit_;
  std::unique_ptr<writer::CheckpointWriter> writer_;
  std::unique_ptr<data::Dataset> data_;
  std::optional<data::order::SamplePlan> plan_;
  std::unique_ptr<TrainingState> state_;
  std::unique_ptr<ring::ShmRing> ring_;
  std::unique_ptr<feed::WorkerPool> pool_;
  TrainerChannels channels_;
  Mailbox& mailbox_ = channels_.mailbox;
  StatusBoard& board_ = channels_.board;
  std::vector<metrics::TrainMetrics> rows_;
  std::vector<std::string> replies_;
  std::vector<std::string> setting_changes_;  // "STEP KEY VALUE"
  std::vector<RecordedProfile> profiles_;
  std::vector<std::pair<uint64_t, std::vector<metrics::NamedSummary>>> histograms_;  // by step
  std::vector<TracedGraph> graphs_;
  std::vector<uint64_t> first_batches_;  // tickets passed to report_first_batch()
  std::optional<Trainer> trainer_;
  std::stop_source stop_;
  Status feed_;
  Result<TrainerOutcome> ended_ = TrainerOutcome::kFinished;  // of the trainer itself
  Coordinator threads_;

 private:
  // ---- BatchSource
  ring::ShmRing& ring() override { return *ring_; }
  const data::order::SamplePlan& plan() const override { return *plan_; }
  feed::BatchShapes shapes() const override { return ring_->layout(); }
  bool has_new_version_at(uint64_t ticket) const override { return has_new_version(ticket); }
  bool accept(const feed::ReceivedBatch& batch) override {
    if (on_batch) on_batch(batch.ticket);
    return is_valid(batch);
  }
  bool waits_for_producer() const override { return waits(); }
  std::vector<std::string> files_of(uint64_t ticket) const override {
    return {"file-" + std::to_string(ticket)};
  }
  std::vector<uint64_t> quarantined() const override { return quarantined_; }
  uint64_t sample_errors_before(uint64_t ticket) override { return 100 + ticket; }

  // ---- MetricsSink
  uint64_t report(const metrics::TrainMetrics& record) override {
    rows_.push_back(record);
    if (on_row) on_row(record);
    return 0;
  }
  void report_first_batch(const feed::ReceivedBatch& batch) override {
    first_batches_.push_back(batch.ticket);
  }
  void report_graph(TracedGraph graph) override { graphs_.push_back(std::move(graph)); }
  void report_histograms(uint64_t step, std::vector<metrics::NamedSummary> summaries) override {
    histograms_.emplace_back(step, std::move(summaries));
  }
  void save_profile(RecordedProfile taken, Done) override { profiles_.push_back(std::move(taken)); }
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

// Reports each step. With wait_for_saves() a submitted checkpoint is written before the next step,
// so the set of saved steps depends only on the save triggers.
inline config::Config slow_config(uint64_t steps) {
  auto config = small_config(steps);
  config.metrics.log_every_steps = 1;
  return config;
}
inline void wait_until_saved(Session& run) {
  EXPECT_TRUE(
      test::eventually([&] { return run.writer_->wait_idle(std::chrono::milliseconds(10)); }));
}
inline void wait_for_saves(Session& run) {
  run.on_row = [&run](const metrics::TrainMetrics&) { wait_until_saved(run); };
}
inline const std::function<bool(uint64_t)> kNoPoison = [](uint64_t) { return false; };

}  // namespace stoker::train
