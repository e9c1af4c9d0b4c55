// HelloReply: the reply to `hello`. It identifies the run, so that a client can check that the
// daemon behind a socket trains that run.
//
// Threads: values; functions of their arguments, of the method table and of the file system.
#pragma once

#include <string>
#include <string_view>

#include "shared/base/status.h"

namespace stoker::control {

// The run of a daemon, also a part of `status`.
struct RunIdentity {
  std::string run_dir;  // absolute, without symlinks
  // "DEVICE:INODE" of that directory, which links and bind mounts do not change.
  std::string run_dir_id;
  int pid = 0;
};

// Of this process and an existing directory. kNotFound, kPermission, kIoError.
Result<RunIdentity> identify_run(const std::string& run_dir);

struct HelloReply {
  std::string stoker_version;
  std::string role;
  RunIdentity run;
};

// A JSON object on one line, with the protocol version and the names of all methods.
std::string to_json(const HelloReply& reply);
// Unknown fields are ignored. kCorrupt: no JSON object, or a field is missing or has the wrong type.
Result<HelloReply> parse_hello_reply(std::string_view json);

}  // namespace stoker::control
