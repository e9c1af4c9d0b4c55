// Checkpoints of released formats (tests/golden) remain usable: they verify, load, and runs resume
// from them.
#include <filesystem>

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

std::vector<std::string> golden_formats() {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(STOKER_GOLDEN))
    if (entry.is_directory()) folders.push_back(entry.path().filename().string());
  return folders;
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
  // The loss of each step, from metrics/train.jsonl.
  static std::vector<double> losses(const std::string& run) {
    std::vector<double> losses;
    std::istringstream rows(text_of(run + "/metrics/train.jsonl"));
    for (std::string row; std::getline(rows, row);)
      losses.push_back(boost::json::parse(row).at("loss").to_number<double>());
    return losses;
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

// The losses are close to those of an uninterrupted run of this build, within the differences
// between processors and LibTorch versions. Without the optimizer state or the sample order they
// would differ more.
TEST_P(GoldenCheckpointTest, ResumesRun) {
  const std::vector<std::string> more = {"--set", "train.max_steps=12", "--set",
                                         "checkpoint.save_every_steps=12"};
  EXPECT_EQ(train(config(), run_dir(), more).code, 0);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("run resumed step=4"));
  EXPECT_EQ(newest_step(run_dir()), 12U);
  const std::vector<double> resumed = losses(run_dir());
  EXPECT_EQ(train(config(), run_dir("uninterrupted"), more).code, 0);
  const std::vector<double> uninterrupted = losses(run_dir("uninterrupted"));
  ASSERT_EQ(resumed.size(), 12U);
  ASSERT_EQ(uninterrupted.size(), 12U);
  for (size_t i = 0; i < uninterrupted.size(); ++i)
    EXPECT_NEAR(resumed[i], uninterrupted[i], 1e-3 * uninterrupted[i]) << "step " << i + 1;
}

TEST_P(GoldenCheckpointTest, LoadsAsPretrainedWeights) {
  const std::vector<std::string> more = {"--set", "model.pretrained.path=" + checkpoint_path(),
                                         "--set", "model.pretrained.exclude=[\"3.*\"]"};
  EXPECT_EQ(train(config(), run_dir("new"), more).code, 0);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("loaded=2 unexpected=2 missing=2"));
  EXPECT_THAT(text_of(run_dir("new") + "/logs/pretrained_load_report.txt"),
              HasSubstr("missing    3.bias F32 [3], ignored\n"));
}

// A run whose newest checkpoint has a newer format fails with one line and leaves it unchanged.
TEST_P(GoldenCheckpointTest, IsRejectedWithNewerFormat) {
  std::string manifest = *read_file(checkpoint_path() + "/manifest.json", 1 << 20);
  const std::string old_sum = sha256_hex(manifest);
  manifest.replace(manifest.find("\"format\":"), 10, "\"format\":4");
  write_whole(checkpoint_path() + "/manifest.json", manifest);
  std::string sums = *read_file(checkpoint_path() + "/SHA256SUMS", 1 << 20);
  sums.replace(sums.find(old_sum), old_sum.size(), sha256_hex(manifest));
  write_whole(checkpoint_path() + "/SHA256SUMS", sums);
  EXPECT_NE(train(config(), run_dir()).code, 0);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("format 4; this version reads up to 3"));
  EXPECT_EQ(*read_file(checkpoint_path() + "/manifest.json", 1 << 20), manifest);
}

INSTANTIATE_TEST_SUITE_P(Formats, GoldenCheckpointTest, ::testing::ValuesIn(golden_formats()),
                         [](const auto& format) {
                           std::string name = format.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace stoker::test
