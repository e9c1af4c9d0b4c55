#include "daemon/service/durability_check.h"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "shared/base/file.h"

namespace stoker::service {
namespace {

// As the kernel's linux/magic.h and the file systems' own headers number them.
constexpr std::array<std::pair<int64_t, std::string_view>, 9> kOverNetwork{{{0x6969, "NFS"},
                                                                            {0x517b, "SMB"},
                                                                            {0xff534d42, "CIFS"},
                                                                            {0xfe534d42, "SMB"},
                                                                            {0x01021997, "9P"},
                                                                            {0x65735546, "FUSE"},
                                                                            {0x0bd00bd0, "Lustre"},
                                                                            {0x00c36400, "Ceph"},
                                                                            {0x47504653, "GPFS"}}};

}  // namespace

FileSystemInfo inspect_file_system(const std::string& held_lock) {
  FileSystemInfo file_system;
  const auto locked = is_locked(held_lock);
  file_system.lock_is_seen = locked.ok() && *locked;
  struct statfs info {};
  if (::statfs(held_lock.c_str(), &info) == 0)
    file_system.kind = static_cast<int64_t>(static_cast<uint32_t>(info.f_type));
  return file_system;
}

std::vector<std::string> durability_warnings(const FileSystemInfo& file_system) {
  std::vector<std::string> warnings;
  if (!file_system.lock_is_seen)
    warnings.emplace_back(
        "locks (flock) do not work there: see to it that one stokerd at a time trains in it, and "
        "set "
        "checkpoint.min_age_seconds to longer than an evaluation takes");
  const auto network =
      std::ranges::find(kOverNetwork, file_system.kind, &decltype(kOverNetwork)::value_type::first);
  if (network != kOverNetwork.end())
    warnings.push_back(
        "it is on " + std::string(network->second) +
        ": readers on other machines are not seen by retention, set "
        "checkpoint.min_age_seconds to longer than they take; fsync is as good as the "
        "server's");
  return warnings;
}

}  // namespace stoker::service
