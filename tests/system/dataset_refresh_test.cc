// Datasets that are appended to during a run: new data is picked up, a run that is killed meanwhile
// ends with the same bytes as an uninterrupted one, and stokerctl shows the dataset versions.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/dataset_refresh_fixture.h"

namespace stoker::test {
namespace {

using ::testing::HasSubstr;

class CsvRefreshTest : public DatasetRefreshFixture {
 protected:
  void SetUp() override {
    DatasetRefreshFixture::SetUp();
    std::filesystem::create_directories(path("rows"));
    add("a.csv", 40);
  }

  static std::string rows(int count) {
    std::string text;
    for (int row = 0; row < count; ++row)
      text += std::to_string(0.1 * row) + "," + std::to_string(row % 7 - 3) + "," +
              std::to_string(row % 3) + "\n";
    return text;
  }
  // Each change is atomic, so that a concurrent scan sees one change or none.
  void append(const std::string& file, const std::string& text) const {
    std::ofstream(path("rows/" + file), std::ios::app) << text;
  }
  void add(const std::string& file, int count) const {
    std::ofstream(path("new")) << "x,y,kind\n" << rows(count);
    std::filesystem::rename(path("new"), path("rows/" + file));
  }

  std::string config_of(const std::string& refresh) const {
    return config_with("{format: csv, path: " + path("rows") +
                       ", glob: \"*.csv\", fields: {label: kind}, refresh: " + refresh + "}");
  }
};

TEST_F(CsvRefreshTest, RefreshesAtNextEpochAndSurvivesKill) {
  const std::string config = config_of("epoch");
  Process trainer = paused_trainer(config);
  append("a.csv", rows(24));
  ASSERT_TRUE(wait_until(60s, [&] { return log_contains("new data found samples=64"); }));
  send_command("resume");
  ASSERT_TRUE(wait_until(60s, [&] { return history(run_dir()).size() == 2; }));
  trainer.signal(SIGKILL);
  ASSERT_TRUE(trainer.wait(60s).has_value());
  ASSERT_EQ(train(config, run_dir(), to_last_step()).code, 0);

  const auto states = history(run_dir());
  ASSERT_EQ(states.size(), 2u);
  const uint64_t ticket = states[1].start.ticket;
  EXPECT_EQ(ticket * kBatch % 40, 0u) << "in the middle of an epoch";
  EXPECT_EQ(states[1].start.epoch, ticket * kBatch / 40);
  EXPECT_EQ(size_at(ticket), 40u);
  EXPECT_EQ(size_at(ticket + 1), 64u);
  EXPECT_EQ(epoch_at(ticket), states[1].start.epoch - 1);
  EXPECT_EQ(epoch_at(ticket + 1), states[1].start.epoch);
  expect_complete_epoch(ticket, 64);
  EXPECT_THAT(
      text_of(run_dir() + "/checkpoints/" + checkpoints(run_dir()).back() + "/manifest.json"),
      HasSubstr("\"start_ticket\":" + std::to_string(ticket) + ",\"epoch\":"));

  // A run that is resumed from before the refresh ends the same, although all data exists by now.
  std::filesystem::copy(run_dir(), run_dir("again"), std::filesystem::copy_options::recursive);
  const std::string first = run_dir("again") + "/checkpoints/" + checkpoints(run_dir()).front();
  ASSERT_EQ(train(config, run_dir("again"), joined(to_last_step(), {"--resume", first})).code, 0);
  EXPECT_EQ(history(run_dir("again")), states);
  EXPECT_EQ(model_sha256(run_dir("again"), last_step_), model_sha256(run_dir(), last_step_));
  EXPECT_EQ(deterministic_records(run_dir("again")), deterministic_records(run_dir()));
}

TEST_F(CsvRefreshTest, RefreshesImmediatelyWhenConfigured) {
  Process trainer = paused_trainer(config_of("immediate"));
  add("b.csv", 24);
  ASSERT_TRUE(wait_until(60s, [&] { return log_contains("new data found samples=64"); }));
  const uint64_t paused_at = newest_step(run_dir());
  send_command("resume");
  const auto exit = trainer.wait(90s);
  ASSERT_TRUE(exit && exit->code == 0);
  const auto states = history(run_dir());
  ASSERT_EQ(states.size(), 2u);
  const uint64_t ticket = states[1].start.ticket;
  EXPECT_GE(ticket, paused_at);
  EXPECT_EQ(epoch_at(ticket + 1), epoch_at(ticket) + 1);
  expect_complete_epoch(ticket, 64);
}

TEST_F(CsvRefreshTest, RejectsInvalidChangeAndContinuesTraining) {
  Process trainer = paused_trainer(config_of("epoch"));
  append("a.csv", "1,2");  // a partial row
  ASSERT_TRUE(wait_until(60s, [&] { return log_contains("dataset refresh rejected"); }));
  append("a.csv", ",1\n");
  ASSERT_TRUE(wait_until(60s, [&] { return log_contains("new data found samples=41"); }));
  send_command("resume");
  const auto exit = trainer.wait(90s);
  ASSERT_TRUE(exit && exit->code == 0);
  EXPECT_EQ(history(run_dir()).size(), 2u);
}

TEST_F(CsvRefreshTest, ReportsRemovedFile) {
  add("b.csv", 9);
  Process trainer = paused_trainer(config_of("epoch"));
  std::filesystem::remove(path("rows/b.csv"));
  ASSERT_TRUE(wait_until(60s, [&] { return log_contains("b.csv: was removed"); }))
      << log_of("stokerd");
  send_command("stop");
  const auto exit = trainer.wait(90s);
  ASSERT_TRUE(exit && exit->code == 0);
  EXPECT_EQ(history(run_dir()).size(), 1u);
}

}  // namespace
}  // namespace stoker::test
