#include "daemon/parameter_server/messages.h"

#include <algorithm>
#include <bit>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace stoker::parameter_server {
namespace {

at::Tensor header_tensor() { return at::empty({static_cast<int64_t>(Header().size())}, at::kLong); }

}  // namespace

Header make_header(int64_t first, uint64_t second, uint64_t third, const Sums& sums) {
  return {first,
          static_cast<int64_t>(second),
          static_cast<int64_t>(third),
          std::bit_cast<int64_t>(sums.loss),
          std::bit_cast<int64_t>(sums.metric),
          std::bit_cast<int64_t>(sums.metric_count),
          sums.steps,
          std::bit_cast<int64_t>(sums.norm)};
}

Sums sums_of(const Header& header) {
  return {.loss = std::bit_cast<double>(header[3]),
          .metric = std::bit_cast<double>(header[4]),
          .metric_count = std::bit_cast<double>(header[5]),
          .steps = header[6],
          .norm = std::bit_cast<double>(header[7])};
}

Status send_header(group::PairConnection& connection, const Header& header,
                   const std::stop_token& stop) {
  const at::Tensor tensor = header_tensor();
  std::ranges::copy(header, tensor.mutable_data_ptr<int64_t>());
  return connection.send(tensor, stop);
}

Result<Header> receive_header(group::PairConnection& connection, const std::stop_token& stop) {
  const at::Tensor tensor = header_tensor();
  STOKER_RETURN_IF_ERROR(connection.receive(tensor, stop));
  Header header;
  std::copy_n(tensor.const_data_ptr<int64_t>(), header.size(), header.begin());
  return header;
}

}  // namespace stoker::parameter_server
