#include "shared/dataset/example_values.h"

namespace stoker::dataset {
namespace {

using List = FeatureLocation::List;

// How many numbers a step has; 0: any.
uint64_t find_values_per_step(const RecordFields& fields, size_t name) {
  const SequenceLayout* const sequence = fields.sequence_layout();
  return sequence == nullptr ? 0 : sequence->values_per_step(name);
}

}  // namespace

Status ExampleValues::find(std::span<const std::byte> example, const RecordFields& fields) {
  const size_t names = fields.names().size();
  example_ = example;
  locations_.resize(names);
  ints_.resize(names);
  floats_.resize(names);
  MemorySource source(example_);
  return find_features(source, fields.names(), locations_);
}

Result<FieldValue> ExampleValues::value(const RecordFields& fields, size_t name) {
  auto value = decode(fields, name);
  if (value) return value;
  return value.status().with_context("feature '" + fields.names()[name] + "'");
}

Result<FieldValue> ExampleValues::decode(const RecordFields& fields, size_t name) {
  const FeatureLocation& location = locations_[name];
  const auto list = example_.subspan(location.begin, location.size);
  List type = location.list;
  if (type == List::kFloats) STOKER_RETURN_IF_ERROR(decode_floats(list, floats_[name]));
  if (type == List::kInts) STOKER_RETURN_IF_ERROR(decode_ints(list, ints_[name]));
  if (type == List::kSteps) {
    STOKER_ASSIGN_OR_RETURN(
        type, decode_steps(list, find_values_per_step(fields, name), floats_[name], ints_[name]));
  }
  if (type == List::kFloats) return FieldValue(FieldFloats(floats_[name]));
  if (type == List::kInts) return FieldValue(FieldInts(ints_[name]));
  if (type == List::kMissing) return FieldValue();
  MemorySource source(example_);
  STOKER_ASSIGN_OR_RETURN(const ValueLocation one, find_one_bytes(source, location));
  return FieldValue(FieldBytes(example_.subspan(one.begin, one.size)));
}

}  // namespace stoker::dataset
