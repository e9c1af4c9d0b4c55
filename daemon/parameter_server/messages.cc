#include "daemon/parameter_server/messages.h"

#include <algorithm>
#include <bit>
#include <cstring>

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
          std::bit_cast<int64_t>(sums.norm),
          std::bit_cast<int64_t>(sums.count)};
}

Sums sums_of(const Header& header) {
  return {.loss = std::bit_cast<double>(header[3]),
          .metric = std::bit_cast<double>(header[4]),
          .metric_count = std::bit_cast<double>(header[5]),
          .steps = header[6],
          .norm = std::bit_cast<double>(header[7]),
          .count = std::bit_cast<double>(header[8])};
}

void add_step(Sums& interval, const Sums& of_step) {
  if (of_step.count == 0) return;
  interval.loss += of_step.loss;
  interval.metric += of_step.metric;
  interval.metric_count += of_step.metric_count;
  ++interval.steps;
}

int64_t push_bytes(int64_t gradients, size_t num_servers) {
  return gradients + static_cast<int64_t>(num_servers * sizeof(uint64_t));
}

void put_read_steps(const std::vector<uint64_t>& steps, const at::Tensor& payload) {
  const size_t size = steps.size() * sizeof(uint64_t);
  auto* const end = static_cast<std::byte*>(payload.mutable_data_ptr()) + payload.nbytes();
  std::memcpy(end - size, steps.data(), size);
}

std::vector<uint64_t> read_steps_of(const at::Tensor& payload, size_t num_servers) {
  std::vector<uint64_t> steps(num_servers);
  const size_t size = num_servers * sizeof(uint64_t);
  const auto* const end =
      static_cast<const std::byte*>(payload.const_data_ptr()) + payload.nbytes();
  std::memcpy(steps.data(), end - size, size);
  return steps;
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
