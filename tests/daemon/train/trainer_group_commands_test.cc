// What changes how the ranks of a group continue: rollbacks, dataset versions, the loss of the group,
// and commands of several clients. All ranks decide the same at the same step.
#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/train/trainer_group_fixture.h"

namespace stoker::train {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;

class TrainerGroupCommandsTest : public TrainerGroupTest {
 protected:
  // NaN in the first sample that rank 1 of 2 trains on in `step`, of the first epoch.
  void poison(const config::Config& config, uint64_t step) {
    ranks_.clear();  // their workers use is_poisoned_
    const auto tickets = static_cast<uint64_t>(config.train.gradient_accumulation_steps);
    const Session planned(config, fresh());
    const uint64_t poisoned = planned.plan_->at((step - 1) * tickets + tickets / 2, 0).sample;
    is_poisoned_ = [poisoned](int rank, uint64_t sample) {
      return rank == 1 && sample == poisoned;
    };
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
};

TEST_F(TrainerGroupCommandsTest, RollsBackAllRanksAfterStepThatIsNotFiniteOnOne) {
  for (auto config : {shared_config(20), sharded_config(20)}) {
    config.train.on_nonfinite = config::OnNonfinite::kRollback;
    config.checkpoint.save_every_steps = 2;
    poison(config, 3);
    open_shared(config, 2, fresh());
    for (const auto& session : ranks_) wait_for_saves(*session);
    expect_all(TrainerOutcome::kRolledBack);
    EXPECT_THAT(steps_of_ranks(), ElementsAre(3, 3));
    wait_until_saved(chief());
    EXPECT_THAT(chief().saved(), ElementsAre(2));
    for (const auto& session : ranks_) EXPECT_FALSE(session->channels_.expects_exchange);
  }
}

TEST_F(TrainerGroupCommandsTest, EndsAllRanksAfterTooManyRollbacks) {
  auto config = shared_config(20);
  config.train.on_nonfinite = config::OnNonfinite::kRollback;
  poison(config, 3);
  open(config, 2);
  for (const auto& session : ranks_)
    session->state_->rollbacks = static_cast<uint64_t>(config.train.max_nonfinite);
  for (const auto& outcome : train()) {
    EXPECT_EQ(outcome.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(outcome.status().message(), HasSubstr("not finite at step 3 after"));
  }
}

// A launcher does not repeat its signal.
TEST_F(TrainerGroupCommandsTest, StopsAtStepThatWouldBeRolledBack) {
  for (const uint64_t max_steps : {uint64_t{20}, uint64_t{3}}) {
    auto config = shared_config(max_steps);
    config.train.on_nonfinite = config::OnNonfinite::kRollback;
    poison(config, 3);
    open(config, 2);
    rank(1).on_row = [this](const metrics::TrainMetrics& row) {
      if (row.step == 2) rank(1).ask(control::Stop{.is_preemption = true});
    };
    expect_all(TrainerOutcome::kPreempted);
    EXPECT_THAT(steps_of_ranks(), ElementsAre(3, 3));
    EXPECT_THAT(chief().saved(), IsEmpty());
    EXPECT_THAT(rank(1).replies_, ElementsAre(HasSubstr(R"({"step":3,)")));
  }
}

// The run continues from it.
TEST_F(TrainerGroupCommandsTest, CompletesCheckpointInFlightWhenItStopsAtStepThatIsNotFinite) {
  auto config = sharded_config(20);
  config.train.on_nonfinite = config::OnNonfinite::kRollback;
  config.checkpoint.save_every_steps = 2;
  poison(config, 3);
  open_shared(config, 2, fresh());
  rank(1).on_row = [this](const metrics::TrainMetrics& row) {
    if (row.step == 2) rank(1).ask(control::Stop{.is_preemption = true});
  };
  expect_all(TrainerOutcome::kPreempted);
  for (const auto& session : ranks_)
    EXPECT_TRUE(session->writer_->wait_idle(std::chrono::milliseconds(0)));
  EXPECT_THAT(chief().saved(), ElementsAre(2));
}

TEST_F(TrainerGroupCommandsTest, StartsDatasetVersionOfChiefAtSameStep) {
  for (const auto& config : {shared_config(20), sharded_config(20)}) {
    open_shared(config, 4, fresh());
    chief().has_new_version = [](uint64_t ticket) { return ticket >= 4 * 7; };
    expect_all(TrainerOutcome::kNewDatasetVersion);
    EXPECT_THAT(steps_of_ranks(), ElementsAre(7, 7, 7, 7));
    EXPECT_THAT(chief().saved(), ElementsAre(7));
  }
}

TEST_F(TrainerGroupCommandsTest, StartsDatasetVersionFoundDuringPause) {
  open(shared_config(20), 2);
  std::atomic<bool> is_found = false;
  chief().has_new_version = [&](uint64_t ticket) { return is_found && ticket >= 4; };
  chief().on_row = [this](const metrics::TrainMetrics& row) {
    if (row.step == 2) chief().ask(control::Pause{});
  };
  std::jthread client([&] {
    wait_until_paused(chief());
    is_found = true;
    const uint64_t exchanges = chief().channels_.group_exchanges;
    wait_until([&] { return chief().channels_.group_exchanges >= exchanges + 2; });
    chief().mailbox_.post({control::Resume{}, {}});
  });
  expect_all(TrainerOutcome::kNewDatasetVersion);
  EXPECT_THAT(steps_of_ranks(), ElementsAre(3, 3));
}

// They are those of the run, not of the trainer.
TEST_F(TrainerGroupCommandsTest, LeavesRequestsWithoutEffectToNextTrainer) {
  open(shared_config(20), 2);
  chief().has_new_version = [](uint64_t ticket) { return ticket >= 4 * 3; };
  chief().on_row = [this](const metrics::TrainMetrics& row) {
    if (row.step == 3) chief().ask(control::Pause{});
  };
  rank(1).on_row = [this](const metrics::TrainMetrics& row) {
    if (row.step == 3) rank(1).ask(control::Stop{.is_preemption = true});
  };
  expect_all(TrainerOutcome::kNewDatasetVersion);
  const auto left = chief().mailbox_.take();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<control::Pause>(left[0].command));
  const auto left_to_other = rank(1).mailbox_.take();
  ASSERT_EQ(left_to_other.size(), 1u);
  EXPECT_TRUE(std::get<control::Stop>(left_to_other[0].command).is_preemption);
  EXPECT_THAT(chief().replies_, IsEmpty());
  EXPECT_THAT(rank(1).replies_, IsEmpty());
}

TEST_F(TrainerGroupCommandsTest, EndsWhenGroupIsLostAtCommit) {
  auto config = shared_config(100);
  config.checkpoint.save_every_steps = 2;
  may_commit_ = Status(StatusCode::kPeerLost, "the group's store does not respond");
  open(config, 2);
  wait_for_saves(chief());
  for (const auto& outcome : train()) EXPECT_EQ(outcome.status().code(), StatusCode::kPeerLost);
  EXPECT_THAT(chief().state_->step, Le(4u));
  for (const auto& session : ranks_) EXPECT_FALSE(session->channels_.expects_exchange);
  EXPECT_EQ(chief().writer_->stats().failures, 1u) << "tried again";
}

// ---- Commands under load

// A client of the control server: sends commands one after another until training has ended.
class Client {
 public:
  struct Exchange {
    control::Command command;
    boost::json::object reply;
  };

  Client(Mailbox& mailbox, uint64_t seed) : mailbox_(mailbox), random_(seed) {}

  void send_random(int count) {
    for (int i = 0; i < count; ++i)
      if (!send(random_command())) return;
  }
  // False: training has ended.
  bool send(const control::Command& command) {
    std::promise<Result<std::string>> replied;
    mailbox_.post(
        {command, [&](Result<std::string> reply) { replied.set_value(std::move(reply)); }});
    const auto reply = replied.get_future().get();
    if (!reply.ok()) {
      EXPECT_EQ(reply.status().code(), StatusCode::kClosed) << reply.status().to_string();
      return false;
    }
    exchanges_.push_back({command, boost::json::parse(*reply).as_object()});
    return true;
  }
  const std::vector<Exchange>& exchanges() const { return exchanges_; }

 private:
  control::Command random_command() {
    switch (std::uniform_int_distribution<int>(0, 5)(random_)) {
      case 0:
        return control::Pause{};
      case 1:
      case 2:
        return control::Resume{};
      case 3:
        return control::SaveCheckpoint{};
      default:
        return control::SetSetting{
            .key = "optimizer.lr",
            .value = "0.00" + std::to_string(std::uniform_int_distribution<int>(1, 9)(random_))};
    }
  }

  Mailbox& mailbox_;
  std::mt19937_64 random_;
  std::vector<Exchange> exchanges_;
};

class TrainerGroupLoadTest : public TrainerGroupCommandsTest,
                             public testing::WithParamInterface<uint64_t> {
 protected:
  using Exchanges = std::vector<std::pair<uint64_t, uint64_t>>;

  // Until one of two clients stops the run.
  void train_under_load(int commands) {
    exchanges_.resize(ranks_.size());
    for (size_t each = 0; each < ranks_.size(); ++each)
      rank(each).on_row = [this, each](const metrics::TrainMetrics& row) {
        exchanges_[each].emplace_back(row.step, rank(each).channels_.group_exchanges);
      };
    std::jthread first([&] {
      clients_[0].send_random(commands);
      EXPECT_TRUE(clients_[0].send(control::Stop{}));
    });
    std::jthread second([&] {
      while (clients_[1].send(control::Resume{})) clients_[1].send_random(10);
    });
    expect_all(TrainerOutcome::kStopped);
    chief().mailbox_.close();
  }
  // Of the pauses, from how often the ranks have exchanged their records between two steps.
  static std::set<uint64_t> paused_steps(const Exchanges& exchanges) {
    std::set<uint64_t> steps;
    for (size_t i = 1; i < exchanges.size(); ++i)
      if (exchanges[i].second > exchanges[i - 1].second + 1) steps.insert(exchanges[i - 1].first);
    return steps;
  }

  std::vector<Exchanges> exchanges_;  // by rank: after each step
  std::vector<Client> clients_;
};

TEST_P(TrainerGroupLoadTest, AppliesCommandsOfTwoClientsAtSameStepsOnAllRanks) {
  open(shared_config(1'000'000), 4);
  for (const uint64_t client : {1, 2})
    clients_.emplace_back(chief().mailbox_, 10 * GetParam() + client);
  train_under_load(60);

  const uint64_t end = chief().state_->step;
  EXPECT_THAT(steps_of_ranks(), ElementsAre(end, end, end, end));
  for (size_t each = 1; each < ranks_.size(); ++each) {
    EXPECT_EQ(exchanges_[each], exchanges_[0]) << "rank " << each << " paused elsewhere";
    EXPECT_EQ(rank(each).setting_changes_, chief().setting_changes_);
    expect_same_records(rank(each), chief());
  }
  // One collective per step and per exchange of a pause, whatever the commands.
  EXPECT_EQ(group_->collectives(), chief().channels_.group_exchanges);

  // Each reply has the step of its effect.
  const auto saved = chief().saved();
  std::set<uint64_t> paused;
  std::multiset<std::string> changed;
  for (const Client& client : clients_) {
    for (const auto& [command, reply] : client.exchanges()) {
      const uint64_t step = reply.at("step").to_number<uint64_t>();
      EXPECT_LE(step, end);
      if (std::holds_alternative<control::Pause>(command)) paused.insert(step);
      if (std::holds_alternative<control::Stop>(command)) {
        EXPECT_EQ(step, end);
      }
      if (std::holds_alternative<control::SaveCheckpoint>(command)) {
        EXPECT_THAT(saved, Contains(step));
      }
      if (const auto* const set = std::get_if<control::SetSetting>(&command))
        changed.insert(std::to_string(step) + " " + set->key + " " + set->value);
    }
  }
  // A pause that the same step stopped was none.
  paused.erase(end);
  EXPECT_EQ(paused, paused_steps(exchanges_[0]));
  const auto& changes = chief().setting_changes_;
  EXPECT_EQ(changed, std::multiset<std::string>(changes.begin(), changes.end()));
  EXPECT_FALSE(changed.empty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, TrainerGroupLoadTest, testing::Range<uint64_t>(1, 6));

}  // namespace
}  // namespace stoker::train
