// host blocks: how LibTorch gets memory for tensors of the CPU, and that the process keeps it.
//
// LibTorch asks for aligned memory (posix_memalign), for which glibc before 2.38 takes a little more
// and gives back what stands over on both sides. What is small and stays is then put into these
// rests, and when the tensor has gone its place is too small for the next one of the same size: a
// program that keeps a few bytes now and then, a line of a ledger say, loses the place of a tensor
// each time. A block from malloc() that is a little larger is given back as a whole.
//
// Threads:  before the first tensor is made.
// Blocking: never.
// Errors:   none; where there is no memory LibTorch's own allocator is asked, and says so in its
//           words.
#pragma once

namespace stoker::model {

void install_host_allocator();

}  // namespace stoker::model
