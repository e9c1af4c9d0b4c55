// stokerd while another process overwrites its ring: it ends with the model of an undisturbed run,
// or with an error and its true cause, and never hangs.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/hostile/hostile_time.h"
#include "tests/hostile/ring_fields.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using hostile::RingField;
using ring::RingView;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class HostileRunTest : public RunTest {
 protected:
  static constexpr uint64_t kSteps = 1000;
  static inline const auto kWorkerTimeout = scaled(2s);
  // Two timeouts, and time for a busy machine to start and end processes.
  static inline const auto kMaxIdle = 2 * kWorkerTimeout + scaled(30s);
  using Attack = std::function<void(const RingView&)>;

  // The ring of a running stokerd; null if it has none yet.
  static std::unique_ptr<RingView> find_ring(pid_t pid) {
    std::error_code error;
    const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error)) {
      const auto& entry = *it;
      std::error_code gone;
      const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
      if (target.find("stoker-ring") == std::string::npos) continue;
      const UniqueFd fd(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
      uint64_t magic = 0;
      if (fd.valid() && ::pread(fd.get(), &magic, sizeof magic, 0) == sizeof magic &&
          magic == ring::kMagic)
        return std::make_unique<RingView>(fd.get());
    }
    return nullptr;
  }

  // Trains, and calls `attack` every few milliseconds from when there is a ring.
  Exit train_under(const Attack& attack, const std::string& config, const std::string& run,
                   uint64_t steps = kSteps) const {
    Process stokerd =
        trainer(write_config(config), run,
                {"--set", "train.max_steps=" + std::to_string(steps), "--set",
                 "checkpoint.save_every_steps=null", "--set", "feed.num_processes=2", "--set",
                 "feed.worker_timeout_seconds=" + std::to_string(scaled_seconds(2))});
    std::unique_ptr<RingView> view;
    std::optional<Exit> exit;
    size_t records = 0;
    auto last = std::chrono::steady_clock::now();
    while (!exit && std::chrono::steady_clock::now() - last < kMaxIdle) {
      if (!view) view = find_ring(stokerd.pid());
      if (view) attack(*view);
      exit = stokerd.wait(5ms);
      if (const size_t now = num_records(run); now != records) {
        records = now;
        last = std::chrono::steady_clock::now();
      }
    }
    if (!exit) ADD_FAILURE() << "stokerd hangs";
    return exit.value_or(Exit{-1, 0});
  }

  // Attacks a run whose max_steps is never reached.
  void expect_failure(const Attack& attack, const std::string& config, const std::string& run,
                      const testing::Matcher<std::string>& reason) const {
    const Exit exit = train_under(attack, config, run, 100'000'000);
    EXPECT_EQ(exit.signal, 0);
    const std::string status = text_of(run + "/exit_status.json");
    EXPECT_EQ(exit.code, 65);
    EXPECT_THAT(status, HasSubstr("\"exit_code\":65"));
    EXPECT_THAT(status, reason);
  }

  void train_undisturbed() const {
    ASSERT_EQ(train_under([](const RingView&) {}, small_config(), path("undisturbed")).code, 0);
  }
  void expect_undisturbed_result(const std::string& run) const {
    ASSERT_EQ(newest_step(run), kSteps);
    EXPECT_EQ(model_sha256(run, kSteps), model_sha256(path("undisturbed"), kSteps));
    EXPECT_EQ(deterministic_records(run), deterministic_records(path("undisturbed")));
  }
};

TEST_F(HostileRunTest, TrainsSameModelWhenCountersAndWakeUpsAreOverwritten) {
  train_undisturbed();
  auto random = hostile::make_random();
  int rounds = 30;
  const Exit exit = train_under(
      [&](const RingView& view) {
        if (rounds-- <= 0) return;
        for (const RingField& field : hostile::all_fields())
          if (field.use == RingField::Use::kHint) field.overwrite(view, random);
      },
      small_config(), run_dir());
  EXPECT_EQ(exit.signal, 0);
  ASSERT_EQ(exit.code, 0);
  expect_undisturbed_result(run_dir());
}

TEST_F(HostileRunTest, FailsWithOverwrittenField) {
  expect_failure([](const RingView& view) { ring::overwrite(view.header().closed, 1u); },
                 small_config(), run_dir("closed"),
                 HasSubstr("closed is 1 instead of 0: a producer overwrote the ring"));
  expect_failure(
      [](const RingView& view) { ring::overwrite(view.header().next_ticket, ~uint64_t{0}); },
      small_config(), run_dir("next_ticket"),
      HasSubstr("next_ticket is 18446744073709551615 instead of "));
  expect_failure(
      [](const RingView& view) { ring::overwrite(view.header().lost_reports, uint64_t{1}); },
      small_config(), run_dir("lost_reports"),
      HasSubstr("the ring counts 1 lost reports of 0: a producer overwrote the ring"));
  expect_failure(
      [](const RingView& view) {
        for (uint64_t slot = 0; slot < view.header().slots; ++slot)
          ring::overwrite(view.slot_word(slot), ring::encode({.phase = ring::Phase::kInUse}));
      },
      small_config(), run_dir("slot"), HasSubstr("ring slot "));
}

// They are valid when the workers check them.
TEST_F(HostileRunTest, FailsWhenLabelsAreOverwritten) {
  std::ofstream file(path("letters.jsonl"));
  for (int i = 0; i < 300; ++i)
    file << R"({"frames": [[1, 0], [0, 1], [1, 1], [0, 0], [1, 0], [0, 1]], "letters": [1, 2, 3]})"
         << '\n';
  file.close();
  expect_failure(
      [](const RingView& view) {
        for (uint64_t slot = 0; slot < view.header().slots; ++slot)
          for (std::byte& byte : view.slot(slot).last(16 * 3 * sizeof(int64_t)))
            byte = std::byte{0x55};
      },
      "data:\n  train: {format: jsonl, path: " + path("letters.jsonl") +
          ", fields: {input: frames, labels: letters}, input_shape: [2],\n"
          "    sequence: {max_length: 6, max_label_length: 3}}\n"
          "feed: {num_workers: 2, prefetch_batches: 4}\n"
          "model: {name: blstm, hidden_size: 6}\ntask: {name: ctc}\n"
          "train: {micro_batch_size: 16, device: cpu, num_threads: 1}\n",
      run_dir(), HasSubstr("a worker process overwrote the ring"));
}

TEST_F(HostileRunTest, TrainsSameModelOrFailsWithTrueReason) {
  train_undisturbed();
  auto random = hostile::make_random();
  const std::vector<RingField> fields = hostile::all_fields();
  const auto end = hostile::end_of_test(0s, 10min);
  int runs = 0, finished = 0;
  const auto is_enough = [&] {
    return runs >= 4 && finished > 0 && std::chrono::steady_clock::now() >= end;
  };
  for (; !HasFailure() && !is_enough() && (finished > 0 || runs < 40); ++runs) {
    // Few writes, so that some runs end well.
    uint64_t writes = 1 + random() % 8;
    const std::string run = run_dir(std::to_string(runs));
    const Exit exit = train_under(
        [&](const RingView& view) {
          if (writes == 0 || random() % 4 != 0) return;
          --writes;
          fields[random() % fields.size()].overwrite(view, random);
        },
        small_config(), run);
    EXPECT_EQ(exit.signal, 0);
    if (exit.code == 0) {
      ++finished;
      expect_undisturbed_result(run);
    } else {
      EXPECT_THAT(exit.code, AnyOf(65, 70));
      EXPECT_THAT(text_of(run + "/exit_status.json"),
                  AnyOf(HasSubstr("overwrote the ring"), HasSubstr("cannot be read"),
                        HasSubstr("worker processes crash repeatedly"),
                        HasSubstr("worker processes fail repeatedly")));
    }
    if (!HasFailure()) std::filesystem::remove_all(run);
  }
  EXPECT_GT(finished, 0) << "each run failed";
  std::printf("%d of %d runs trained the same model\n", finished, runs);
}

}  // namespace
}  // namespace stoker::test
