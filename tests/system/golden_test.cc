// Recorded checkpoints of each format and run directories of each version (tests/golden) remain usable:
// they verify, load, and runs resume from them.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/checkpoint/store.h"
#include "tests/support/temporary_directory.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr uint64_t kStep = 4;

// The folders whose names start with `prefix`.
std::vector<std::string> golden_folders(const std::string& prefix) {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(STOKER_GOLDEN))
    if (entry.is_directory() && entry.path().filename().string().starts_with(prefix))
      folders.push_back(entry.path().filename().string());
  return folders;
}

// The loss of each step, from metrics/train.jsonl.
std::vector<double> losses(const std::string& run) {
  std::vector<double> losses;
  std::istringstream rows(*read_file(run + "/metrics/train.jsonl", 1 << 20));
  for (std::string row; std::getline(rows, row);)
    losses.push_back(boost::json::parse(row).at("loss").to_number<double>());
  return losses;
}

// Within the differences between processors and LibTorch versions.
void expect_close(const std::vector<double>& found, const std::vector<double>& expected,
                  size_t steps) {
  ASSERT_EQ(found.size(), steps);
  ASSERT_EQ(expected.size(), steps);
  for (size_t i = 0; i < steps; ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-3 * expected[i]) << "step " << i + 1;
}

std::string name_of(const ::testing::TestParamInfo<std::string>& folder) {
  std::string name = folder.param;
  std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
  return name;
}

class GoldenCheckpointTest : public RunTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    copy_tree(STOKER_GOLDEN "/" + GetParam(), run_dir());
  }
  bool is_sharded() const { return GetParam() == "format-3"; }
  std::string config() const {
    return is_sharded() ? STOKER_GOLDEN "/sharded.yaml" : STOKER_GOLDEN "/tiny.yaml";
  }
  std::string checkpoint_path() const {
    return run_dir() + "/checkpoints/" + checkpoint::CheckpointStore::checkpoint_name(kStep);
  }
  static void expect_tensor(const checkpoint::TensorSource& tensors, const std::string& name,
                            const std::string& type) {
    const TensorSpec* const found = tensors.find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(to_string(*found), name + " " + type);
    std::vector<std::byte> bytes(found->bytes());
    EXPECT_TRUE(tensors.read(name, bytes).ok());
  }
};

TEST_P(GoldenCheckpointTest, VerifiesWithUnchangedContents) {
  auto verify = ctl(run_dir(), {"verify", "--all"}, "verify.out");
  const auto ended = verify.wait(60s);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0) << text_of(verify.log());
  const auto opened = checkpoint::CheckpointStore::open_verified(checkpoint_path());
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const checkpoint::Manifest& manifest = opened->manifest();
  EXPECT_EQ("format-" + std::to_string(manifest.format), GetParam());
  EXPECT_EQ(manifest.step, kStep);
  EXPECT_EQ(manifest.next_ticket, is_sharded() ? 4 * kStep : kStep);
  EXPECT_EQ(manifest.world_size, 1);
  EXPECT_EQ(manifest.optimizer_shards, is_sharded() ? 4 : 0);
  EXPECT_THAT(manifest.live_settings, HasSubstr("lr_scale"));
  const std::string units = is_sharded() ? "40" : "4";  // of the hidden layer
  const auto model = opened->open_tensors("model.safetensors");
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  expect_tensor(**model, "0.weight", "F32 [" + units + ", 4]");
  expect_tensor(**model, "3.bias", "F32 [3]");
  const auto optimizer = opened->open_optimizer();
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  expect_tensor(**optimizer, "exp_avg_sq.0.weight", "F32 [" + units + ", 4]");
  expect_tensor(**optimizer, "exp_avg_sq.3.weight", "F32 [3, " + units + "]");
  expect_tensor(**optimizer, "step.0.bias", "F32 []");
  const auto state = opened->open_tensors("trainer_state.safetensors");
  ASSERT_TRUE(state.ok()) << state.status().to_string();
  expect_tensor(**state, "interval.steps", "I64 []");
}

// Parts of a parameter are in two files.
TEST_P(GoldenCheckpointTest, HasRangesIfSharded) {
  if (!is_sharded()) GTEST_SKIP() << "the optimizer state is one file";
  size_t parts = 0;
  for (int index = 0; index < 4; ++index) {
    const auto file = checkpoint::SafetensorsFile::open(checkpoint_path() + "/" +
                                                        checkpoint::optimizer_shard_name(index, 4));
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    parts += (*file)->find("exp_avg.0.weight") != nullptr ? 1 : 0;
  }
  EXPECT_GT(parts, 1u);
}

// The losses are close to those of an uninterrupted run of this build. Without the optimizer state or
// the sample order they would differ more.
TEST_P(GoldenCheckpointTest, ResumesRun) {
  const std::vector<std::string> more = {"--set", "train.max_steps=12", "--set",
                                         "checkpoint.save_every_steps=12"};
  EXPECT_EQ(train(config(), run_dir(), more).code, 0);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("run resumed step=4"));
  EXPECT_EQ(newest_step(run_dir()), 12U);
  const std::vector<double> resumed = losses(run_dir());
  EXPECT_EQ(train(config(), run_dir("uninterrupted"), more).code, 0);
  expect_close(resumed, losses(run_dir("uninterrupted")), 12);
}

TEST_P(GoldenCheckpointTest, LoadsAsPretrainedWeights) {
  const std::vector<std::string> more = {"--set", "model.pretrained.path=" + checkpoint_path(),
                                         "--set", "model.pretrained.exclude=[\"3.*\"]"};
  EXPECT_EQ(train(config(), run_dir("new"), more).code, 0);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("loaded=2 unexpected=2 missing=2"));
  EXPECT_THAT(text_of(run_dir("new") + "/logs/pretrained_load_report.txt"),
              HasSubstr("missing    3.bias F32 [3], ignored\n"));
}

INSTANTIATE_TEST_SUITE_P(Formats, GoldenCheckpointTest,
                         ::testing::ValuesIn(golden_folders("format-")), name_of);

// ---- Run directories

class GoldenRunTest : public RunTest, public ::testing::WithParamInterface<std::string> {
 protected:
  static constexpr uint64_t kLastStep = 12;  // of the recorded run

  void SetUp() override {
    RunTest::SetUp();
    copy_tree(STOKER_GOLDEN "/" + GetParam(), run_dir());
  }
  std::vector<std::string> evaluated() const {
    std::vector<std::string> records;
    std::istringstream lines(text_of(run_dir() + "/metrics/eval.jsonl"));
    for (std::string line; std::getline(lines, line);) records.push_back(line);
    return records;
  }

  const std::string config_ = STOKER_GOLDEN "/run.yaml";
};

TEST_P(GoldenRunTest, ResumesTrainingAndEvaluation) {
  const std::vector<std::string> recorded = evaluated();
  ASSERT_EQ(recorded.size(), 1U);
  const std::vector<std::string> longer = {"--set", "train.max_steps=24"};
  EXPECT_EQ(train(config_, run_dir(), longer).code, 0);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("run resumed step=12"));
  EXPECT_EQ(newest_step(run_dir()), 24U);
  EXPECT_EQ(train(config_, run_dir("uninterrupted"), longer).code, 0);
  expect_close(losses(run_dir()), losses(run_dir("uninterrupted")), 24);

  const auto exit = evaluator(run_dir(), {"--once"}).wait(120s);
  ASSERT_TRUE(exit && exit->code == 0) << log_of("stoker-eval");
  const std::vector<std::string> now = evaluated();
  ASSERT_EQ(now.size(), 2U) << "what was evaluated before is not evaluated again";
  EXPECT_EQ(now[0], recorded[0]);
  EXPECT_THAT(now[1], HasSubstr("\"step\":24"));
  EXPECT_TRUE(
      boost::json::parse(text_of(run_dir() + "/eval/best.json")).as_object().contains("step"));
}

TEST_P(GoldenRunTest, IsReadByCommands) {
  // Which steps between were saved depends on the disk of that time.
  const std::vector<std::string> saved = checkpoints(run_dir());
  ASSERT_GE(saved.size(), 2U);
  const auto step_of = [](const std::string& name) {
    return std::to_string(std::stoull(name.substr(name.find('-') + 1)));
  };
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"list"},
        {"verify", "--all"},
        {"report"},
        {"show-batch", "3"},
        {"class-report"},
        {"diff", step_of(saved.front()), step_of(saved.back())},
        {"export", "best", "--include", "all", "--output", path("all.safetensors")}}) {
    auto command = ctl(run_dir(), words, words[0]);
    const auto ended = command.wait(60s);
    ASSERT_TRUE(ended.has_value()) << words[0];
    EXPECT_EQ(ended->code, 0) << words[0] << ": " << text_of(command.log());
  }
  EXPECT_THAT(text_of(path("list.out")), HasSubstr("12"));
}

// These numbers are what docs/compatibility.md declares.
TEST_P(GoldenRunTest, HasRecordedFormatNumbers) {
  struct Numbers {
    int checkpoint = 0;
    int index = 0;
  };
  const std::map<std::string, Numbers> recorded{{"run-0.1.0", {.checkpoint = 2, .index = 6}}};
  ASSERT_TRUE(recorded.contains(GetParam())) << "add the numbers of this release";
  const Numbers& numbers = recorded.at(GetParam());
  const auto opened = checkpoint::CheckpointStore::open_verified(
      run_dir() + "/checkpoints/" + checkpoint::CheckpointStore::checkpoint_name(kLastStep));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->manifest().format, numbers.checkpoint);
  EXPECT_EQ("run-" + opened->manifest().stoker_version, GetParam());
  std::ifstream index(run_dir() + "/index/train.index", std::ios::binary);
  std::string head(16, '\0');
  ASSERT_TRUE(index.read(head.data(), static_cast<std::streamsize>(head.size())).good());
  EXPECT_EQ(head[8], numbers.index) << "version of the index";
}

INSTANTIATE_TEST_SUITE_P(Releases, GoldenRunTest, ::testing::ValuesIn(golden_folders("run-")),
                         name_of);

}  // namespace
}  // namespace stoker::test
