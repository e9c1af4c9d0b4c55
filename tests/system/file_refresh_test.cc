// Datasets to which complete files are added, tar shards and images in folders, with refresh at the
// next epoch and immediately.
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/tar_writer.h"
#include "tests/shared/image/image_files.h"
#include "tests/system/dataset_refresh_fixture.h"

namespace stoker::test {
namespace {

using ::testing::HasSubstr;

std::string encoded_image(int i) {
  const auto value = static_cast<uint8_t>(5 * i);
  return image::testing::encode_png_file(image::testing::plain(4, 4, {value, 9, 99}));
}

void write(const std::string& file, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
}

// Writes a shard with `count` samples of two classes in `folder`, which is not scanned, and renames
// it to `name` in the dataset folder, so that a scan sees all of it or nothing.
void tar_shard(const std::string& folder, const std::string& set, const std::string& name,
               int count) {
  std::string shard;
  for (int i = 0; i < count; ++i)
    shard += data::testing::tar_member(name + std::to_string(i) + ".cls", i % 2 ? "1" : "0") +
             data::testing::tar_member(name + std::to_string(i) + ".png", encoded_image(i));
  write(folder + "/shard", shard + data::testing::kTarEnd);
  std::filesystem::create_directories(set);
  std::filesystem::rename(folder + "/shard", set + "/" + name + ".tar");
}

// Renames a folder of `count` images into place: the first call adds two class folders, later calls
// add a subfolder to one of them.
void encoded_images(const std::string& folder, const std::string& set, const std::string& name,
                    int count) {
  const bool is_first = !std::filesystem::exists(set);
  for (int i = 0; i < count; ++i)
    write(folder + (is_first ? (i % 2 ? "/p/dog/" : "/p/cat/") : "/p/") + name + std::to_string(i) +
              ".png",
          encoded_image(i));
  std::filesystem::rename(folder + "/p", is_first ? set : set + "/cat/" + name);
}

struct RefreshableDataset {
  const char* name;
  void (*add)(const std::string& folder, const std::string& set, const std::string& name,
              int count);
  const char* yaml;
};

void PrintTo(const RefreshableDataset& set, std::ostream* out) { *out << set.name; }

class FileRefreshTest : public DatasetRefreshFixture,
                        public ::testing::WithParamInterface<RefreshableDataset> {
 protected:
  void SetUp() override {
    DatasetRefreshFixture::SetUp();
    add("first", 40);
  }
  void add(const std::string& name, int count) const {
    GetParam().add(path("elsewhere"), path("set"), name, count);
  }
  std::string config_of(const std::string& refresh) const {
    return config_with(
        "{" + std::string(GetParam().yaml) + ", path: " + path("set") +
        ", transforms: [resize: {size: [4, 4]}, normalize: {mean: 0.5, std: 0.5}], refresh: " +
        refresh + "}");
  }
  void expect_finished(Process& trainer) const {
    const auto exit = trainer.wait(90s);
    ASSERT_TRUE(exit && exit->code == 0) << log_of("stokerd");
  }
};

TEST_P(FileRefreshTest, AddsFilesAtNextEpoch) {
  Process trainer = paused_trainer(config_of("epoch"));
  add("second", 24);
  ASSERT_TRUE(wait_until(60s, [&] { return log_contains("new data found samples=64"); }));
  send_command("resume");
  ASSERT_NO_FATAL_FAILURE(expect_finished(trainer));
  const auto states = history(run_dir());
  ASSERT_EQ(states.size(), 2u);
  const uint64_t ticket = states[1].start.ticket;
  EXPECT_EQ(ticket * kBatch % 40, 0u) << "in the middle of an epoch";
  EXPECT_EQ(size_at(ticket), 40u);
  EXPECT_EQ(size_at(ticket + 1), 64u);
  EXPECT_EQ(epoch_at(ticket + 1), epoch_at(ticket) + 1);
  expect_complete_epoch(ticket, 64);
}

TEST_P(FileRefreshTest, AddsFilesImmediatelyWhenConfigured) {
  Process trainer = paused_trainer(config_of("immediate"));
  add("second", 24);
  ASSERT_TRUE(wait_until(60s, [&] { return log_contains("new data found samples=64"); }));
  const uint64_t paused_at = newest_step(run_dir());
  send_command("resume");
  ASSERT_NO_FATAL_FAILURE(expect_finished(trainer));
  const auto states = history(run_dir());
  ASSERT_EQ(states.size(), 2u);
  EXPECT_GE(states[1].start.ticket, paused_at);
  EXPECT_EQ(epoch_at(states[1].start.ticket + 1), epoch_at(states[1].start.ticket) + 1);
  expect_complete_epoch(states[1].start.ticket, 64);
}

TEST_P(FileRefreshTest, ReplaysRefreshFromEarlierCheckpoint) {
  Process trainer = paused_trainer(config_of("epoch"));
  add("second", 24);
  ASSERT_TRUE(wait_until(60s, [&] { return log_contains("new data found samples=64"); }));
  send_command("resume");
  ASSERT_NO_FATAL_FAILURE(expect_finished(trainer));
  std::filesystem::copy(run_dir(), run_dir("again"), std::filesystem::copy_options::recursive);
  const std::string first = run_dir("again") + "/checkpoints/" + checkpoints(run_dir()).front();
  ASSERT_EQ(
      train(path("config.yaml"), run_dir("again"), joined(to_last_step(), {"--resume", first}))
          .code,
      0);
  EXPECT_EQ(history(run_dir("again")), history(run_dir()));
  EXPECT_EQ(model_sha256(run_dir("again"), last_step_), model_sha256(run_dir(), last_step_));
}

TEST_P(FileRefreshTest, ReportsRemovedFilesAndContinuesTraining) {
  add("second", 24);
  Process trainer = paused_trainer(config_of("epoch"));
  const bool is_tar = std::filesystem::exists(path("set/second.tar"));
  std::filesystem::remove_all(path(is_tar ? "set/second.tar" : "set/cat/second"));
  ASSERT_TRUE(wait_until(60s, [&] { return log_contains(": was removed"); })) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), HasSubstr("second"));
  send_command("stop");
  ASSERT_NO_FATAL_FAILURE(expect_finished(trainer));
  EXPECT_EQ(history(run_dir()).size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, FileRefreshTest,
    ::testing::Values(
        RefreshableDataset{"tar", tar_shard,
                           "format: webdataset, glob: \"*.tar\", fields: {image: png, label: cls}"},
        RefreshableDataset{"images", encoded_images, "format: image_folder, glob: \"**/*.png\""}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace stoker::test
