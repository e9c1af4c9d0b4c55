// AliasTable: samples indices [0, size) by weight in constant time (Walker's alias method).
//
// Threads: immutable after construction; uses 8 bytes per index.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stoker::data::order {

inline constexpr uint64_t kMaxWeights = uint64_t{1} << 32;

class AliasTable {
 public:
  // 1 to kMaxWeights weights, all finite and not negative, at least one above 0.
  explicit AliasTable(std::span<const double> weights);

  uint64_t size() const { return columns_.size(); }
  // `random`: 64 random bits. An index of weight 0 is never returned; the probability of each other
  // index is exact to within 2^-32 of 1 / size.
  uint64_t sample(uint64_t random) const;

 private:
  struct Column {
    uint32_t own = 0;  // threshold for 32 random bits: below it the column's own index is returned
    uint32_t alias = 0;  // the index returned otherwise
  };
  std::vector<Column> columns_;
};

}  // namespace stoker::data::order
