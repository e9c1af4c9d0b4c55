#include "daemon/train/mailbox.h"

#include <thread>
#include <utility>

#include <gtest/gtest.h>

namespace stoker::train {
namespace {

using namespace std::chrono_literals;

TEST(MailboxTest, PreservesRequestOrder) {
  Mailbox mailbox;
  mailbox.post({control::Pause{}, {}});
  mailbox.post({control::SetSetting{"a", "1"}, {}});
  const auto taken = mailbox.take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].command, control::Command(control::Pause{}));
  EXPECT_EQ(taken[1].command, control::Command(control::SetSetting{"a", "1"}));
  EXPECT_TRUE(mailbox.take().empty());
}

TEST(MailboxTest, RejectsRequestAsBusyWhenFullUnlessStop) {
  Mailbox mailbox;
  for (size_t i = 0; i < Mailbox::kCapacity; ++i) mailbox.post({});
  StatusCode code = StatusCode::kOk;
  mailbox.post(
      {control::Pause{}, [&](const Result<std::string>& reply) { code = reply.status().code(); }});
  EXPECT_EQ(code, StatusCode::kBusy);
  mailbox.post({control::Stop{}, {}});
  const auto taken = mailbox.take();
  ASSERT_EQ(taken.size(), Mailbox::kCapacity + 1);
  EXPECT_EQ(taken.back().command, control::Command(control::Stop{}));
}

TEST(MailboxTest, PutsRequestsBackBeforeLaterOnesEvenWhenFull) {
  Mailbox mailbox;
  mailbox.post({control::SetSetting{"a", "1"}, {}});
  mailbox.post({control::Pause{}, {}});
  auto taken = mailbox.take();
  for (size_t i = 0; i < Mailbox::kCapacity; ++i) mailbox.post({control::Resume{}, {}});
  mailbox.put_back(std::move(taken));
  taken = mailbox.take();
  ASSERT_EQ(taken.size(), Mailbox::kCapacity + 2);
  EXPECT_EQ(taken[0].command, control::Command(control::SetSetting{"a", "1"}));
  EXPECT_EQ(taken[1].command, control::Command(control::Pause{}));
  EXPECT_EQ(taken[2].command, control::Command(control::Resume{}));
}

TEST(MailboxTest, RejectsPendingAndLaterRequestsOnClose) {
  Mailbox mailbox;
  int closed = 0;
  const auto count = [&](const Result<std::string>& reply) {
    closed += reply.status().code() == StatusCode::kClosed;
  };
  mailbox.post({control::SaveCheckpoint{}, count});
  mailbox.close();
  mailbox.post({control::Pause{}, count});
  EXPECT_EQ(closed, 2);
  mailbox.put_back({Request{control::Resume{}, count}});
  EXPECT_EQ(closed, 3);
}

TEST(MailboxTest, WakesWaitingTrainerOnPost) {
  Mailbox mailbox;
  std::jthread poster([&] { mailbox.post({control::Resume{}, {}}); });
  mailbox.wait(1h);  // if nothing wakes it, the test's time limit fails it
  EXPECT_EQ(mailbox.take().size(), 1u);
}

}  // namespace
}  // namespace stoker::train
