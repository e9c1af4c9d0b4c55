// HttpListen: the value of http.listen, "unix:PATH" or "ADDRESS:PORT" with a loopback address.
//
// Threads: a value.
// Errors:  kInvalidArgument: what is expected, and why another address is rejected.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shared/base/status.h"

namespace stoker::config {

struct HttpListen {
  std::string unix_path;  // empty: TCP
  std::string address;    // 127.0.0.1 or another address of 127.0.0.0/8, or ::1
  uint16_t port = 0;      // 0: the kernel chooses one

  bool operator==(const HttpListen&) const = default;
};

Result<HttpListen> parse_http_listen(std::string_view text);

}  // namespace stoker::config
