// Segment: a fully allocated, mapped memfd that is sealed against resizing.
//
// Every page is allocated and the segment cannot be shrunk, so an access never raises SIGBUS.
//
// Ownership: the memfd has no name; the kernel frees it with its last user. The descriptor is
//            close-on-exec.
// Errors:    create(): kNoSpace (with the required and the available size), kOutOfMemory (no
//            address space). attach(): kMismatch (not a sealed memfd). Exceptions of
//            Boost.Interprocess do not leave this class.
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
