// AliasTable: draws of numbers [0, size) by weight, each at the same cost (Walker's alias method).
//
// Threads: immutable after construction; 8 bytes a number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stoker::data::order {

inline constexpr uint64_t kMaxWeights = uint64_t{1} << 32;

class AliasTable {
 public:
  // At least one weight and at most kMaxWeights; none negative, all finite, one above 0.
  explicit AliasTable(std::span<const double> weights);

  uint64_t size() const { return columns_.size(); }
  // `random`: 64 random bits. A weight of 0 is never drawn; others as often as they say to within
  // 2^-32 of a column's share.
  uint64_t sample(uint64_t random) const;

 private:
  struct Column {
    uint32_t own = 0;    // its own number is drawn when 32 random bits are below; all of it: alias
    uint32_t alias = 0;  // the number that is drawn otherwise
  };
  std::vector<Column> columns_;
};

}  // namespace stoker::data::order
