#include "shared/dataset/example_values.h"

namespace stoker::dataset {
namespace {

using List = FeaturePlace::List;

// How many numbers a step has; 0: any.
uint64_t numbers_a_step(const RecordFields& fields, size_t name) {
  const SequenceForm* const sequence = fields.maybe_sequence();
  return sequence == nullptr ? 0 : sequence->numbers_a_place(name);
}

}  // namespace

Status ExampleValues::find(std::span<const std::byte> example, const RecordFields& fields) {
  const size_t names = fields.names().size();
  example_ = example;
  places_.resize(names);
  ints_.resize(names);
  floats_.resize(names);
  MemorySource source(example_);
  return find_features(source, fields.names(), places_);
}

Result<FieldValue> ExampleValues::value(const RecordFields& fields, size_t name) {
  auto value = decode(fields, name);
  if (value) return value;
  return value.status().with_context("feature '" + fields.names()[name] + "'");
}

Result<FieldValue> ExampleValues::decode(const RecordFields& fields, size_t name) {
  const FeaturePlace& place = places_[name];
  const auto list = example_.subspan(place.begin, place.size);
  List type = place.list;
  if (type == List::kFloats) STOKER_RETURN_IF_ERROR(decode_floats(list, floats_[name]));
  if (type == List::kInts) STOKER_RETURN_IF_ERROR(decode_ints(list, ints_[name]));
  if (type == List::kSteps) {
    STOKER_ASSIGN_OR_RETURN(
        type, decode_steps(list, numbers_a_step(fields, name), floats_[name], ints_[name]));
  }
  if (type == List::kFloats) return FieldValue(FieldFloats(floats_[name]));
  if (type == List::kInts) return FieldValue(FieldInts(ints_[name]));
  if (type == List::kMissing) return FieldValue();
  MemorySource source(example_);
  STOKER_ASSIGN_OR_RETURN(const ValuePlace one, find_one_bytes(source, place));
  return FieldValue(FieldBytes(example_.subspan(one.begin, one.size)));
}

}  // namespace stoker::dataset
