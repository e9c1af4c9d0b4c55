// EntityMetrics: precision, recall and F1 of the entities in tagged sequences, as seqeval counts them by
// default, which is as conlleval.pl: an entity is a type with a range of steps, and correct if both are.
//
// A tag is O, or B, I, E or S with a type, as in B-PER. An entity also begins where it has no B, and ends
// where its type changes.
//
// Threads: one per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "shared/eval_metrics/eval_metrics.h"

namespace stoker::eval_metrics {

// "O", or "B-", "I-", "E-" or "S-" and a type.
bool is_entity_tag(std::string_view name);

class EntityMetrics {
 public:
  // Of each class; is_entity_tag() of all.
  explicit EntityMetrics(const std::vector<std::string>& tags);

  // The classes of a sequence. One that has no tag counts as O.
  void add(std::span<const int64_t> labels, std::span<const int64_t> predictions);
  MetricValues metrics() const;

 private:
  struct Tag {
    char kind = 'O';
    size_t type = 0;
  };
  using Entity = std::tuple<size_t, size_t, size_t>;  // type, first step, step after the last one
  Tag tag_of(int64_t label) const;
  std::set<Entity> entities(std::span<const int64_t> sequence) const;

  std::vector<Tag> tags_;
  uint64_t labeled_ = 0, predicted_ = 0, correct_ = 0;
};

}  // namespace stoker::eval_metrics
