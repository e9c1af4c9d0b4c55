// Commands of several clients while the ranks of a group train, one of them is starved of data, its disk is full, or it
// cannot read its data. All ranks apply each at the same step, which the reply names.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
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
#include "tests/support/faulty_files.h"

namespace stoker::train {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The reply comes on the thread of the trainer, or of its writer.
std::future<Result<std::string>> post(Mailbox& mailbox, const control::Command& command) {
  const auto replied = std::make_shared<std::promise<Result<std::string>>>();
  mailbox.post(
      {command, [replied](Result<std::string> reply) { replied->set_value(std::move(reply)); }});
  return replied->get_future();
}

uint64_t step_of(const std::string& reply) {
  return boost::json::parse(reply).as_object().at("step").to_number<uint64_t>();
}

// A client of the control server: sends commands one after another until training has ended.
class Client {
 public:
  struct Exchange {
    control::Command command;
    uint64_t step = 0;  // of the reply
  };

  Client(Mailbox& mailbox, uint64_t seed) : mailbox_(mailbox), random_(seed) {}

  void send_random(int count) {
    for (int i = 0; i < count; ++i)
      if (!send(random_command())) return;
  }
  // False: training has ended.
  bool send(const control::Command& command) {
    const auto reply = post(mailbox_, command).get();
    if (reply.ok())
      exchanges_.push_back({command, step_of(*reply)});
    else if (reply.status().code() != StatusCode::kClosed)
      errors_.push_back(reply.status().to_string());
    return reply.ok() || reply.status().code() != StatusCode::kClosed;
  }
  const std::vector<Exchange>& exchanges() const { return exchanges_; }
  const std::vector<std::string>& errors() const { return errors_; }

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
  std::vector<std::string> errors_;
};

class TrainerGroupLoadTest : public TrainerGroupTest, public testing::WithParamInterface<uint64_t> {
 protected:
  using Exchanges = std::vector<std::pair<uint64_t, uint64_t>>;

  ~TrainerGroupLoadTest() override { ranks_.clear(); }  // before files_

  // Two clients send commands: the first one as `first`, the other one until training has ended.
  std::vector<Result<TrainerOutcome>> train_with_clients(
      const std::function<void(Client&)>& first) {
    for (const uint64_t client : {1, 2})
      clients_.emplace_back(chief().mailbox_, 10 * GetParam() + client);
    exchanges_.resize(ranks_.size());
    for (size_t each = 0; each < ranks_.size(); ++each)
      rank(each).on_row = [this, each](const metrics::TrainMetrics& row) {
        exchanges_[each].emplace_back(row.step, rank(each).channels_.group_exchanges);
      };
    const std::jthread one([&] { first(clients_[0]); });
    const std::jthread other([&] { send_until_end(clients_[1]); });
    return train();
  }
  static void send_until_end(Client& client) {
    while (client.send(control::Resume{})) client.send_random(10);  // check_tests: the run ends
  }
  // The first client then stops the run.
  void train_under_load(const std::function<void(Client&)>& first) {
    const auto outcomes = train_with_clients([&](Client& client) {
      first(client);
      EXPECT_TRUE(client.send(control::Stop{}));
    });
    for (const auto& outcome : outcomes) {
      ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
      EXPECT_EQ(*outcome, TrainerOutcome::kStopped);
    }
  }
  // In every third step a rank has no data until all others wait for it.
  void starve_ranks() {
    for (size_t each = 0; each < ranks_.size(); ++each)
      rank(each).on_batch = [this, each](uint64_t ticket) {
        const uint64_t step = ticket / ranks_.size() + GetParam();
        if (step % 3 == 0 && step / 3 % ranks_.size() == each) {
          EXPECT_TRUE(test::eventually([this] { return group_->waiting() + 1 == ranks_.size(); }));
        }
      };
  }
  // Of the pauses, from how often the ranks have exchanged their records between two steps.
  static std::set<uint64_t> paused_steps(const Exchanges& exchanges) {
    std::set<uint64_t> steps;
    for (size_t i = 1; i < exchanges.size(); ++i)
      if (exchanges[i].second > exchanges[i - 1].second + 1) steps.insert(exchanges[i - 1].first);
    return steps;
  }
  void expect_same_on_all_ranks() {
    const uint64_t end = chief().state_->step;
    EXPECT_THAT(steps_of_ranks(), Each(end));
    for (size_t each = 1; each < ranks_.size(); ++each) {
      EXPECT_EQ(exchanges_[each], exchanges_[0]) << "rank " << each << " paused elsewhere";
      EXPECT_EQ(rank(each).setting_changes_, chief().setting_changes_);
      expect_same_records(rank(each), chief());
    }
  }
  // Each reply has the step of its effect.
  void expect_steps_of_replies() {
    const uint64_t end = chief().state_->step;
    const auto saved = chief().saved();
    std::set<uint64_t> paused;
    std::multiset<std::string> changed;
    for (const Client& client : clients_) {
      for (const auto& [command, step] : client.exchanges()) {
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

  const std::string folder_ = fresh();  // of all ranks
  test::FaultyFiles files_{folder_};
  std::vector<Exchanges> exchanges_;  // by rank: after each step
  std::vector<Client> clients_;
};

TEST_P(TrainerGroupLoadTest, AppliesCommandsOfTwoClientsAtSameStepsOnAllRanks) {
  open(shared_config(1'000'000), 4);
  train_under_load([](Client& client) { client.send_random(60); });
  expect_same_on_all_ranks();
  expect_steps_of_replies();
  for (const Client& client : clients_) EXPECT_THAT(client.errors(), IsEmpty());
  // One collective per step and per exchange of a pause, whatever the commands.
  EXPECT_EQ(group_->collectives(), chief().channels_.group_exchanges);
}

TEST_P(TrainerGroupLoadTest, AppliesCommandsAtSameStepsWhileRanksAreStarved) {
  open(shared_config(1'000'000), 4);
  starve_ranks();
  train_under_load([](Client& client) { client.send_random(60); });
  expect_same_on_all_ranks();
  expect_steps_of_replies();
  for (const Client& client : clients_) EXPECT_THAT(client.errors(), IsEmpty());
}

// The run continues without checkpoints. The replies to requests for one name the rank.
TEST_P(TrainerGroupLoadTest, AppliesCommandsAtSameStepsWhileDiskOfRankIsFull) {
  files_of_ = [this](int rank) -> FileSystem& {
    return rank == 3 ? static_cast<FileSystem&>(files_) : default_file_system();
  };
  open_shared(sharded_config(1'000'000), 4, folder_);
  files_.fail_at(files_.operations().size() + 1, {.error = ENOSPC, .from_here_on = true});
  train_under_load([this](Client& client) {
    client.send_random(20);
    EXPECT_TRUE(client.send(control::SaveCheckpoint{}));
    EXPECT_THAT(chief().saved(), IsEmpty());
    files_.heal();
    const size_t errors = client.errors().size();
    EXPECT_TRUE(client.send(control::SaveCheckpoint{}));
    client.send_random(20);
    EXPECT_EQ(client.errors().size(), errors);
  });
  expect_same_on_all_ranks();
  expect_steps_of_replies();
  EXPECT_THAT(clients_[0].errors(), Not(IsEmpty()));
  for (const Client& client : clients_)
    EXPECT_THAT(client.errors(),
                Each(AllOf(HasSubstr("rank 3: "), HasSubstr("No space left on device"))));
  EXPECT_EQ(chief().saved().back(), chief().state_->step) << "the last state is saved";
}

// Too many of the samples of one rank, which can be the chief: its supervisor ends its data.
TEST_P(TrainerGroupLoadTest, EndsAllRanksAtSameStepIfOneCannotReadItsSamples) {
  open(shared_config(1'000'000), 4);
  const size_t failing = GetParam() % ranks_.size();
  std::atomic<bool> has_too_many = false;
  rank(failing).on_batch = [&](uint64_t) {
    if (has_too_many)
      rank(failing).fail_feed(Status(StatusCode::kCorrupt, "11 of 60 samples cannot be read"));
  };
  const auto outcomes = train_with_clients([&](Client& client) {
    client.send_random(60);
    has_too_many = true;
    send_until_end(client);
  });
  // The trainer whose data has ended does not know why.
  ASSERT_TRUE(rank(failing).ended_.ok()) << rank(failing).ended_.status().to_string();
  EXPECT_EQ(*rank(failing).ended_, TrainerOutcome::kStopped);
  for (size_t each = 0; each < ranks_.size(); ++each) {
    if (each == failing) continue;
    EXPECT_EQ(outcomes[each].status().code(), StatusCode::kPeerLost);
    EXPECT_THAT(outcomes[each].status().message(),
                AllOf(HasSubstr("rank " + std::to_string(failing) + " failed: "),
                      HasSubstr("feed: 11 of 60 samples cannot be read")));
  }
  expect_same_on_all_ranks();
  expect_steps_of_replies();
  // All commands have a reply: the step, or that training has ended.
  for (const Client& client : clients_) EXPECT_THAT(client.errors(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, TrainerGroupLoadTest, testing::Range<uint64_t>(1, 6));

class TrainerStarvedGroupTest : public TrainerGroupTest {};

// They are sent while all others wait for the rank, so that the next exchange of records has them all.
TEST_F(TrainerStarvedGroupTest, AppliesCommandsSentMeanwhileAtOneStep) {
  open_shared(sharded_config(1'000'000), 4, fresh());
  std::vector<std::future<Result<std::string>>> replies;
  rank(2).on_batch = [&](uint64_t ticket) {
    if (ticket < 4 * 5 || !replies.empty()) return;
    EXPECT_TRUE(test::eventually([this] { return group_->waiting() == 3; }));
    for (const control::Command& command :
         {control::Command(control::SetSetting{.key = "optimizer.lr", .value = "0.005"}),
          control::Command(control::SaveCheckpoint{}), control::Command(control::Stop{})})
      replies.push_back(post(chief().mailbox_, command));
  };
  expect_all(TrainerOutcome::kStopped);
  const uint64_t end = chief().state_->step;
  EXPECT_THAT(steps_of_ranks(), Each(end));
  ASSERT_EQ(replies.size(), 3u);
  for (auto& reply : replies) {
    const auto text = reply.get();
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    EXPECT_EQ(step_of(*text), end);
  }
  for (const auto& session : ranks_)
    EXPECT_THAT(session->setting_changes_,
                ElementsAre(std::to_string(end) + " optimizer.lr 0.005"));
  EXPECT_THAT(chief().saved(), ElementsAre(end));
}

}  // namespace
}  // namespace stoker::train
