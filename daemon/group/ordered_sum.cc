#include "daemon/group/ordered_sum.h"

#include <cstddef>

namespace stoker::group {
namespace {

// Sum of parts[begin] … parts[end - 1], in parts[begin].
const at::Tensor& sum_tree(const std::vector<at::Tensor>& parts, size_t begin, size_t end) {
  const at::Tensor& left = parts[begin];
  if (end - begin == 1) return left;
  const size_t middle = begin + (end - begin) / 2;
  (void)sum_tree(parts, begin, middle);
  left.add_(sum_tree(parts, middle, end));
  return left;
}

}  // namespace

const at::Tensor& sum_ordered(const std::vector<at::Tensor>& parts) {
  return sum_tree(parts, 0, parts.size());
}

at::Tensor part_of_rank(const at::Tensor& flat, const std::vector<int64_t>& ends, int of_rank) {
  const auto at = static_cast<size_t>(of_rank);
  const int64_t begin = at == 0 ? 0 : ends[at - 1];
  return flat.narrow(0, begin, ends[at] - begin);
}

}  // namespace stoker::group
