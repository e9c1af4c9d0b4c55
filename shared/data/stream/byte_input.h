// ByteInput: bytes from outside that are read once, from front to back: a pipe, a socket, a file.
//
// Threads:  one at a time, except is_waiting(), which any thread may call.
// Blocking: read() and skip() until bytes arrive, the input ends, or a stop is requested, which they
//           notice within 100 ms. There is no deadline, because a producer may pause for hours.
// Errors:   kCancelled (stop), kNotFound, kPermission, kIoError; kCorrupt: a file changed in a way that
//           makes its bytes unreliable. Each names the input. An input must not be used after an
//           error.
#pragma once

#include <atomic>
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

namespace stoker::data::stream {

class ByteInput {
 public:
  virtual ~ByteInput() = default;
  ByteInput(const ByteInput&) = delete;
  ByteInput& operator=(const ByteInput&) = delete;

  // Reads what is available, at least one byte; 0 at the end. `out` must not be empty.
  virtual Result<size_t> read(std::span<std::byte> out, const std::stop_token& stop) = 0;
  // kCorrupt if there are fewer bytes.
  virtual Status skip(uint64_t count, const std::stop_token& stop);
  // Whether read() waits for a producer.
  virtual bool is_waiting() const { return waiting_.load(std::memory_order_relaxed); }
  const std::string& name() const { return name_; }  // for messages

 protected:
  explicit ByteInput(std::string name) : name_(std::move(name)) {}

  // While it exists, is_waiting() is true.
  class Waiting {
   public:
    explicit Waiting(ByteInput& input) : input_(input) { input_.waiting_ = true; }
    ~Waiting() { input_.waiting_ = false; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    ByteInput& input_;
  };

 private:
  const std::string name_;
  std::atomic<bool> waiting_{false};  // written by the reading thread; no other data depends on it
};

// kCancelled.
Status stopped_reading(std::string_view name);

// A pipe, terminal or connected socket. It ends when the last writer has closed it. A FIFO that no
// process has opened for writing yet does not end.
std::unique_ptr<ByteInput> make_descriptor_input(UniqueFd fd, std::string name);
// Standard input of this process, which stays open.
Result<std::unique_ptr<ByteInput>> open_stdin();
Result<std::unique_ptr<ByteInput>> open_fifo(const std::string& path);
// Connects to a Unix socket. The name contains the process that listens.
Result<std::unique_ptr<ByteInput>> connect_socket(const std::string& path);

// A complete file, decompressed if its name ends in .gz, .tgz, .zst or .tzst. kCorrupt if it changes
// while it is read, or if its compressed bytes are invalid or end early.
Result<std::unique_ptr<ByteInput>> open_shard(const std::string& path);

// A file to which another program appends. At its end read() waits; it ends when the file is removed
// and no other file has its name. kCorrupt: the file was truncated or overwritten, or it was rotated:
// another file has its name, or it has another name. All its bytes were then read.
Result<std::unique_ptr<ByteInput>> open_growing_file(const std::string& path);

}  // namespace stoker::data::stream
