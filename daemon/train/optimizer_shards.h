// cut_into_shards, shard_range: divide the parameters of a model among the ranks of a group, which then have the
// optimizer state of their shard only (distributed.shard: optimizer).
//
// The shards are consecutive and about equal in bytes. A parameter is cut only where the vector code of
// an elementwise update has a border in the complete one too, so that the update of the parts computes
// the same bytes.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace stoker::train {

struct ShardedParameter {
  int64_t elements = 0;
  int64_t element_bytes = 4;
  bool can_be_cut = true;
};

// A position in the sequence of all elements.
struct ShardCut {
  size_t parameter = 0;
  int64_t element = 0;  // 0: before the parameter
  auto operator<=>(const ShardCut&) const = default;
};

// Where the shards end: one cut for each. The last one is behind the last parameter.
std::vector<ShardCut> cut_into_shards(std::span<const ShardedParameter> parameters, int num_shards);

// Elements [begin, end) of a parameter.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const ElementRange&) const = default;
};

// What the shard has of the parameter; nullopt: nothing. A parameter without elements is in one shard, too.
std::optional<ElementRange> shard_range(std::span<const ShardedParameter> parameters,
                                        std::span<const ShardCut> cuts, size_t shard,
                                        size_t parameter);

}  // namespace stoker::train
