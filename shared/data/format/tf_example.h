// tf_example: the named features of an encoded tf.train.Example or SequenceExample.
//
// Example { Features features = 1 }, Features { map<string, Feature> feature = 1 }, Feature is one of
// BytesList (1), FloatList (2), Int64List (3), each with `repeated value = 1`, packed or not.
// SequenceExample { Features context = 1, FeatureLists feature_lists = 2 }, FeatureLists { map<string,
// FeatureList> feature_list = 1 }, FeatureList { repeated Feature feature = 1 }: a feature a step.
//
// Threads: pure functions.
// Errors:  kCorrupt (not an Example, a feature that stands there twice, more values than memory is
//          taken for); those of the source.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/files/byte_source.h"

namespace stoker::data::format {

// Where a feature's list of values lies in its Example, or a FeatureList, a list for each step. A
// feature without values is missing.
struct FeatureLocation {
  enum class List { kMissing, kBytes, kFloats, kInts, kSteps };
  List list = List::kMissing;
  uint64_t begin = 0;
  uint64_t size = 0;
};

// Finds the features of these names, without reading the values of others.
Status find_features(files::ByteSource& example, std::span<const std::string> names,
                     std::span<FeatureLocation> locations);

// Where the one value of a BytesList lies in `list`'s source.
struct ValueLocation {
  uint64_t begin = 0;
  uint64_t size = 0;
};
Result<ValueLocation> find_one_bytes(files::ByteSource& example, const FeatureLocation& location);

// The values of a list, all of whose bytes are given.
Status decode_floats(std::span<const std::byte> list, std::vector<float>& values);
Status decode_ints(std::span<const std::byte> list, std::vector<int64_t>& values);
// The numbers of a FeatureList's steps one after another, in the vector of their type, which is the
// answer; kMissing where there are none. Each step has `values_per_step` of them; 0: as many as the first.
Result<FeatureLocation::List> decode_steps(std::span<const std::byte> steps,
                                           uint64_t values_per_step, std::vector<float>& floats,
                                           std::vector<int64_t>& ints);

}  // namespace stoker::data::format
