// tf_example: finds and decodes named features of a serialized tf.train.Example or SequenceExample.
//
// Example { Features features = 1 }, Features { map<string, Feature> feature = 1 }, Feature is one
// of BytesList (1), FloatList (2), Int64List (3), each with `repeated value = 1`, packed or not.
// SequenceExample { Features context = 1, FeatureLists feature_lists = 2 }, FeatureLists {
// map<string, FeatureList> feature_list = 1 }, FeatureList { repeated Feature feature = 1 }: one
// Feature per time step.
//
// Threads: pure functions.
// Errors:  kCorrupt (not an Example, a duplicate feature, a list over the size limit); those of the
//          source.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/files/byte_source.h"

namespace stoker::data::format {

// Location of a feature's list of values in its Example, or of a FeatureList, which has one list
// per time step. A feature without values is missing, and is_empty.
struct FeatureLocation {
  enum class List { kMissing, kBytes, kFloats, kInts, kSteps };
  List list = List::kMissing;
  uint64_t begin = 0;
  uint64_t size = 0;
  bool is_empty = false;
};

// Locates the features with these names. Values of other features are not read.
Status find_features(files::ByteSource& example, std::span<const std::string> names,
                     std::span<FeatureLocation> locations);

// Location of the single value of a BytesList in the source.
struct ValueLocation {
  uint64_t begin = 0;
  uint64_t size = 0;
};
Result<ValueLocation> find_one_bytes(files::ByteSource& example, const FeatureLocation& location);

// The texts of a BytesList, one per line; of a FeatureList of them, the words of one text, separated
// by spaces, without the <S> and </S> that im2txt adds.
Status decode_texts(std::span<const std::byte> values, FeatureLocation::List list,
                    std::string& texts);

// Decode the values of a list. `list`: all of its bytes.
Status decode_floats(std::span<const std::byte> list, std::vector<float>& values);
Status decode_ints(std::span<const std::byte> list, std::vector<int64_t>& values);
// Decodes the time steps of a FeatureList into one contiguous vector. Returns the type of the
// values, which selects the vector; kMissing if there are none. Each step must have
// `values_per_step` values; 0: as many as the first step.
Result<FeatureLocation::List> decode_steps(std::span<const std::byte> steps,
                                           uint64_t values_per_step, std::vector<float>& floats,
                                           std::vector<int64_t>& ints);

}  // namespace stoker::data::format
