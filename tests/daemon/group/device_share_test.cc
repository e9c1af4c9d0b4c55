#include "daemon/group/device_share.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::group {
namespace {

using test::TemporaryDirectory;
using testing::EndsWith;
using testing::HasSubstr;

constexpr const char* kNeededBy = "train.device: cuda";

std::string host_rank(int rank) { return "rank " + std::to_string(rank) + " (node-1, pid 47)"; }

RankDevice gpu(int index, const std::string& uuid) {
  return {.index = index, .uuid = uuid, .reason = ""};
}
RankDevice none(const std::string& reason) { return {.uuid = "", .reason = reason}; }

TEST(DeviceShareTest, GivesEachLocalRankTheGpuOfItsNumber) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(*device_index_of_rank(rank, 4, 4), rank);
    EXPECT_EQ(*device_index_of_rank(rank, 4, 8), rank);
  }
}

TEST(DeviceShareTest, TakesOnlyVisibleGpu) {
  EXPECT_EQ(*device_index_of_rank(3, 4, 1), 0);
  EXPECT_EQ(*device_index_of_rank(0, 1, 1), 0);
}

TEST(DeviceShareTest, ReportsMissingGpus) {
  EXPECT_EQ(device_index_of_rank(0, 2, 0).status().code(), StatusCode::kNotFound);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(device_index_of_rank(rank, 4, 2).status().message(),
                HasSubstr("its host has 2 GPUs for 4 ranks; start at most 2 on it"));
}

TEST(NoGpuTest, NamesWhatIsMissing) {
  const TemporaryDirectory directory;
  const std::string root = directory.path() + "/";
  const auto message = [&](const char* visible = nullptr) {
    return no_gpu(visible, root).message();
  };
  const auto create = [&](const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << "x";
  };
  EXPECT_THAT(message(""), HasSubstr("CUDA_VISIBLE_DEVICES='' hides all"));
  EXPECT_THAT(message("-1"), HasSubstr("CUDA_VISIBLE_DEVICES='-1' hides all"));
  EXPECT_THAT(message("0"), HasSubstr("NVIDIA's driver is not loaded"));
  create("proc/driver/nvidia/version");
  EXPECT_THAT(message(), HasSubstr("there is no /dev/nvidiactl; "));
  create("dev/nvidiactl");
  EXPECT_THAT(message(), HasSubstr("there is no /dev/nvidia-uvm; "));
  std::filesystem::create_directory(root + "dev/nvidia-uvm");
  EXPECT_THAT(message(), EndsWith("/dev/nvidia-uvm: Is a directory"));
  std::filesystem::remove(root + "dev/nvidia-uvm");
  create("dev/nvidia-uvm");
  EXPECT_THAT(message(), HasSubstr("the driver reports none; see `nvidia-smi`"));
  EXPECT_EQ(no_gpu(nullptr, root).code(), StatusCode::kNotFound);
}

TEST(DeviceShareTest, ReadsWhatItWrites) {
  for (const RankDevice& device :
       {gpu(0, "GPU-1"), gpu(12, "GPU-2f"), none("no module: a b"), none("")})
    EXPECT_EQ(*parse_rank_device(to_text(device)), device);
  for (const DeviceChoice& choice :
       {DeviceChoice{.uses_gpus = true, .reason = ""},
        DeviceChoice{.uses_gpus = false, .reason = "error of a driver"},
        DeviceChoice{.uses_gpus = false, .reason = "gpus"}})
    EXPECT_EQ(*parse_device_choice(to_text(choice)), choice);
  const Result<DeviceChoice> failed = Status(StatusCode::kInvalidArgument, "two ranks");
  EXPECT_EQ(parse_device_choice(to_text(failed)).status().to_string(), failed.status().to_string());
}

TEST(DeviceShareTest, RejectsOtherText) {
  for (const char* const text :
       {"", "GPU-1", "1", "1 ", "-1 GPU-1", "x GPU-1", "99999999999 GPU-1"})
    EXPECT_EQ(parse_rank_device(text).status().code(), StatusCode::kCorrupt) << text;
  for (const char* const text : {"", "gpu", "no"})
    EXPECT_EQ(parse_device_choice(text).status().code(), StatusCode::kCorrupt) << text;
}

TEST(DeviceShareTest, UsesGpusIfEachRankHasItsOwn) {
  // On two hosts.
  const auto choice = choose_devices(
      {gpu(0, "GPU-1"), gpu(1, "GPU-2"), gpu(0, "GPU-3"), gpu(1, "GPU-4")}, kNeededBy, host_rank);
  EXPECT_TRUE(choice->uses_gpus);
}

TEST(DeviceShareTest, NamesBothRanksOfOneGpu) {
  const std::vector<RankDevice> ranks{gpu(0, "GPU-1"), gpu(0, "GPU-2"), gpu(0, "GPU-1")};
  const std::string reason =
      "rank 0 (node-1, pid 47) and rank 2 (node-1, pid 47) have the same GPU, GPU-1 (cuda:0)";
  const auto choice = choose_devices(ranks, kNeededBy, host_rank);
  EXPECT_EQ(choice.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(choice.status().message(),
            "train.device: cuda: " + reason + "; start one rank per GPU, or set it to auto");
  const DeviceChoice cpu{.uses_gpus = false, .reason = reason};
  EXPECT_EQ(*choose_devices(ranks, "", host_rank), cpu);
}

TEST(DeviceShareTest, NeedsGpuOfEachRank) {
  const std::vector<RankDevice> ranks{gpu(0, "GPU-1"), none("no driver"), none("no module")};
  const auto choice = choose_devices(ranks, "", host_rank);
  EXPECT_FALSE(choice->uses_gpus);
  EXPECT_EQ(choice->reason, "rank 1 (node-1, pid 47): no driver");
  EXPECT_EQ(choose_devices(ranks, "distributed.backend: nccl", host_rank).status().message(),
            "distributed.backend: nccl: rank 1 (node-1, pid 47): no driver; set it to auto");
}

}  // namespace
}  // namespace stoker::group
