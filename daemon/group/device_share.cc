#include "daemon/group/device_share.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <system_error>

#include "shared/base/file.h"

namespace stoker::group {
namespace {

constexpr std::string_view kGpus = "gpus";
constexpr std::string_view kNoGpu = "none ";
constexpr std::string_view kError = "error ";

std::string count_of(int number, const std::string& noun) {
  return std::to_string(number) + ' ' + noun + (number == 1 ? "" : "s");
}

Status no_gpu_because(const std::string& reason) {
  return {StatusCode::kNotFound, "no CUDA device available: " + reason};
}

}  // namespace

// WSL has none of these nodes.
Status no_gpu(const char* visible_devices, const std::string& root) {
  const std::string hidden = visible_devices == nullptr ? "all" : visible_devices;
  if (hidden.empty() || hidden.starts_with('-'))
    return no_gpu_because("CUDA_VISIBLE_DEVICES='" + hidden + "' hides all");
  if (::access((root + "dev/dxg").c_str(), F_OK) == 0)
    return no_gpu_because("the driver reports none");
  if (::access((root + "proc/driver/nvidia/version").c_str(), F_OK) != 0)
    return no_gpu_because("NVIDIA's driver is not loaded (no /proc/driver/nvidia/version)");
  for (const char* const node : {"dev/nvidiactl", "dev/nvidia-uvm"}) {
    // Opened, because a service can be denied a node that it has the rights to.
    const UniqueFd fd(::open((root + node).c_str(), O_RDWR | O_CLOEXEC));
    if (fd.valid()) continue;
    const Status failure = Status::from_errno(errno, "/" + std::string(node));
    if (failure.code() == StatusCode::kNotFound)
      return no_gpu_because("there is no /" + std::string(node) +
                            "; `nvidia-modprobe -u -c 0` creates it, then restart the service");
    return no_gpu_because(failure.message());
  }
  return no_gpu_because("the driver reports none; see `nvidia-smi` and CUDA_VISIBLE_DEVICES");
}

Result<int> device_index_of_rank(int local_rank, int local_world_size, int count) {
  if (count == 0) return no_gpu(std::getenv("CUDA_VISIBLE_DEVICES"));
  if (count == 1) return 0;
  if (count >= local_world_size) return local_rank;
  return Status(StatusCode::kInvalidArgument, "its host has " + count_of(count, "GPU") + " for " +
                                                  count_of(local_world_size, "rank") +
                                                  "; start at most " + std::to_string(count) +
                                                  " on it");
}

std::string to_text(const RankDevice& device) {
  if (device.uuid.empty()) return std::string(kNoGpu) + device.reason;
  return std::to_string(device.index) + ' ' + device.uuid;
}

Result<RankDevice> parse_rank_device(const std::string& text) {
  if (text.starts_with(kNoGpu)) return RankDevice{.uuid = "", .reason = text.substr(kNoGpu.size())};
  RankDevice device;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, device.index);
  if (error != std::errc() || end - next < 2 || *next != ' ' || device.index < 0)
    return Status(StatusCode::kCorrupt, "a rank sent '" + text + "' as its GPU");
  device.uuid = std::string(next + 1, end);
  return device;
}

std::string to_text(const Result<DeviceChoice>& choice) {
  if (!choice.ok()) return std::string(kError) + choice.status().message();
  return choice->uses_gpus ? std::string(kGpus) : std::string(kNoGpu) + choice->reason;
}

Result<DeviceChoice> parse_device_choice(const std::string& text) {
  if (text == kGpus) return DeviceChoice{.uses_gpus = true, .reason = ""};
  if (text.starts_with(kNoGpu))
    return DeviceChoice{.uses_gpus = false, .reason = text.substr(kNoGpu.size())};
  if (text.starts_with(kError))
    return Status(StatusCode::kInvalidArgument, text.substr(kError.size()));
  return Status(StatusCode::kCorrupt, "rank 0 sent '" + text + "' as the devices of all ranks");
}

Result<DeviceChoice> choose_devices(const std::vector<RankDevice>& ranks,
                                    const std::string& needed_by,
                                    const std::function<std::string(int)>& name_of) {
  std::map<std::string, int> rank_of;  // by UUID
  const auto without_gpus = [&needed_by](const std::string& reason,
                                         const char* hint) -> Result<DeviceChoice> {
    if (needed_by.empty()) return DeviceChoice{.uses_gpus = false, .reason = reason};
    return Status(StatusCode::kInvalidArgument,
                  needed_by + ": " + reason + "; " + hint + "set it to auto");
  };
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int rank = static_cast<int>(i);
    const RankDevice& device = ranks[i];
    if (device.uuid.empty()) return without_gpus(name_of(rank) + ": " + device.reason, "");
    const auto [first, is_new] = rank_of.emplace(device.uuid, rank);
    if (!is_new)
      return without_gpus(name_of(first->second) + " and " + name_of(rank) +
                              " have the same GPU, " + device.uuid +
                              " (cuda:" + std::to_string(device.index) + ")",
                          "start one rank per GPU, or ");
  }
  return DeviceChoice{.uses_gpus = true, .reason = ""};
}

}  // namespace stoker::group
