// Crashes of real processes: kill -9 of the daemon, the workers and the evaluator, full disks,
// corrupt checkpoints.
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class CrashRecoveryTest : public RunTest {
 protected:
  void flip_bit(const std::string& file) const {
    std::string bytes = text_of(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::ofstream(file, std::ios::binary) << bytes;
  }
};

// Each point five times, in random order.
TEST_F(CrashRecoveryTest, MatchesUninterruptedRunAfterTwentyKills) {
  constexpr uint64_t kSteps = 40000;
  const std::string config = write_config(small_config());
  // 851 records, fewer than the metrics queue holds, so that none is dropped if the disk stalls.
  const std::vector<std::string> more_steps{"--set", "train.max_steps=" + std::to_string(kSteps),
                                            "--set", "checkpoint.save_every_steps=100",
                                            "--set", "metrics.log_every_steps=47"};
  ASSERT_EQ(train(config, run_dir("uninterrupted"), more_steps).code, 0);

  std::vector<KillPoint> points;
  for (int i = 0; i < 20; ++i) points.push_back(static_cast<KillPoint>(i % 4));
  std::shuffle(points.begin(), points.end(), std::mt19937(20));
  KillCounts counts;
  std::optional<Exit> ended;
  for (int attempt = 0; attempt < 60 && !ended; ++attempt) {
    const Progress before = progress_of(run_dir());
    Process trainer = this->trainer(config, run_dir(), more_steps);
    if (counts.kills == 20) {
      ended = trainer.wait(90s);
      ASSERT_TRUE(ended.has_value());
    } else {
      const KillPoint point = points[static_cast<size_t>(counts.kills)];
      ended = wait_for(point, trainer, run_dir(), before);
      if (!ended && trainer.kill()) {
        ASSERT_TRUE(count_kill(report_kill_of(run_dir(), before, kSteps), before.checkpoint,
                               is_in_training(point), counts));
        continue;
      }
      ended = trainer.wait(0ms);
      ASSERT_TRUE(ended.has_value());
    }
    if (ended->code == 93) {
      // After four consecutive kills before a checkpoint, stokerd rejects one start.
      ended.reset();
      continue;
    }
    const auto start_step = start_step_of(log_since(before));
    EXPECT_GT(start_step.value_or(0), 0u) << "the last start did not resume";
    EXPECT_TRUE(count_start(start_step, before.checkpoint, counts));
  }
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0);
  EXPECT_EQ(counts.kills, 20) << "the run ended before all kills";
  // Ten kills waited for a record or a checkpoint. After each checkpoint, a start resumed.
  EXPECT_GE(counts.in_training, 10) << to_string(counts);
  EXPECT_GE(counts.resumed, 5) << to_string(counts);
  std::cout << "exact: " << to_string(counts) << "\n";
  EXPECT_EQ(model_sha256(run_dir(), kSteps), model_sha256(run_dir("uninterrupted"), kSteps));
  EXPECT_EQ(deterministic_records(run_dir()), deterministic_records(run_dir("uninterrupted")))
      << "reported steps are duplicated or missing";
  for (const auto& entry : fs::directory_iterator(run_dir() + "/checkpoints")) {
    EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos) << entry.path();
  }
}

TEST_F(CrashRecoveryTest, ExitsWith93AfterFourFailedStartsThenStartsAgain) {
  const std::string config = write_config(small_config());
  const std::vector<std::string> without_saves{"--set", "train.max_steps=1000000", "--set",
                                               "checkpoint.save_every_steps=null"};
  for (int attempt = 0; attempt < 4; ++attempt) {
    Process trainer = this->trainer(config, run_dir(), without_saves);
    ASSERT_TRUE(wait_until(30s, [&] { return num_records(run_dir()) > 0; }));
    ASSERT_TRUE(trainer.kill());
    fs::remove(run_dir() + "/metrics/train.jsonl");
  }
  EXPECT_EQ(train(config, run_dir(), without_saves).code, 93);
  EXPECT_NE(log_of("stokerd").find("without a checkpoint newer than step 0"), std::string::npos);
  EXPECT_EQ(train(config, run_dir()).code, 0);
}

TEST_F(CrashRecoveryTest, PreservesResultBytesWhenWorkersAreKilled) {
  const std::string config = write_config(small_config());
  // Another number of steps changes no step before.
  const auto until = [](uint64_t step) -> std::vector<std::string> {
    return {"--set", "train.max_steps=" + std::to_string(step),     "--set", "feed.num_processes=2",
            "--set", "scheduler={name: constant, warmup_steps: 10}"};
  };
  Process trainer = this->trainer(config, run_dir(), until(100'000'000));
  // stokerd logs each worker process that ended by the signal. A kill counts only then: a process
  // that has exited accepts a signal, too, until it is reaped.
  const auto crashes = [&] {
    const std::string log = text_if_exists(trainer.log());
    const std::string crash = "worker process crashed cause=\"signal 9 ";
    size_t count = 0;
    for (size_t at = 0; (at = log.find(crash, at)) != std::string::npos; at += crash.size())
      ++count;
    return count;
  };
  std::mt19937 random(7);
  std::set<pid_t> killed;
  size_t records = 0;  // at the last kill
  ASSERT_TRUE(wait_until(90s, [&] {
    auto workers = children_of(trainer.pid(), "stoker-feed");
    std::erase_if(workers, [&](pid_t worker) { return killed.contains(worker); });
    const size_t now = num_records(run_dir());
    const size_t crashed = crashes();
    if (now > records && !workers.empty() && killed.size() <= crashed + 1) {
      const pid_t worker = workers[random() % workers.size()];
      if (::kill(worker, SIGKILL) == 0) killed.insert(worker);
      records = now;
    }
    return crashed >= 10;
  })) << log_of("stokerd");
  records = num_records(run_dir());
  ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > records + 10; }));
  trainer.signal(SIGTERM);
  EXPECT_EQ(code_of(trainer), 0) << log_of("stokerd");
  EXPECT_LE(crashes(), killed.size()) << "a worker process was killed by another signal";
  const uint64_t last = newest_step(run_dir());
  ASSERT_EQ(train(config, run_dir("uninterrupted"), until(last)).code, 0);
  EXPECT_EQ(model_sha256(run_dir(), last), model_sha256(run_dir("uninterrupted"), last));
}

// Prints the time, for docs/reliability.md.
TEST_F(CrashRecoveryTest, LeavesNoWorkerAfterTrainerIsKilled) {
  const std::string config = write_config(small_config());
  Process trainer = this->trainer(config, run_dir(), {"--set", "train.max_steps=1000000"});
  std::vector<pid_t> workers;
  ASSERT_TRUE(wait_until(
      30s, [&] { return !(workers = children_of(trainer.pid(), "stoker-feed")).empty(); }));
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(trainer.kill());
  for (const pid_t worker : workers) {
    // A process that has ended is a zombie until its new parent, init, waits for it.
    EXPECT_TRUE(wait_until(60s, [&] {
      const std::string stat = text_if_exists("/proc/" + std::to_string(worker) + "/stat");
      return stat.find(" (stoker-feed) ") == std::string::npos ||
             stat.find(" (stoker-feed) Z ") != std::string::npos;
    }));
  }
  std::cout << workers.size() << " worker processes ended "
            << std::chrono::duration_cast<std::chrono::milliseconds>(
                   std::chrono::steady_clock::now() - began)
                   .count()
            << " ms after SIGKILL of stokerd\n";
}

TEST_F(CrashRecoveryTest, FallsBackWithWarningOnFlippedBitInNewestCheckpoint) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir()).code, 0);
  const std::string uninterrupted_sha256 = model_sha256(run_dir(), 400);
  flip_bit(run_dir() + "/checkpoints/step-000000400/model.safetensors");
  ASSERT_EQ(train(config, run_dir()).code, 0);
  const std::string log = log_of("stokerd");
  EXPECT_NE(log.find("checkpoint rejected step=400"), std::string::npos) << log;
  EXPECT_NE(log.find("model.safetensors"), std::string::npos);
  EXPECT_EQ(model_sha256(run_dir(), 400), uninterrupted_sha256)
      << "the step after the fallback was not trained again to the same bytes";
}

TEST_F(CrashRecoveryTest, ExitsWith65WithoutDeletingWhenAllCheckpointsAreCorrupt) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir()).code, 0);
  const auto before = checkpoints(run_dir());
  for (const auto& name : before)
    flip_bit(run_dir() + "/checkpoints/" + name + "/optimizer.safetensors");
  EXPECT_EQ(train(config, run_dir()).code, 65);
  EXPECT_EQ(checkpoints(run_dir()), before);
  EXPECT_NE(log_of("stokerd").find("--fresh"), std::string::npos);
}

TEST_F(CrashRecoveryTest, ContinuesDegradedWhenDiskFillsUp) {
  fs::create_directories(run_dir());
  if (::mount("tmpfs", run_dir().c_str(), "tmpfs", 0, "mode=0755,size=700k") != 0)
    GTEST_SKIP() << "cannot mount a small tmpfs here";
  const std::string config = write_config(small_config());
  {
    // A checkpoint of this model takes about 400 KB, so two do not fit.
    Process trainer = this->trainer(
        config, run_dir(),
        {"--set", "model.hidden_sizes=[256, 64]", "--set", "train.max_steps=1000000"});
    EXPECT_TRUE(wait_until(60s, [&] {
      return log_of("stokerd").find("checkpoint write failed") != std::string::npos;
    }));
    const auto status = [&] {
      fs::remove(path("status.out"));
      (void)ctl(run_dir(), {"--json", "status"}, "status").wait(60s);
      return log_of("status");
    };
    EXPECT_TRUE(
        wait_until(60s, [&] { return status().find("\"degraded\"") != std::string::npos; }));
    const auto step = [&] {
      const std::string text = status();
      const size_t at = text.find("\"step\":");
      return at == std::string::npos ? 0 : std::stoull(text.substr(at + 7));
    };
    const uint64_t before = step();
    EXPECT_TRUE(wait_until(60s, [&] { return step() > before; })) << "training stalled";
    EXPECT_TRUE(trainer.kill());
  }
  ::umount(run_dir().c_str());
}

TEST_F(CrashRecoveryTest, EvaluatesEachCheckpointOnceWhenEvaluatorIsKilled) {
  const std::string config =
      write_config(text_config("eval: {checkpoints: all, batch_size: 8, max_attempts: 100}\n"));
  ASSERT_EQ(train(config, run_dir(),
                  {"--set", "train.max_steps=120", "--set", "checkpoint.save_every_steps=10",
                   "--set", "checkpoint.keep_last=12"})
                .code,
            0);
  // max_attempts is high because every kill counts as an attempt. On a busy disk, all checkpoints
  // except the first and the last can be skipped.
  const size_t saved = checkpoints(run_dir()).size();
  ASSERT_GE(saved, 2u);
  // Killed after it has written more, or changed the first of these files: its log, the attempts,
  // the outcomes, the records.
  const std::vector<std::string> files{path("stoker-eval.out"), run_dir() + "/eval/attempts.json",
                                       run_dir() + "/eval/outcomes.jsonl",
                                       run_dir() + "/metrics/eval.jsonl"};
  size_t kills = 0;
  std::optional<Exit> ended;
  while (kills < 2 * files.size() && !ended) {
    const std::string& file = files[kills % files.size()];
    const std::string before = text_if_exists(file);
    Process evaluator = this->evaluator(run_dir(), {"--follow"});
    ASSERT_TRUE(wait_until(60s, [&] {
      ended = evaluator.wait(0ms);
      return ended || text_if_exists(file) != before;
    }));
    if (ended) break;
    if (evaluator.kill()) {
      ++kills;
    } else {
      ended = evaluator.wait(0ms);
      ASSERT_TRUE(ended.has_value());
    }
  }
  EXPECT_GE(kills, 1u) << "the evaluator ended before the first kill";
  if (!ended) ended = evaluator(run_dir(), {"--follow"}).wait(60s);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0);
  std::map<std::string, int> lines;
  for (const char* const file : {"/eval/outcomes.jsonl", "/metrics/eval.jsonl"}) {
    lines.clear();
    std::istringstream in(text_of(run_dir() + file));
    for (std::string line; std::getline(in, line);) ++lines[line.substr(0, line.find(','))];
    EXPECT_EQ(lines.size(), saved) << file;
    for (const auto& [step, times] : lines) EXPECT_EQ(times, 1) << file << " " << step;
  }
}

TEST_F(CrashRecoveryTest, RejectsSecondEvaluatorWith75) {
  const std::string config = write_config(small_config());
  Process trainer = this->trainer(config, run_dir(), {"--set", "train.max_steps=1000000"});
  Process first = evaluator(run_dir(), {"--follow"});
  ASSERT_TRUE(wait_until(
      30s, [&] { return log_of("stoker-eval").find("evaluator started") != std::string::npos; }));
  const auto second = evaluator(run_dir(), {"--follow"}).wait(30s);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->code, 75);
}

}  // namespace
}  // namespace stoker::test
