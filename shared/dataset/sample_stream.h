// SampleStream: the endless sequence of one set's samples.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "shared/dataset/alias_table.h"
#include "shared/dataset/epoch_order.h"

namespace stoker::dataset {

class SampleStream {
 public:
  struct Item {
    uint64_t sample = 0;
    uint64_t dataset_epoch = 0;  // tells the uses of a sample apart
  };

  virtual ~SampleStream() = default;
  // attempt 0: the sample at the position. Else its attempt-th stand-in.
  virtual Item at(uint64_t position, uint64_t attempt) const = 0;
  // The samples at the positions from `position` on.
  virtual void at(uint64_t position, std::span<Item> items) const = 0;
};

// Every sample once a pass; a stand-in is the next of the same pass.
class EpochStream final : public SampleStream {
 public:
  explicit EpochStream(const OrderOptions& options) : order_(options) {}
  Item at(uint64_t position, uint64_t attempt) const override;
  void at(uint64_t position, std::span<Item> items) const override;

 private:
  const EpochOrder order_;
};

// Each position a draw by weight, with replacement; a stand-in is another draw.
class WeightedStream final : public SampleStream {
 public:
  WeightedStream(std::span<const double> weights, uint64_t seed) : table_(weights), seed_(seed) {}
  Item at(uint64_t position, uint64_t attempt) const override;
  void at(uint64_t position, std::span<Item> items) const override;

 private:
  const AliasTable table_;
  const uint64_t seed_;
};

}  // namespace stoker::dataset
