#include "daemon/parameter_server/messages.h"

#include <algorithm>
#include <bit>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace stoker::parameter_server {
namespace {

constexpr ptrdiff_t kFirstMetric = 8;

at::Tensor header_tensor() { return at::empty({static_cast<int64_t>(Header().size())}, at::kLong); }

}  // namespace

Header make_header(int64_t first, uint64_t second, uint64_t third, const Sums& sums) {
  Header header{first,
                static_cast<int64_t>(second),
                static_cast<int64_t>(third),
                0,
                std::bit_cast<int64_t>(sums.loss),
                sums.steps,
                std::bit_cast<int64_t>(sums.norm),
                std::bit_cast<int64_t>(sums.count)};
  auto out = header.begin() + kFirstMetric;
  for (const auto* const values : {&sums.metrics, &sums.metric_counts})
    for (const double value : *values) *out++ = std::bit_cast<int64_t>(value);
  return header;
}

Sums sums_of(const Header& header) {
  Sums sums{.loss = std::bit_cast<double>(header[4]),
            .steps = header[5],
            .norm = std::bit_cast<double>(header[6]),
            .count = std::bit_cast<double>(header[7])};
  auto in = header.begin() + kFirstMetric;
  for (auto* const values : {&sums.metrics, &sums.metric_counts})
    for (double& value : *values) value = std::bit_cast<double>(*in++);
  return sums;
}

void add_step(Sums& interval, const Sums& of_step) {
  for (size_t i = 0; i < interval.metrics.size(); ++i) {
    interval.metrics[i] += of_step.metrics[i];
    interval.metric_counts[i] += of_step.metric_counts[i];
  }
  if (of_step.count == 0) return;
  interval.loss += of_step.loss;
  ++interval.steps;
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
