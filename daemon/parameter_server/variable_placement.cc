#include "daemon/parameter_server/variable_placement.h"

#include <algorithm>
#include <cassert>

namespace stoker::parameter_server {

std::vector<size_t> place_variables(const std::vector<uint64_t>& bytes, size_t num_servers,
                                    config::VariablePlacement placement) {
  assert(num_servers > 0);
  std::vector<size_t> servers;
  servers.reserve(bytes.size());
  std::vector<uint64_t> placed(num_servers);
  for (const uint64_t size : bytes) {
    size_t server = servers.size() % num_servers;
    if (placement == config::VariablePlacement::kBytes)
      server = static_cast<size_t>(std::ranges::min_element(placed) - placed.begin());
    placed[server] += size;
    servers.push_back(server);
  }
  return servers;
}

}  // namespace stoker::parameter_server
