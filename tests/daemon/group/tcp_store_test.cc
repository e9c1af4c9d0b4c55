// The store with a secret answers as that of LibTorch, which torchrun's agent serves.
#include "daemon/group/tcp_store.h"

#include <signal.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/socket_address.h"

namespace stoker::group {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::unique_ptr<TcpStore> serve(const TcpStoreOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  auto listening = listen_on("127.0.0.1", 0);
  EXPECT_TRUE(listening.ok()) << listening.status().to_string();
  auto store = TcpStore::serve(*std::move(listening), options);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return *std::move(store);
}

std::string text_of(const Result<std::optional<std::string>>& value) {
  return value.ok() ? value->value_or("not set") : value.status().to_string();
}

// LibTorch's store does not confirm set(): other connections wait for the key.
std::vector<std::string> use(TcpStore& first, TcpStore& second) {
  std::vector<std::string> answers;
  answers.push_back(text_of(first.get("a")));
  answers.push_back(first.set("a", std::string("\0\xff", 2)).to_string());
  answers.push_back(second.wait("a", kNoDeadline, {}).to_string());
  answers.push_back(text_of(second.get("a")));
  answers.push_back(*first.set_if_absent("a", "other"));
  answers.push_back(*second.set_if_absent("b", "first"));
  answers.push_back(*first.set_if_absent("b", "second"));
  for (const int64_t summand : {3, -10, 0})
    answers.push_back(std::to_string(*second.add("sum", summand)));
  answers.push_back(text_of(first.get("sum")));
  answers.push_back(first.set("sum", "41").to_string());
  answers.push_back(std::to_string(*first.add("sum", 1)));
  const std::string large(size_t{3} << 20, 'x');
  answers.push_back(first.set("large", large).to_string());
  answers.push_back(second.wait("large", kNoDeadline, {}).to_string());
  answers.push_back(text_of(second.get("large")) == large ? "same" : "differs");
  answers.push_back(first.wait("sum", kNoDeadline, {}).to_string());
  answers.push_back(first.wait("none", std::chrono::steady_clock::now(), {}).to_string());
  std::jthread setting([&] { (void)second.set("late", "1"); });
  answers.push_back(first.wait("late", kNoDeadline, {}).to_string());
  std::stop_source stop;
  stop.request_stop();
  answers.push_back(first.wait("none", kNoDeadline, stop.get_token()).to_string());
  return answers;
}

TEST(TcpStoreTest, AnswersAsStoreOfLibTorch) {
  std::vector<std::vector<std::string>> answers;
  for (const std::string secret : {"", "the secret of the run"}) {
    const TcpStoreOptions options{.prefix = "test", .server = "this test", .secret = secret};
    const auto first = serve(options);
    const auto second = first->connect_again();
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    answers.push_back(use(*first, **second));
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(answers[0][0], "not set");
}

TEST(TcpStoreTest, RejectsProcessOfAnotherRun) {
  const auto store = serve({.prefix = "test", .server = "this test", .secret = "one"});
  const auto other =
      TcpStore::connect(store->address(), store->port(),
                        {.prefix = "test", .server = "this test", .secret = "another"});
  EXPECT_EQ(other.status().code(), StatusCode::kPeerLost);
  EXPECT_THAT(other.status().message(), HasSubstr("does not respond as the group's store"));
}

}  // namespace
}  // namespace stoker::group
