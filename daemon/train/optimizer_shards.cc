#include "daemon/train/optimizer_shards.h"

#include <algorithm>

namespace stoker::train {
namespace {

// A multiple of two vectors of any instruction set, the step of LibTorch's vector loops.
constexpr int64_t kCutBytes = 256;

}  // namespace

std::vector<ShardCut> cut_into_shards(std::span<const ShardedParameter> parameters,
                                      int num_shards) {
  int64_t total = 0;
  for (const ShardedParameter& each : parameters) total += each.elements * each.element_bytes;
  std::vector<ShardCut> cuts;
  size_t parameter = 0;
  int64_t begin = 0;  // bytes before `parameter`
  for (int shard = 1; shard < num_shards; ++shard) {
    const int64_t target = total / num_shards * shard + total % num_shards * shard / num_shards;
    const auto bytes_of = [&](size_t at) {
      return parameters[at].elements * parameters[at].element_bytes;
    };
    while (parameter < parameters.size() && begin + bytes_of(parameter) <= target)
      begin += bytes_of(parameter++);
    ShardCut cut{.parameter = parameter};
    if (parameter < parameters.size() && target > begin) {
      if (parameters[parameter].can_be_cut)
        cut.element =
            (target - begin) / kCutBytes * kCutBytes / parameters[parameter].element_bytes;
      else if (2 * (target - begin) > bytes_of(parameter))
        ++cut.parameter;  // its end is nearer
    }
    cuts.push_back(cuts.empty() ? cut : std::max(cuts.back(), cut));
  }
  cuts.push_back({.parameter = parameters.size()});
  return cuts;
}

std::optional<ElementRange> shard_range(std::span<const ShardedParameter> parameters,
                                        std::span<const ShardCut> cuts, size_t shard,
                                        size_t parameter) {
  const ShardCut first = shard == 0 ? ShardCut{} : cuts[shard - 1];
  const ShardCut last = cuts[shard];
  const int64_t elements = parameters[parameter].elements;
  const ElementRange range{.begin = parameter == first.parameter ? first.element : 0,
                           .end = parameter == last.parameter ? last.element : elements};
  const bool is_in_shard =
      elements == 0
          ? ShardCut{parameter} >= first && ShardCut{parameter} < last
          : parameter >= first.parameter && parameter <= last.parameter && range.begin < range.end;
  return is_in_shard ? std::optional(range) : std::nullopt;
}

}  // namespace stoker::train
