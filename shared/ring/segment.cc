#include "shared/ring/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "shared/base/available_memory.h"
#include "shared/base/number_format.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace stoker::ring {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr uint64_t kAllocationStep = 256ull << 20;  // a signal discards at most one step

Status no_space(uint64_t bytes, const std::string& reason) {
  return Status(
      StatusCode::kNoSpace,
      "the ring needs " + format_mib(bytes) + " of shared memory: " + reason +
          "; lower feed.prefetch_batches or train.micro_batch_size, or provide more memory");
}

// Checked before the allocation: above a cgroup limit the kernel can kill the process instead of
// returning an error, and above RLIMIT_FSIZE it sends SIGXFSZ.
Status check_available_memory(uint64_t bytes) {
  const AvailableMemory available = available_memory();
  if (bytes > available.bytes)
    return no_space(bytes, available.limit + " has " + format_mib(available.bytes) + " left");
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur)
    return no_space(bytes, "the limit on file sizes (ulimit -f) is " + format_mib(limit.rlim_cur));
  return {};
}

Result<UniqueFd> open_memfd() {
  UniqueFd fd(::memfd_create("stoker-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL)  // Linux before 6.3
    fd = UniqueFd(::memfd_create("stoker-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::from_errno(errno, "memfd_create for the ring");
  return fd;
}

struct Mappable {  // the interface that mapped_region requires
  int fd;
  boost::interprocess::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
};

}  // namespace

Result<Segment> Segment::create(uint64_t bytes) {
  STOKER_ASSIGN_OR_RETURN(Segment segment, reserve(bytes));
  STOKER_RETURN_IF_ERROR(segment.allocate(0, bytes));
  return segment;
}

Status Segment::allocate(uint64_t offset, uint64_t bytes) const {
  const uint64_t end = offset + bytes;
  while (offset < end) {
    const uint64_t step = std::min(kAllocationStep, end - offset);
    if (::fallocate(fd(), 0, static_cast<off_t>(offset), static_cast<off_t>(step)) == 0) {
      offset += step;
    } else if (errno != EINTR) {
      const int error = errno;
      return no_space(region_.get_size(),
                      Status::from_errno(error, "after " + format_mib(offset)).message());
    }
  }
  return {};
}

Result<Segment> Segment::reserve(uint64_t bytes) {
  STOKER_RETURN_IF_ERROR(check_available_memory(bytes));
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, open_memfd());
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return Status::from_errno(errno, "resize the ring");
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return Status::from_errno(errno, "seal the ring");
  return map(std::move(fd), bytes);
}

Result<Segment> Segment::attach(UniqueFd fd) {
  struct stat info {};
  const std::string name = "file descriptor " + std::to_string(fd.get());
  if (::fstat(fd.get(), &info) != 0)
    return Status(StatusCode::kMismatch,
                  name + " is not a ring: " + Status::from_errno(errno, "fstat").message());
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  if (!S_ISREG(info.st_mode) || info.st_size <= 0 || seals < 0 || (seals & kNeeded) != kNeeded)
    return Status(StatusCode::kMismatch, name + " is not a ring: not a memfd of fixed size");
  return map(std::move(fd), static_cast<uint64_t>(info.st_size));
}

Result<Segment> Segment::map(UniqueFd fd, uint64_t bytes) {
  try {
    boost::interprocess::mapped_region region(Mappable{fd.get()}, boost::interprocess::read_write,
                                              0, bytes);
    return Segment(std::move(fd), std::move(region));
  } catch (const boost::interprocess::interprocess_exception& error) {
    return Status(StatusCode::kOutOfMemory,
                  "map the ring's " + format_mib(bytes) + ": " + error.what());
  }
}

}  // namespace stoker::ring
