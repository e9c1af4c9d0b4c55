// The real programs are killed before each change that they make to the run directory, by SIGKILL
// or by a power cut, and restarted. STOKER_PROOF=full covers every change; otherwise a few of each
// kind, spread over the run.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string_view>

#include "shared/base/hash.h"
#include "shared/checkpoint/store.h"
#include "tests/reliability/loop_disk.h"
#include "tests/reliability/tracer.h"
#include "tests/support/temporary_directory.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

namespace fs = std::filesystem;

enum class Death { kKill, kPowerCut, kPowerCutWithTheJournalFlushed };

std::string name_of(Death death) {
  static const char* const kNames[] = {"Kill", "PowerCut", "PowerCutWithTheJournalFlushed"};
  return kNames[static_cast<size_t>(death)];
}
void PrintTo(Death death, std::ostream* out) { *out << name_of(death); }

bool is_full_proof() {
  const char* const proof = std::getenv("STOKER_PROOF");
  return proof != nullptr && std::string_view(proof) == "full";
}

class ProgramCrashEnumerationTest : public RunTest {
 protected:
  void SetUp() override {
    ::setenv("TEST_TMPDIR", quick_folder().c_str(), 1);
    RunTest::SetUp();
    scene_ = path("scene");
    base_ = path("base");
    if (const auto why = untraceable_reason()) GTEST_SKIP() << *why;
  }
  void TearDown() override {
    disk_.reset();
    RunTest::TearDown();
  }

  // Sets up the working folder, on its own loop disk for power cuts, with the contents of `base_`.
  void set_scene(Death death) {
    if (death == Death::kKill) {
      if (fs::exists(base_)) copy_tree(base_, scene_ + "/run");
      return;
    }
    LoopDisk::format(path("image"));
    disk_ = std::make_unique<LoopDisk>(path("image"), scene_);
    if (fs::exists(base_)) copy_tree(base_, scene_ + "/run");
    disk_->power_on();  // so that the copied files are on the disk
  }
  void clear_scene() {
    disk_.reset();
    fs::remove_all(scene_);
    fs::create_directory(scene_);
    for (const char* const log : {"dying.out", "stokerd.out", "stoker-eval.out"})
      fs::remove(path(log));
  }

  // Changes of the run directory except the log, which no decision depends on.
  bool counts(const FileCall& call) const {
    return call.changes && !call.path.starts_with(scene_ + "/run/logs/");
  }

  size_t changes_of(const std::vector<std::string>& command) {
    clear_scene();
    set_scene(Death::kKill);
    size_t changes = 0;
    const auto end = trace(command, path("dying.out"), scene_ + "/run", [&](const FileCall& call) {
      changes += counts(call);
      return Verdict::kGoOn;
    });
    EXPECT_EQ(end.code, 0) << log_of("dying");
    return changes;
  }

  // Kills `command` before change number `change`. Its output until then is in dying.out.
  std::string die(const std::vector<std::string>& command, Death death, size_t change) {
    clear_scene();
    set_scene(death);
    size_t seen = 0;
    std::string where = "after the end";
    const auto go_dark = [&] {
      said_ = log_of("dying");
      if (death == Death::kPowerCut) disk_->cut_power(LoopDisk::Cut::kNothingFlushed);
      if (death == Death::kPowerCutWithTheJournalFlushed)
        disk_->cut_power(LoopDisk::Cut::kJournalFlushed);
    };
    const auto end = trace(command, path("dying.out"), scene_ + "/run", [&](const FileCall& call) {
      if (!counts(call) || ++seen != change) return Verdict::kGoOn;
      where = to_string(call);
      go_dark();
      return Verdict::kKill;
    });
    if (end.signal == 0) go_dark();
    if (disk_) disk_->power_on();
    return where;
  }

  template <typename Check>
  void die_everywhere(const std::vector<std::string>& command, Death death, const Check& check) {
    if (death != Death::kKill)
      if (const auto why = LoopDisk::unavailable_reason()) GTEST_SKIP() << *why;
    const size_t changes = changes_of(command);
    ASSERT_GT(changes, 20u);
    const size_t stride = is_full_proof() ? 1 : changes / 6 + 1;
    size_t deaths = 0;
    for (size_t change = 1; change <= changes; change += stride, ++deaths) {
      SCOPED_TRACE(die(command, death, change));
      check();
      if (HasFailure()) return;
    }
    std::cout << "enumerated: " << deaths << " of " << changes << " deaths, 0 bad\n";
  }

  std::string scene_;
  std::string base_;  // initial contents of the run; need not exist
  std::string said_;  // output of the killed program
  std::unique_ptr<LoopDisk> disk_;
};

// ---- stokerd

class DaemonCrashEnumerationTest : public ProgramCrashEnumerationTest,
                                   public ::testing::WithParamInterface<Death> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(ProgramCrashEnumerationTest::SetUp());
    if (IsSkipped()) return;
    config_ = write_config(small_config());
    ASSERT_EQ(train(config_, path("whole"), more_).code, 0);
    whole_ = essence_of(path("whole"));
  }

  std::vector<std::string> command() const {
    return joined({program("stokerd"), "--config", config_, "--run-dir", scene_ + "/run"}, more_);
  }

  // The results of a run that do not depend on time: the tensors of the last checkpoint, and the
  // records.
  static std::string essence_of(const std::string& run) {
    std::string essence;
    for (const char* const part : {"model", "optimizer", "trainer_state"}) {
      const std::string bytes =
          text_of(run + "/checkpoints/step-000000040/" + part + ".safetensors");
      EXPECT_FALSE(bytes.empty()) << run << " has no " << part << " at the last step";
      essence += sha256_hex(bytes);
    }
    for (const std::string& row : decided_rows(run)) essence += "\n" + row;
    return essence;
  }

  uint64_t newest_acknowledged() const {
    constexpr std::string_view kSaved = "checkpoint saved step=";
    const size_t last = said_.rfind(kSaved);
    return last == std::string::npos ? 0 : std::stoull(said_.substr(last + kSaved.size()));
  }

  void check() {
    const std::string run = scene_ + "/run";
    for (const std::string& name : checkpoints(run)) {
      const auto opened = checkpoint::CheckpointStore::open_verified(run + "/checkpoints/" + name);
      EXPECT_TRUE(opened.ok()) << "torn: " << opened.status().to_string();
    }
    EXPECT_GE(newest_step(run), newest_acknowledged()) << "lost";
    ASSERT_EQ(train(config_, run, more_).code, 0) << log_of("stokerd");
    EXPECT_EQ(essence_of(run), whole_);
    for (const auto& entry : fs::recursive_directory_iterator(run))
      EXPECT_FALSE(entry.path().filename().string().starts_with('.')) << "left: " << entry.path();
  }

  const std::vector<std::string> more_{
      "--set", "train.max_steps=40",       "--set", "checkpoint.save_every_steps=10",
      "--set", "checkpoint.keep_last=2",   "--set", "control.socket=null",
      "--set", "scheduler.name=constant",  "--set", "scheduler.min_lr=",
      "--set", "metrics.log_every_steps=5"};
  std::string config_;
  std::string whole_;
};

TEST_P(DaemonCrashEnumerationTest, RecoversNewRunFromCrashAtAnyCall) {
  die_everywhere(command(), GetParam(), [this] { check(); });
}

// The base run crashed while it deleted the first of three checkpoints. Each of them was the last
// of its run, so it was saved regardless of how busy the writer was.
TEST_P(DaemonCrashEnumerationTest, RecoversResumedRunFromCrashAtAnyCall) {
  clear_scene();
  for (const char* const steps : {"train.max_steps=10", "train.max_steps=20"})
    ASSERT_EQ(train(config_, scene_ + "/run", joined(more_, {"--set", steps})).code, 0);
  const auto end = trace(joined(command(), {"--set", "train.max_steps=30"}), path("dying.out"),
                         scene_ + "/run", [](const FileCall& call) {
                           const bool is_in_trash = call.path.find("/.trash-") != std::string::npos;
                           return is_in_trash && call.changes ? Verdict::kKill : Verdict::kGoOn;
                         });
  ASSERT_NE(end.signal, 0) << log_of("dying");
  fs::rename(scene_ + "/run", base_);
  die_everywhere(command(), GetParam(), [this] { check(); });
}

// ---- stoker-eval

class EvaluatorCrashEnumerationTest : public ProgramCrashEnumerationTest,
                                      public ::testing::WithParamInterface<Death> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(ProgramCrashEnumerationTest::SetUp());
    if (IsSkipped()) return;
    const std::string config = write_config(small_config("eval: {checkpoints: all}\n"));
    ASSERT_EQ(train(config, base_,
                    {"--set", "train.max_steps=30", "--set", "checkpoint.save_every_steps=10"})
                  .code,
              0);
    copy_tree(base_, path("whole"));
    ASSERT_EQ(evaluate(path("whole")), 0);
    whole_ = essence_of(path("whole"));
  }

  int evaluate(const std::string& run) const {
    const auto exit = evaluator(run, {"--once"}).wait(std::chrono::seconds(60));
    return exit ? exit->code : -1;
  }

  // Results, best checkpoint, outcomes and records, without fields that depend on time and without
  // attempts, which include crashes.
  static std::string essence_of(const std::string& run) {
    std::string essence;
    const auto without = [](std::string line, const std::string& field) {
      const size_t from = line.find(",\"" + field + "\":");
      return from == std::string::npos ? line : line.substr(0, from);
    };
    for (const char* const file :
         {"eval/step-000000010.json", "eval/step-000000020.json", "eval/step-000000030.json",
          "eval/best.json", "eval/outcomes.jsonl", "metrics/eval.jsonl"}) {
      std::istringstream lines(text_of(run + "/" + file));
      essence += std::string(file) + "\n";
      for (std::string line; std::getline(lines, line);)
        essence +=
            without(without(without(line, "wall_time"), "duration_seconds"), "attempts") + "\n";
    }
    return essence;
  }

  void check() {
    const std::string run = scene_ + "/run";
    ASSERT_EQ(evaluate(run), 0) << log_of("stoker-eval");
    EXPECT_EQ(essence_of(run), whole_) << log_of("stoker-eval");
  }

  std::string whole_;
};

TEST_P(EvaluatorCrashEnumerationTest, RecordsEachCheckpointOnceAfterCrashAtAnyCall) {
  die_everywhere({program("stoker-eval"), "--run-dir", scene_ + "/run", "--once"}, GetParam(),
                 [this] { check(); });
}

const auto kDeaths =
    ::testing::Values(Death::kKill, Death::kPowerCut, Death::kPowerCutWithTheJournalFlushed);
INSTANTIATE_TEST_SUITE_P(Crashes, DaemonCrashEnumerationTest, kDeaths,
                         [](const auto& test) { return name_of(test.param); });
INSTANTIATE_TEST_SUITE_P(Crashes, EvaluatorCrashEnumerationTest, kDeaths,
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace stoker::test
