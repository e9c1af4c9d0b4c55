// Workers read the batch of the next ticket while they train on one.
#include "daemon/parameter_server/replica_trainer.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "daemon/parameter_server/batch_reader.h"
#include "daemon/train/batch_view.h"
#include "daemon/train/live_state.h"
#include "shared/base/clock.h"
#include "shared/base/coordinator.h"
#include "shared/checkpoint/store.h"
#include "shared/config/load_config.h"
#include "shared/feed/make_sample_plan.h"
#include "tests/support/temporary_directory.h"

namespace stoker::parameter_server {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 60s;

// Each value of a sample is its number. Counts reads.
class WatchedDataset final : public data::Dataset {
 public:
  WatchedDataset() {
    info_.size = 64;
    info_.fingerprint = "watched";
    info_.spec = {{.name = "input", .dtype = DType::kF32, .shape = {4}},
                  {.name = "target", .dtype = DType::kF32, .shape = {1}}};
  }
  const data::DatasetInfo& info() const override { return info_; }
  data::SampleSource source(uint64_t) const override { return {}; }
  Status read(uint64_t sample, const data::RandomKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    {
      std::unique_lock lock(mutex_);
      reads_.insert(sample);
      changed_.notify_all();
      EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return sample != blocked_; }));
    }
    if (sample == corrupt_) return Status(StatusCode::kCorrupt, "invalid");
    for (const std::span<std::byte> output : outputs) {
      const std::vector<float> values(output.size() / sizeof(float), static_cast<float>(sample));
      std::memcpy(output.data(), values.data(), output.size());
    }
    return {};
  }

  bool wait_until_read(uint64_t sample) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return reads_.contains(sample); });
  }
  size_t num_reads(uint64_t sample) const {
    const std::lock_guard lock(mutex_);
    return reads_.count(sample);
  }
  void set_read(uint64_t sample) {
    const std::lock_guard lock(mutex_);
    reads_.insert(sample);
  }
  void set_corrupt(uint64_t sample) { corrupt_ = sample; }
  void set_blocked(std::optional<uint64_t> sample) {
    const std::lock_guard lock(mutex_);
    blocked_ = sample;
    changed_.notify_all();
  }

 private:
  data::DatasetInfo info_;
  std::optional<uint64_t> corrupt_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  // Guarded by mutex_.
  mutable std::multiset<uint64_t> reads_;  // begun
  std::optional<uint64_t> blocked_;
};

// Ticket t has sample t.
config::Config one_sample_config(uint64_t steps) {
  config::Config config;
  config.data["train"].source =
      config::SyntheticDataset{.num_samples = 64, .input_shape = {4}, .num_targets = 1};
  config.model.arch = config::MlpConfig{.hidden_sizes = {8}};
  config.task.task = config::RegressionTask{};
  config.eval.datasets = {};
  config.feed.shuffle = config::ShuffleMode::kNone;
  config.train.max_steps = steps;
  config.train.micro_batch_size = 1;
  return config;
}

data::order::SamplePlan plan_of(const config::Config& config, const data::Dataset& data) {
  auto options = feed::make_plan_options(config, data, {});
  EXPECT_TRUE(options.ok()) << options.status().to_string();
  return data::order::SamplePlan(*std::move(options));
}

// ---- batches -------------------------------------------------------------------------------------

class BatchReaderTest : public testing::Test {
 protected:
  // The sample that is read for a ticket.
  double read(uint64_t ticket) {
    const auto batch = reader_.read(ticket, {});
    EXPECT_TRUE(batch.ok()) << batch.status().to_string();
    return batch.ok() ? train::batch_view(*batch).front()[0][3].item<double>() : -1;
  }
  void prefetch(uint64_t ticket) {
    EXPECT_TRUE(reader_.prefetch(ticket).ok());
    EXPECT_TRUE(data_.wait_until_read(ticket));
  }

  WatchedDataset data_;
  const data::order::SamplePlan plan_ = plan_of(one_sample_config(64), data_);
  BatchReader reader_{data_, plan_};
};

TEST_F(BatchReaderTest, ReadsPrefetchedBatchOnce) {
  EXPECT_EQ(read(0), 0);
  for (uint64_t ticket = 1; ticket < 10; ++ticket) {
    prefetch(ticket);
    EXPECT_EQ(read(ticket), ticket);
    EXPECT_EQ(data_.num_reads(ticket), 1u);
  }
}

TEST_F(BatchReaderTest, HasPrefetchedBatchAfterAnotherTicket) {
  prefetch(5);
  EXPECT_EQ(read(2), 2);
  EXPECT_TRUE(reader_.prefetch(5).ok());
  EXPECT_EQ(read(3), 3);
  EXPECT_EQ(read(5), 5);
  EXPECT_EQ(data_.num_reads(5), 1u);
}

TEST_F(BatchReaderTest, ReadsTicketThatIsNoLongerPrefetched) {
  prefetch(5);
  prefetch(6);
  EXPECT_EQ(read(6), 6);
  EXPECT_EQ(read(5), 5);
  EXPECT_EQ(data_.num_reads(5), 2u);
}

TEST_F(BatchReaderTest, ReportsErrorOnlyOfBatchThatIsRead) {
  data_.set_corrupt(4);
  prefetch(4);
  EXPECT_EQ(read(3), 3);
  const auto batch = reader_.read(4, {});
  ASSERT_EQ(batch.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(batch.status().message().find("ticket 4, sample 4"), std::string::npos)
      << batch.status().message();
  EXPECT_EQ(data_.num_reads(4), 1u);
}

TEST_F(BatchReaderTest, StopsWhileBatchIsPrefetched) {
  data_.set_blocked(7);
  prefetch(7);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(reader_.read(7, stop.get_token()).status().code(), StatusCode::kCancelled);
  data_.set_blocked({});
}

class SavedProfiles final : public train::MetricsSink {
 public:
  uint64_t report(const metrics::TrainMetrics&) override { return 0; }
  void report_first_batch(const feed::ReceivedBatch&) override {}
  void report_graph(train::TracedGraph) override {}
  void report_histograms(uint64_t, std::vector<metrics::NamedSummary>) override {}
  void save_profile(train::RecordedProfile recorded, train::Done) override {
    profiles_.push_back(std::move(recorded.profile));
  }

  std::vector<train::Profile> profiles_;
};

// ---- trainer -------------------------------------------------------------------------------------

class StubServers : public ServerConnection {
 public:
  Result<Claimed> claim_gap(const std::stop_token&) override { return Claimed{}; }
  Status pull(uint64_t, const std::stop_token&) override { return {}; }
  Status keep_alive(const std::stop_token&) override { return {}; }
  std::vector<SettingsVersion> take_settings() override { return std::exchange(settings_, {}); }
  Status change_settings(const SettingsVersion& settings, const std::stop_token&) override {
    changed_.push_back(settings);
    return {};
  }
  Status initialize(uint64_t, const Sums&, const std::stop_token&) override { return {}; }
  Result<std::optional<std::pair<uint64_t, Sums>>> begin_save(const std::stop_token&) override {
    return std::optional<std::pair<uint64_t, Sums>>();
  }
  Status read_state(uint64_t, const std::stop_token&) override { return {}; }
  Status end_save(const std::stop_token&) override { return {}; }
  Result<std::optional<Record>> take_record(uint64_t, uint64_t, const std::stop_token&) override {
    return std::optional<Record>();
  }
  Result<control::TrainerStatus::Cluster> read_status(const std::stop_token&) override {
    return control::TrainerStatus::Cluster();
  }
  Status end_run(run::RunOutcome, const std::stop_token&) override { return {}; }
  size_t num_servers() const override { return 1; }

  std::vector<SettingsVersion> settings_;  // of others
  std::vector<SettingsVersion> changed_;   // by the chief
};

// The servers of a worker that gets all tickets.
class PrefetchingServers final : public StubServers {
 public:
  PrefetchingServers(const WatchedDataset& data, uint64_t max_steps)
      : data_(data), max_steps_(max_steps), end_(max_steps) {}
  // The run ends after this step.
  void set_end(uint64_t step) { end_ = step; }
  void set_gap(const Result<Claimed>& gap) { gap_ = gap; }

  Result<Claimed> claim(const std::stop_token&) override {
    if (step_ == end_) return Claimed{.reply = ClaimReply::kEnded, .step = step_};
    Claimed claimed{.reply = ClaimReply::kGranted, .ticket = step_, .step = step_};
    if (step_ + 1 < max_steps_) claimed.prefetch = step_ + 1;
    return claimed;
  }
  Result<Claimed> claim_gap(const std::stop_token&) override {
    ++num_claimed_gaps_;
    return gap_;
  }
  Status pull(uint64_t step, const std::stop_token&) override {
    EXPECT_EQ(step, step_);
    return {};
  }
  Result<PushResult> push(uint64_t ticket, uint64_t, const Sums&, const std::vector<at::Tensor>&,
                          const train::Optimizer::Reached&, const std::stop_token&) override {
    EXPECT_EQ(ticket, step_);
    // A worker that reads it later never sends this gradient.
    if (ticket + 1 < max_steps_ && !data_.wait_until_read(ticket + 1))
      return Status(StatusCode::kTimedOut, "the next ticket is not read");
    ++step_;
    return PushResult::kAccepted;
  }

  uint64_t step() const { return step_; }
  int num_claimed_gaps() const { return num_claimed_gaps_; }

 private:
  const WatchedDataset& data_;
  const uint64_t max_steps_;
  uint64_t end_;
  Result<Claimed> gap_ = Claimed{};
  int num_claimed_gaps_ = 0;
  uint64_t step_ = 0;
};

class ReplicaTrainerTest : public testing::Test {
 protected:
  static constexpr uint64_t kSteps = 5;

  Result<run::RunOutcome> run(
      const std::stop_source& reading = std::stop_source(std::nostopstate)) {
    at::set_num_threads(1);
    auto state = train::TrainingState::create(config_, data_.info(), c10::Device(c10::kCPU));
    STOKER_RETURN_IF_ERROR(state.status());
    ReplicaTrainer trainer(config_, data_, plan_, **state, servers_, channels_, system_clock(), {},
                           reading);
    return trainer.run({});
  }
  Result<run::RunOutcome> run_stopped() {
    channels_.mailbox.post({.command = control::Stop{}, .done = {}});
    return run();
  }

  const config::Config config_ = one_sample_config(kSteps);
  WatchedDataset data_;
  const data::order::SamplePlan plan_ = plan_of(config_, data_);
  PrefetchingServers servers_{data_, kSteps};
  train::TrainerChannels channels_{system_clock()};
};

TEST_F(ReplicaTrainerTest, ReadsNextBatchBeforeItSendsGradient) {
  const auto outcome = run();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, run::RunOutcome::kFinished);
  EXPECT_EQ(servers_.step(), kSteps);
  for (uint64_t sample = 0; sample < kSteps; ++sample) EXPECT_EQ(data_.num_reads(sample), 1u);
  EXPECT_EQ(data_.num_reads(kSteps), 0u);
}

// Without a stop of the process.
TEST_F(ReplicaTrainerTest, EndsReadThatIsNotNeeded) {
  servers_.set_end(1);
  data_.set_blocked(1);
  const std::stop_source reading;
  const std::stop_callback unblock(reading.get_token(), [this] { data_.set_blocked({}); });
  const auto outcome = run(reading);
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, run::RunOutcome::kStopped);
  EXPECT_EQ(servers_.step(), 1u);
}

TEST_F(ReplicaTrainerTest, ClosesGapBeforeItStops) {
  servers_.set_gap(
      ServerConnection::Claimed{.reply = ClaimReply::kGranted, .ticket = 0, .step = 0});
  data_.set_read(1);
  const auto outcome = run_stopped();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, run::RunOutcome::kStopped);
  EXPECT_EQ(servers_.step(), 1u);
  EXPECT_EQ(servers_.num_claimed_gaps(), 1);
}

TEST_F(ReplicaTrainerTest, StopsWithoutServers) {
  servers_.set_gap(Status(StatusCode::kPeerLost, "ps 0 is lost"));
  const auto outcome = run_stopped();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, run::RunOutcome::kStopped);
}

// ---- buffers -------------------------------------------------------------------------------------

// Two steps of two tickets. Saves when three gradients are there: the state is that after the first step.
class HalfStepServers final : public StubServers {
 public:
  Result<Claimed> claim(const std::stop_token&) override {
    if (num_pushed_ == 4) return Claimed{.reply = ClaimReply::kEnded, .step = 2};
    return Claimed{.reply = ClaimReply::kGranted, .ticket = num_pushed_, .step = num_pushed_ / 2};
  }
  Result<PushResult> push(uint64_t, uint64_t, const Sums&, const std::vector<at::Tensor>&,
                          const train::Optimizer::Reached&, const std::stop_token&) override {
    ++num_pushed_;
    return PushResult::kAccepted;
  }
  Result<std::optional<std::pair<uint64_t, Sums>>> begin_save(const std::stop_token&) override {
    std::optional<std::pair<uint64_t, Sums>> save;
    if (num_pushed_ >= 3) save.emplace(num_pushed_ / 2, Sums{.steps = 1});
    return save;
  }
  uint64_t num_pushed() const { return num_pushed_; }

 private:
  uint64_t num_pushed_ = 0;
};

class ReplicaTrainerCommandTest : public testing::Test {
 protected:
  ReplicaTrainerCommandTest() {
    config_ = one_sample_config(2);
    config_.train.gradient_accumulation_steps = 2;
    options_.delete_expired = [](bool) {};
  }
  Result<run::RunOutcome> run() { return run(servers_); }
  Result<run::RunOutcome> run(ServerConnection& servers) {
    const data::order::SamplePlan plan = plan_of(config_, data_);
    writer::CheckpointWriter writer(store_, options_, system_clock());
    Coordinator threads;
    threads.start("checkpoints", [&](std::stop_token stop) { return writer.run(stop); });
    const auto state = *train::TrainingState::create(config_, data_.info(), c10::Device(c10::kCPU));
    state->settings = live_;
    ReplicaTrainer trainer(
        config_, data_, plan, *state, servers, channels_, system_clock(),
        ChiefDuties{.writer = writer, .sink = sink_}, std::stop_source(std::nostopstate),
        [this](uint64_t step, const config::Config& config, const config::SettingChange& change) {
          recorded_.push_back(std::to_string(step) + ' ' + change.text() + ", lr " +
                              *config::value_of(config, kLr));
        });
    auto outcome = trainer.run({});
    threads.request_stop();
    EXPECT_TRUE(threads.join(kPatience).ok());
    return outcome;
  }
  // Calls `next` when the command is answered.
  void post(control::Command command, std::function<void()> next = {}) {
    channels_.mailbox.post(
        {.command = std::move(command), .done = [this, next](const Result<std::string>& reply) {
           replies_.push_back(reply.ok() ? *reply : reply.status().to_string());
           num_pushed_.push_back(servers_.num_pushed());
           if (next) next();
         }});
  }

  const test::TemporaryDirectory directory_;
  config::Config config_;
  const WatchedDataset data_;
  checkpoint::CheckpointStore store_{directory_.path(), default_file_system()};
  writer::WriterOptions options_;
  train::TrainerChannels channels_{system_clock()};
  SavedProfiles sink_;
  static constexpr const char* kLr = "optimizer.lr";
  HalfStepServers servers_;
  config::LiveSettings live_;          // of the checkpoint
  std::vector<std::string> recorded_;  // changes of settings
  std::vector<std::string> replies_;
  std::vector<uint64_t> num_pushed_;  // gradients, at each reply
};

TEST_F(ReplicaTrainerCommandTest, HoldsStateUntilResumed) {
  control::TrainerState paused{};
  post(control::Pause{}, [&] {
    paused = channels_.board.read()->state;
    post(control::SaveCheckpoint{}, [&] { post(control::Resume{}); });
  });
  const auto outcome = run();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, run::RunOutcome::kFinished);
  EXPECT_EQ(paused, control::TrainerState::kPaused);
  EXPECT_EQ(replies_, (std::vector<std::string>{R"({"step":1,"state":"paused"})", R"({"step":1})",
                                                R"({"step":1,"state":"training"})"}));
  EXPECT_EQ(num_pushed_, (std::vector<uint64_t>{3, 3, 3}));
  EXPECT_EQ(servers_.num_pushed(), 4u);
}

// As servers of an async run: after begin_save() they grant no ticket until end_save().
class HoldingServers final : public StubServers {
 public:
  explicit HoldingServers(train::TrainerChannels& channels) : channels_(channels) {}

  Result<Claimed> claim(const std::stop_token&) override {
    constexpr int kEnough = 1'000;
    if (step_ == 2) return Claimed{.reply = ClaimReply::kEnded, .step = step_};
    if (!is_saving_) return Claimed{.reply = ClaimReply::kGranted, .ticket = step_, .step = step_};
    if (++num_waits_ > kEnough) return Status(StatusCode::kTimedOut, "the save does not end");
    return Claimed{};
  }
  Result<PushResult> push(uint64_t, uint64_t, const Sums&, const std::vector<at::Tensor>&,
                          const train::Optimizer::Reached&, const std::stop_token&) override {
    ++step_;
    return PushResult::kAccepted;
  }
  // The first time gradients are missing, and then the user resumes.
  Result<std::optional<std::pair<uint64_t, Sums>>> begin_save(const std::stop_token&) override {
    is_saving_ = true;
    if (!std::exchange(is_first_, false)) return std::optional(std::pair(step_, Sums{.steps = 1}));
    channels_.mailbox.post({.command = control::Resume{}, .done = {}});
    return std::optional<std::pair<uint64_t, Sums>>();
  }
  Status end_save(const std::stop_token&) override {
    is_saving_ = false;
    return {};
  }

 private:
  train::TrainerChannels& channels_;
  uint64_t step_ = 0;
  bool is_saving_ = false, is_first_ = true;
  int num_waits_ = 0;
};

TEST_F(ReplicaTrainerCommandTest, TrainsOnWhenResumedBeforePauseTakesEffect) {
  config_.train.gradient_accumulation_steps = 1;
  HoldingServers servers(channels_);
  post(control::Pause{});
  const auto outcome = run(servers);
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, run::RunOutcome::kFinished);
  EXPECT_FALSE(channels_.is_paused);
}

TEST_F(ReplicaTrainerCommandTest, SavesStateOfPauseThatIsStopped) {
  post(control::Pause{}, [&] { post(control::Stop{}); });
  const auto outcome = run();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, run::RunOutcome::kStopped);
  EXPECT_EQ(servers_.num_pushed(), 3u);
  const auto saved = store_.list();
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  ASSERT_EQ(saved->size(), 1u);
  EXPECT_EQ(saved->front().step, 1u);
}

// When three gradients are there; then the servers hold the state after one step.
TEST_F(ReplicaTrainerCommandTest, ChangesSettingsWhileServersHoldState) {
  config_.scheduler = {.schedule = config::ConstantScheduler{}, .warmup_steps = 0};
  post(control::SetSetting{.key = kLr, .value = "0.5", .dry_run = true});
  post(control::SetSetting{.key = kLr, .value = "0.5"});
  post(control::SetSetting{.key = "train.max_steps", .value = "1"});
  post(control::SetSetting{.key = "feed.num_workers", .value = "3"});
  const auto outcome = run();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  ASSERT_EQ(replies_.size(), 4u);
  EXPECT_NE(replies_[0].find(R"("dry_run":true)"), std::string::npos) << replies_[0];
  EXPECT_NE(replies_[1].find("feed.num_workers: each worker reads with one thread"),
            std::string::npos)
      << replies_[1];
  EXPECT_EQ(replies_[2], R"({"step":1,"key":"optimizer.lr","value":5E-1,"lr":5E-1})");
  EXPECT_NE(replies_[3].find("train.max_steps: 1 is not above the current step 1"),
            std::string::npos)
      << replies_[3];
  EXPECT_EQ(num_pushed_, (std::vector<uint64_t>{0, 0, 3, 3}));
  ASSERT_EQ(servers_.changed_.size(), 1u);
  EXPECT_EQ(servers_.changed_[0].step, 1u);
  EXPECT_EQ(servers_.changed_[0].live.settings[0].value, "0.5");
  ASSERT_EQ(recorded_.size(), 1u);
  EXPECT_TRUE(recorded_[0].starts_with("1 optimizer.lr: ")) << recorded_[0];
  const auto status = channels_.board.read();
  ASSERT_EQ(status->live_settings.size(), 1u);
  EXPECT_EQ(status->live_settings[0], (std::pair<std::string, std::string>(kLr, "0.5")));
  EXPECT_EQ(status->lr, 0.5);
  const auto saved = store_.list();
  ASSERT_TRUE(saved.ok() && !saved->empty());
  const auto checkpoint = checkpoint::CheckpointStore::open_verified(saved->back().path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  const auto live = train::parse_live_state(checkpoint->manifest().live_settings);
  ASSERT_TRUE(live.ok()) << live.status().to_string();
  EXPECT_EQ(live->settings, servers_.changed_[0].live.settings);
}

// Other workers may have left, of which the chief knows nothing before it asks for a ticket.
TEST_F(ReplicaTrainerCommandTest, DoesNotExtendRunAfterLastStep) {
  config_.train.max_steps = 1;
  post(control::SetSetting{.key = "train.max_steps", .value = "9"});
  const auto outcome = run();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_NE(replies_[0].find("training has ended"), std::string::npos) << replies_[0];
  EXPECT_EQ(num_pushed_, std::vector<uint64_t>{3}) << "not at the end";
  EXPECT_TRUE(servers_.changed_.empty());
}

// Of a chief that returns: those of its checkpoint are recorded already.
TEST_F(ReplicaTrainerCommandTest, RecordsSettingsThatServersHaveAndItsCheckpointHasNot) {
  const auto version = [](uint64_t step, const std::string& previous, const std::string& current) {
    SettingsVersion made{.step = step, .live = {}, .change = {}};
    made.live.settings = {{.key = kLr, .value = current, .configured = "0.0003"}};
    made.change = {.key = kLr, .previous = previous, .current = current};
    return made;
  };
  live_ = version(0, "0.0003", "0.25").live.settings;
  servers_.settings_ = {version(0, "0.0003", "0.25"), version(1, "0.25", "0.5")};
  const auto outcome = run();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(recorded_, std::vector<std::string>{"1 optimizer.lr: 0.25 -> 0.5, lr 0.5"});
  EXPECT_TRUE(servers_.changed_.empty());
}

TEST_F(ReplicaTrainerCommandTest, ProfilesMicroBatchesOfChief) {
  using train::Phase;
  post(control::Profile{.steps = 3});
  const auto outcome = run();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  ASSERT_EQ(sink_.profiles_.size(), 1u);
  std::vector<uint64_t> steps;
  for (const train::ProfiledStep& step : sink_.profiles_[0].steps) {
    steps.push_back(step.step);
    std::vector<Phase> phases;
    for (const train::PhaseSpan& span : step.spans) phases.push_back(span.phase);
    EXPECT_EQ(phases, (std::vector<Phase>{Phase::kDataWait, Phase::kForward, Phase::kBackward,
                                          Phase::kOptimizer}));
  }
  EXPECT_EQ(steps, (std::vector<uint64_t>{1, 1, 2}));
}

TEST_F(ReplicaTrainerCommandTest, InspectsMicroBatchesOfChief) {
  post(control::OpenInspection{.glob = "*", .inputs = true});
  const auto outcome = run();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  const auto records = channels_.inspections.read(1, 0);
  ASSERT_TRUE(records.ok()) << records.status().to_string();
  for (const std::string text : {R"("step":1,"ticket":0)", R"("step":2,"ticket":3)",
                                 R"("kind":"gradient")", R"("kind":"parameter")"})
    EXPECT_NE(records->find(text), std::string::npos) << text << " in " << *records;
}

// The statistics of batch norm over the inputs, which are the numbers of the samples.
TEST(ReplicaTrainerBuffersTest, SavesThoseOfCompleteSteps) {
  const test::TemporaryDirectory directory;
  config::Config config = one_sample_config(2);
  config.model.arch =
      config::SequentialConfig{.layers = {config::BatchNormLayer{}, config::LinearLayer{}}};
  config.train.micro_batch_size = 2;
  config.train.gradient_accumulation_steps = 2;
  const WatchedDataset data;
  const data::order::SamplePlan plan = plan_of(config, data);
  checkpoint::CheckpointStore store(directory.path(), default_file_system());
  writer::WriterOptions options;
  options.delete_expired = [](bool) {};
  writer::CheckpointWriter writer(store, options, system_clock());
  Coordinator threads;
  threads.start("checkpoints", [&](std::stop_token stop) { return writer.run(stop); });
  train::TrainerChannels channels{system_clock()};
  SavedProfiles sink;
  channels.mailbox.post({.command = control::SaveCheckpoint{}, .done = {}});
  HalfStepServers servers;
  const auto state = *train::TrainingState::create(config, data.info(), c10::Device(c10::kCPU));
  ReplicaTrainer trainer(config, data, plan, *state, servers, channels, system_clock(),
                         ChiefDuties{.writer = writer, .sink = sink});
  const auto outcome = trainer.run({});
  threads.request_stop();
  ASSERT_TRUE(threads.join(kPatience).ok());
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();

  // Batch t has the samples 2t and 2t + 1; running = 0.9 * running + 0.1 * mean.
  float mean = 0;
  for (uint64_t step = 1; step <= 2; ++step) {
    for (const uint64_t ticket : {2 * step - 2, 2 * step - 1})
      mean = 0.9F * mean + 0.1F * (2.0F * static_cast<float>(ticket) + 0.5F);
    const auto saved = checkpoint::CheckpointStore::open_verified(
        directory / checkpoint::CheckpointStore::checkpoint_name(step));
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    const auto weights = *saved->open_tensors("model.safetensors");
    int64_t batches = 0;
    ASSERT_TRUE(
        weights->read("0.num_batches_tracked", std::as_writable_bytes(std::span(&batches, 1)))
            .ok());
    EXPECT_EQ(batches, static_cast<int64_t>(2 * step));
    std::array<float, 4> means{};
    ASSERT_TRUE(weights->read("0.running_mean", std::as_writable_bytes(std::span(means))).ok());
    for (const float value : means) EXPECT_NEAR(value, mean, 1e-5F) << step;
  }
}

// Each value of a sample is its number. Those of every second step have a class without weight.
class WeightedDataset final : public data::Dataset {
 public:
  explicit WeightedDataset(uint64_t samples_per_step) : samples_per_step_(samples_per_step) {
    info_.size = 64;
    info_.fingerprint = "weighted";
    info_.classes = 2;
    info_.spec = {{.name = "input", .dtype = DType::kF32, .shape = {4}},
                  {.name = "label", .dtype = DType::kI64, .shape = {}}};
  }
  const data::DatasetInfo& info() const override { return info_; }
  data::SampleSource source(uint64_t) const override { return {}; }
  Status read(uint64_t sample, const data::RandomKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    const std::vector<float> input(4, static_cast<float>(sample));
    const int64_t label = has_values(sample / samples_per_step_) ? 1 : 0;
    std::memcpy(outputs[0].data(), input.data(), outputs[0].size());
    std::memcpy(outputs[1].data(), &label, sizeof label);
    return {};
  }
  static bool has_values(uint64_t step) { return step % 2 == 0; }

 private:
  const uint64_t samples_per_step_;
  data::DatasetInfo info_;
};

// All tickets of four steps, whose state is saved at the end.
class AllStepsServers final : public StubServers {
 public:
  explicit AllStepsServers(uint64_t tickets_per_step) : tickets_per_step_(tickets_per_step) {}
  static constexpr uint64_t kSteps = 4;

  Result<Claimed> claim(const std::stop_token&) override {
    const uint64_t step = num_pushed_ / tickets_per_step_;
    if (step == kSteps) return Claimed{.reply = ClaimReply::kEnded, .step = step};
    return Claimed{.reply = ClaimReply::kGranted, .ticket = num_pushed_, .step = step};
  }
  Result<PushResult> push(uint64_t, uint64_t, const Sums&, const std::vector<at::Tensor>&,
                          const train::Optimizer::Reached&, const std::stop_token&) override {
    ++num_pushed_;
    return PushResult::kAccepted;
  }
  Result<std::optional<std::pair<uint64_t, Sums>>> begin_save(const std::stop_token&) override {
    return std::optional(std::pair(kSteps, Sums{.steps = 1}));
  }

 private:
  const uint64_t tickets_per_step_;
  uint64_t num_pushed_ = 0;
};

class StepsWithoutValuesTest : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(MicroBatches, StepsWithoutValuesTest, testing::Values(1, 2));

// As in one process, where such a step leaves all state as it was.
TEST_P(StepsWithoutValuesTest, LeaveBuffers) {
  const uint64_t accumulate = GetParam();
  const test::TemporaryDirectory directory;
  config::Config config = one_sample_config(AllStepsServers::kSteps);
  config.model.arch =
      config::SequentialConfig{.layers = {config::BatchNormLayer{}, config::LinearLayer{}}};
  config.task.task = config::ClassificationTask{.class_weights = {.values = {0, 1}}};
  config.train.micro_batch_size = 2;
  config.train.gradient_accumulation_steps = static_cast<int64_t>(accumulate);
  const WeightedDataset data(2 * accumulate);
  const data::order::SamplePlan plan = plan_of(config, data);
  checkpoint::CheckpointStore store(directory.path(), default_file_system());
  writer::WriterOptions options;
  options.delete_expired = [](bool) {};
  writer::CheckpointWriter writer(store, options, system_clock());
  Coordinator threads;
  threads.start("checkpoints", [&](std::stop_token stop) { return writer.run(stop); });
  train::TrainerChannels channels{system_clock()};
  SavedProfiles sink;
  AllStepsServers servers(accumulate);
  const auto state = *train::TrainingState::create(config, data.info(), c10::Device(c10::kCPU));
  ReplicaTrainer trainer(config, data, plan, *state, servers, channels, system_clock(),
                         ChiefDuties{.writer = writer, .sink = sink});
  const auto outcome = trainer.run({});
  threads.request_stop();
  ASSERT_TRUE(threads.join(kPatience).ok());
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();

  // Batch t has the samples 2t and 2t + 1; running = 0.9 * running + 0.1 * mean.
  float mean = 0;
  int64_t num_batches = 0;
  for (uint64_t ticket = 0; ticket < AllStepsServers::kSteps * accumulate; ++ticket) {
    if (!WeightedDataset::has_values(ticket / accumulate)) continue;
    mean = 0.9F * mean + 0.1F * (2.0F * static_cast<float>(ticket) + 0.5F);
    ++num_batches;
  }
  const auto saved = checkpoint::CheckpointStore::open_verified(
      directory / checkpoint::CheckpointStore::checkpoint_name(AllStepsServers::kSteps));
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  const auto weights = *saved->open_tensors("model.safetensors");
  int64_t batches = 0;
  ASSERT_TRUE(
      weights->read("0.num_batches_tracked", std::as_writable_bytes(std::span(&batches, 1))).ok());
  EXPECT_EQ(batches, num_batches);
  std::array<float, 4> means{};
  ASSERT_TRUE(weights->read("0.running_mean", std::as_writable_bytes(std::span(means))).ok());
  for (const float value : means) EXPECT_NEAR(value, mean, 1e-5F);
}

}  // namespace
}  // namespace stoker::parameter_server
