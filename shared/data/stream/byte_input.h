// ByteInput: bytes from outside that are read once, from front to back: a pipe, a socket, a file.
//
// Threads:  one at a time, except is_waiting(), polls(), identity(), check_identity() and
//           held_bytes(), which any thread may call.
// Blocking: read() and skip() until bytes arrive, the input ends, or a stop is requested, which they
//           notice within 100 ms, also if bytes are always available. There is no deadline, because a
//           producer may pause for hours.
// Errors:   kCancelled (stop), kNotFound, kPermission, kIoError; kCorrupt: a file changed in a way that
//           makes its bytes unreliable. Each names the input. An input must not be used after an
//           error.
// Sandbox:  in a worker process, after its system call filter was installed: make_descriptor_input(),
//           open_shard() and every method of an input. Before the filter, or in
//           the process that starts the worker: the other functions.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/data/files/file_table.h"
#include "shared/data/stream/byte_history.h"
#include "shared/data/stream/source_wait.h"

namespace stoker::data::stream {

class ByteInput {
 public:
  virtual ~ByteInput() = default;
  ByteInput(const ByteInput&) = delete;
  ByteInput& operator=(const ByteInput&) = delete;

  // Reads what is available, at least one byte; 0 at the end. `out` must not be empty.
  Result<size_t> read(std::span<std::byte> out, const std::stop_token& stop);
  // Skips `count` bytes, fewer only if the input ends before; returns their number.
  virtual Result<uint64_t> skip(uint64_t count, const std::stop_token& stop);

  // Identifies the bytes, of a shard by its size and time, which cp -a keeps: a checkpoint saves it. 0 if they cannot be
  // read again.
  virtual uint64_t identity() const { return 0; }
  // kCorrupt if identity() is not `saved`: the input is another one, or has changed. To be
  // called before reading continues at a saved offset.
  Status check_identity(uint64_t offset, uint64_t saved) const;

  // Memory for reading, without that of the object.
  virtual size_t held_bytes() const { return 0; }
  // Whether read() waits for a producer.
  bool is_waiting() const { return waiting_.is_waiting(); }
  // Increases with every read(), and at least every 100 ms while it waits. If it does not, the
  // reading thread hangs, or its caller does not read.
  uint64_t polls() const { return waiting_.polls(); }
  const std::string& name() const { return name_; }  // for messages

 protected:
  explicit ByteInput(std::string name) : name_(std::move(name)) {}
  // read() after the check for a stop.
  virtual Result<size_t> read_available(std::span<std::byte> out, const std::stop_token& stop) = 0;

  SourceWait waiting_;

 private:
  const std::string name_;
};

// kCancelled.
Status stopped_reading(std::string_view name);

// A descriptor to read from, and its name for messages. stokerd opens it and passes both to a worker
// process; while stokerd keeps a duplicate, a producer does not notice the end of a worker.
struct InputDescriptor {
  UniqueFd fd;
  std::string name;
};

// The process at the other end of a socket, as the kernel knows it.
struct SocketPeer {
  uid_t uid = 0;
  std::string process;  // "process 4711, gen"
};
Result<SocketPeer> peer_of(int socket);

// Standard input of this process, which stays open.
Result<InputDescriptor> open_stdin();
Result<InputDescriptor> open_fifo(const std::string& path);

// A pipe, terminal or connected socket. It ends when the last writer has closed it. A FIFO that no
// process has opened for writing yet does not end.
std::unique_ptr<ByteInput> make_descriptor_input(std::shared_ptr<const InputDescriptor> descriptor);
std::unique_ptr<ByteInput> make_descriptor_input(InputDescriptor descriptor);
// The same with the bytes that were read before: starts at `offset`, which must be in the range of
// `history`, and appends what it reads to it. Only the last of several inputs with one history may
// read behind its end.
std::unique_ptr<ByteInput> make_recorded_input(std::shared_ptr<const InputDescriptor> descriptor,
                                               const ByteHistory& history, uint64_t offset);

// A complete file, decompressed if its name ends in .gz, .tgz, .zst or .tzst. kCorrupt if it changes
// while it is read, or if its compressed bytes are invalid or end early.
Result<std::unique_ptr<ByteInput>> open_shard(const std::string& path);
// Of a shard with this stamp. Not 0.
uint64_t shard_identity(const files::FileStamp& stamp);

}  // namespace stoker::data::stream
