// `pause --release`: the trainer and its state are destroyed in a pause, and another one resumes from the
// checkpoint.
#include "daemon/train/released_pause.h"

#include <cerrno>

#include <gmock/gmock.h>

#include "tests/daemon/train/fake_device_engine.h"
#include "tests/daemon/train/trainer_session.h"
#include "tests/support/fake_device/device_allocator.h"
#include "tests/support/faulty_files.h"
#include "tests/support/logged_text.h"

namespace stoker::train {
namespace {

using test::count_of;
using test::log_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const auto kNoPoison = [](uint64_t) { return false; };

class ReleasedPauseTest : public TrainerTest {
 protected:
  static void SetUpTestSuite() { fake_device::install_device_allocator(); }

  // On a device whose schedule follows from `seed`.
  static std::unique_ptr<Session> session_on_device(const config::Config& config,
                                                    const std::string& root, uint64_t seed,
                                                    FileSystem& files = default_file_system(),
                                                    bool is_saved = true) {
    ModelContext context{.files = files};
    context.has_device_memory = true;
    context.is_saved = is_saved;
    const LaterRing ring = make_later_ring();
    context.make_engine =
        on_fake_device(ring, {.seed = seed, .removed_fence = "", .is_all_pinned = true});
    auto made = std::make_unique<Session>(config, root, kNoPoison, std::move(context));
    *ring = made->ring_.get();
    return made;
  }

  static std::vector<double> losses_of(const Session& session) {
    std::vector<double> losses;
    for (const metrics::TrainMetrics& row : session.rows_) losses.push_back(row.loss);
    return losses;
  }

  std::vector<std::string> replies_;
  Done record_reply() {
    return [this](const Result<std::string>& reply) {
      replies_.push_back(reply.ok() ? *reply : reply.status().to_string());
    };
  }
};

// With AdamW, dropout and averaged weights.
TEST_F(ReleasedPauseTest, ReleasesMemoryAndContinuesWithSameBytes) {
  auto config = small_config(12);
  config.train.ema_decay = 0.9;
  config.metrics.log_every_steps = 1;
  mlp_of(config).hidden_sizes = {256};
  const std::string reference = fresh();
  auto uninterrupted = session_on_device(config, reference, 1);
  ASSERT_TRUE(uninterrupted->train().ok());

  const int64_t before = fake_device::allocated_bytes();
  auto paused = session_on_device(config, root_, 2);
  paused->on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step == 5) paused->mailbox_.post({control::Pause{.release = true}, record_reply()});
  };
  const auto outcome = paused->train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kReleased);
  EXPECT_TRUE(paused->channels_.is_paused);
  const uint64_t step = paused->state_->step;
  EXPECT_THAT(paused->saved(), ElementsAre(step));
  EXPECT_THAT(replies_, IsEmpty()) << "the memory is in use";
  std::vector<double> losses = losses_of(*paused);
  const int64_t parameters = 256 * (8 + 2) * static_cast<int64_t>(sizeof(float));
  EXPECT_GT(fake_device::allocated_bytes(), before + 4 * parameters) << "with AdamW and averages";
  paused.reset();
  EXPECT_LT(fake_device::allocated_bytes(), before + parameters / 2);

  auto resumed = session_on_device(config, root_, 3);
  EXPECT_EQ(resumed->state_->step, step);
  ASSERT_TRUE(resumed->train().ok());
  EXPECT_EQ(resumed->model_sha256(), uninterrupted->model_sha256());
  for (const double loss : losses_of(*resumed)) losses.push_back(loss);
  EXPECT_EQ(losses, losses_of(*uninterrupted));
}

TEST_F(ReleasedPauseTest, SaysThatCpuHasNothingToRelease) {
  Session run(small_config(9), root_);
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step != 3) return;
    run.ask(control::Pause{.release = true});
    run.ask(control::Resume{});
  };
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kFinished);
  EXPECT_THAT(run.replies_,
              ElementsAre(HasSubstr(R"("released":false,"reason":"training on the CPU)"),
                          HasSubstr("training")));
  EXPECT_THAT(run.saved(), ElementsAre(9)) << "no checkpoint for the pause";
}

TEST_F(ReleasedPauseTest, HasNothingToContinueFromBeforeFirstStep) {
  auto run = session_on_device(small_config(3), root_, 1);
  run->ask(control::Pause{.release = true});
  run->ask(control::Resume{});
  const auto outcome = run->train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kFinished);
  EXPECT_THAT(run->replies_[0], HasSubstr(R"("released":false)"));
}

// Otherwise nothing would be left to continue from.
TEST_F(ReleasedPauseTest, SavesStateResumedFromElsewhereBeforeFirstStep) {
  ASSERT_TRUE(Session(small_config(5), root_).train().ok());
  auto run = session_on_device(small_config(9), root_, 1, default_file_system(), false);
  std::filesystem::rename(root_ + "/checkpoints", root_ + "/elsewhere");
  run->ask(control::Pause{.release = true});
  const auto outcome = run->train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kReleased);
  EXPECT_THAT(run->saved(), ElementsAre(5));
  run.reset();
  auto resumed = session_on_device(small_config(9), root_, 2);
  EXPECT_EQ(resumed->state_->step, 5u);
  EXPECT_TRUE(resumed->train().ok());
}

TEST_F(ReleasedPauseTest, KeepsMemoryWhileCheckpointsCannotBeWritten) {
  auto config = small_config(12);
  config.metrics.log_every_steps = 1;
  config.checkpoint.save_every_steps = 3;
  test::FaultyFiles files(root_);
  auto run = session_on_device(config, root_, 1, files);
  run->on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step == 1)
      files.fail_at(files.operations().size() + 1, {.error = ENOSPC, .from_here_on = true});
    if (row.step != 7) return;
    EXPECT_TRUE(run->writer_->wait_idle(std::chrono::seconds(60)));
    run->mailbox_.post({control::Pause{.release = true}, [&](const Result<std::string>& reply) {
                          record_reply()(reply);
                          files.heal();
                          run->ask(control::Resume{});
                        }});
  };
  const auto outcome = run->train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, TrainerOutcome::kFinished);
  EXPECT_THAT(replies_, ElementsAre(HasSubstr("checkpoints cannot be written")));
}

TEST_F(ReleasedPauseTest, AnswersCommandsUntilResumed) {
  TrainerChannels channels(system_clock());
  channels.is_paused = true;
  channels.board.set_step(7);
  channels.release_requests.push_back(record_reply());
  control::TrainerStatus last;
  last.checkpoint.last_saved_step = 7;
  last.checkpoint.saved_total = 2;
  last.feed.workers = 3;
  publish_released(channels, last, cuda::DeviceUsage{.reserved_bytes = 100});
  const auto published = channels.board.read();
  EXPECT_EQ(published->state, control::TrainerState::kPaused);
  EXPECT_EQ(published->step, 7u);
  EXPECT_EQ(published->checkpoint.last_saved_step, 7u);
  EXPECT_EQ(published->checkpoint.saved_total, 2u);
  EXPECT_EQ(published->feed.workers, 0);
  EXPECT_EQ(published->resources[Resource::kDeviceReserved], 100);
  for (const control::Command& command :
       {control::Command(control::SaveCheckpoint{}),
        control::Command(control::SetSetting{"optimizer.lr", "1"}),
        control::Command(control::Pause{}), control::Command(control::Resume{})})
    channels.mailbox.post({command, record_reply()});
  EXPECT_TRUE(wait_while_released(channels, {}));
  EXPECT_EQ(channels.board.read()->state, control::TrainerState::kStarting);
  EXPECT_THAT(replies_,
              ElementsAre(HasSubstr(R"("step":7,"state":"paused","released":true)"),
                          HasSubstr(R"("already_saved":true)"), HasSubstr("resume"),
                          HasSubstr(R"("released":true)"), HasSubstr(R"("state":"training")")));
}

TEST_F(ReleasedPauseTest, IsPausedEvenIfMemoryCannotBeReleased) {
  TrainerChannels channels(system_clock());
  channels.is_paused = true;
  channels.release_requests.push_back(record_reply());
  const std::string log = log_of([&] {
    publish_released(channels, {}, Status(StatusCode::kDeviceLost, "the device is lost"));
  });
  EXPECT_EQ(channels.board.read()->state, control::TrainerState::kPaused);
  EXPECT_THAT(replies_, ElementsAre(HasSubstr("the device is lost")));
  EXPECT_THAT(log, AllOf(HasSubstr("device memory not released error="),
                         HasSubstr("training paused step=0")));
}

TEST_F(ReleasedPauseTest, LogsOnePauseIfMemoryIsReleasedInIt) {
  TrainerChannels channels(system_clock());
  channels.is_paused = true;
  channels.board.set_step(7);
  const std::string log = log_of([&] {
    channels.pause_log.pause(7);
    publish_released(channels, {}, cuda::DeviceUsage{.reserved_bytes = 100});
    channels.mailbox.post({control::Resume{}, record_reply()});
    EXPECT_TRUE(wait_while_released(channels, {}));
    channels.pause_log.resume(7);
  });
  EXPECT_EQ(count_of(log, "training paused step=7"), 1u) << log;
  EXPECT_EQ(count_of(log, "training resumed step=7"), 1u) << log;
}

TEST_F(ReleasedPauseTest, StopsWithoutTrainer) {
  TrainerChannels channels(system_clock());
  channels.is_paused = true;
  channels.mailbox.post({control::Stop{}, record_reply()});
  EXPECT_FALSE(wait_while_released(channels, {}));
  EXPECT_THAT(replies_, ElementsAre(HasSubstr("stopping")));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(wait_while_released(channels, stop.get_token()));
}

TEST_F(ReleasedPauseTest, ContinuesImmediatelyIfResumedBeforeRelease) {
  TrainerChannels channels(system_clock());
  EXPECT_TRUE(wait_while_released(channels, {}));
}

}  // namespace
}  // namespace stoker::train
