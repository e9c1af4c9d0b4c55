// Segment: a mapped memfd that is sealed against resizing.
//
// What is allocated cannot be taken away, so an access to it never raises SIGBUS. create() allocates
// every page.
//
// Ownership: the memfd has no name; the kernel frees it with its last user. The descriptor is
//            close-on-exec.
// Errors:    create(), reserve(): kNoSpace (with the required and the available size), kOutOfMemory
//            (no address space). allocate(): kNoSpace. attach(): kMismatch (not a sealed memfd).
//            Exceptions of Boost.Interprocess do not leave this class.
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
  // Without pages: of what is accessed, each must be allocated before.
  static Result<Segment> reserve(uint64_t bytes);
  // From any thread.
  Status allocate(uint64_t offset, uint64_t bytes) const;
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
