// StreamSource: what data.NAME.stream.source names: the inputs of a stream, in order.
//
//   stdin          standard input
//   PATH           a FIFO, or a complete file
//   GLOB           complete files, in the order of their names: "/data/train-{000..146}.tar.gz"
//   spool          files that other programs rename into the folder data.NAME.path
//   external       producers that connect to a socket (producer_inputs.h)
//
// A path with a wildcard or a brace is a GLOB, unless a file has that name.
//
// Threads:  immutable; any.
// Blocking: for the disk.
// Errors:   kNotFound, kPermission, kIoError, kInvalidArgument; each names the path.
// Sandbox:  open() as open_shard(); of() and open_descriptor() are called
//           before the system call filter of a worker process is installed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset_request.h"
#include "shared/data/stream/byte_input.h"

namespace stoker::data::stream {

class StreamSource {
 public:
  enum class Kind { kStdin, kFifo, kShards, kSpool, kExternal };

  // `folder`: data.NAME.path, for spool.
  static Result<StreamSource> of(const std::string& source, const std::string& folder);
  // As the stream of a dataset says, which must be set. Errors name the setting.
  static Result<StreamSource> of(const DatasetRequest& request);
  // What of() found, in another process.
  StreamSource(Kind kind, std::vector<std::string> names) : kind_(kind), names_(std::move(names)) {}

  Kind kind() const { return kind_; }
  // The names for open(), without those of a spool folder (SpoolFolder) and of producers.
  const std::vector<std::string>& names() const { return names_; }
  // Equal fingerprints mean that what is saved of one stream continues another: the same inputs, and a
  // queue that can hold the elements.
  std::string fingerprint(const config::StreamConfig& stream) const;
  // Whether the input is a descriptor: stdin or a FIFO.
  bool has_descriptor() const;
  // The descriptor for make_descriptor_input(). has_descriptor() must be true.
  Result<InputDescriptor> open_descriptor() const;
  // A file: one of names(), or of a spool folder. The kind must be one of files.
  Result<std::unique_ptr<ByteInput>> open(const std::string& name) const;

 private:
  Kind kind_;
  std::vector<std::string> names_;
};

}  // namespace stoker::data::stream
