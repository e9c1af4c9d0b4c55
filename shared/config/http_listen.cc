#include "shared/config/http_listen.h"

#include <arpa/inet.h>

#include <charconv>
#include <optional>

namespace stoker::config {
namespace {

Status invalid(std::string_view what) {
  return Status(StatusCode::kInvalidArgument, std::string(what));
}

std::optional<uint16_t> parse_port(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return port;
}

bool is_loopback(const std::string& address) {
  in_addr v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

Result<HttpListen> parse_http_listen(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) {
    const std::string_view path = text.substr(kUnix.size());
    if (path.empty() || path[0] != '/')
      return invalid("unix: must be followed by an absolute path");
    return HttpListen{.unix_path = std::string(path)};
  }
  const size_t colon = text.rfind(':');
  const auto port =
      colon == std::string_view::npos ? std::nullopt : parse_port(text.substr(colon + 1));
  if (!port) return invalid("must be unix:PATH, 127.0.0.1:PORT, [::1]:PORT or null");
  std::string address(text.substr(0, colon));
  if (address == "localhost") address = "127.0.0.1";
  if (address.starts_with('[') && address.ends_with(']'))
    address = address.substr(1, address.size() - 2);
  if (!is_loopback(address))
    return invalid(
        "must be a loopback address, because there is no authentication; for access from another "
        "host, use ssh -L or a reverse proxy");
  return HttpListen{.address = address, .port = *port};
}

}  // namespace stoker::config
