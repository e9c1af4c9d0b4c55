// Segment: one memfd, allocated to the last byte, sealed against a change of size, mapped.
//
// Because every page is allocated and nobody can shrink it, touching it can never raise SIGBUS.
//
// Owner:  no name; the kernel frees it with its last user. The descriptor is close-on-exec.
// Errors: create(): kNoSpace (how much is needed, how much there is), kOutOfMemory (no address
//         space). attach(): kMismatch (no sealed memfd). Boost.Interprocess throws only inside this
//         file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <boost/interprocess/mapped_region.hpp>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::ring {

class Segment {
 public:
  static Result<Segment> create(uint64_t bytes);
  static Result<Segment> attach(UniqueFd fd);

  int fd() const { return fd_.get(); }
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(region_.get_address()), region_.get_size()};
  }

 private:
  static Result<Segment> map(UniqueFd fd, uint64_t bytes);
  Segment(UniqueFd fd, boost::interprocess::mapped_region region)
      : fd_(std::move(fd)), region_(std::move(region)) {}

  UniqueFd fd_;
  boost::interprocess::mapped_region region_;
};

}  // namespace stoker::ring
