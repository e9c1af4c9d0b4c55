// SampleAssembler: turns the values of a record into the tensors of a sample, as its SampleSpec says:
// images are decoded, numbers converted, sequences padded.
//
// Threads: immutable after construction; any.
// Errors:  kCorrupt, kOutOfMemory, naming the field; the caller adds which record. The outputs are then
//          unspecified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/record/field_value.h"
#include "shared/data/record/sample_spec.h"

namespace stoker::data::record {

// A record as it is read.
struct RecordValues {
  // One for each of the spec's values; missing until they are read.
  std::span<FieldValue> fields;
  // What is known before: of a sequence the length when it was indexed, of a labeled record the class.
  // Of records that hold their labels, the reader checks and sets the class.
  uint64_t length = 0;
  uint64_t label = 0;
  // The sample's tensors. A reader whose file has the bytes of a tensor reads them into it, and the value
  // points there: nothing is copied.
  std::span<std::byte> input_tensor = {};
  std::span<std::byte> target_tensor = {};
};

class SampleAssembler {
 public:
  explicit SampleAssembler(SampleSpec spec) : spec_(std::move(spec)) {}

  const SampleSpec& spec() const { return spec_; }

  // The outputs are those of spec().tensors(), of a length that is not below that of the record, or the
  // longest. Not of a stream of texts.
  Status assemble(const RecordValues& record, const RandomKey& random_key,
                  std::span<const std::span<std::byte>> outputs) const;
  // What assemble() draws at random, for Dataset::describe_transforms().
  std::string describe_transforms(std::span<const FieldValue> values,
                                  const RandomKey& random_key) const;

  // When records are indexed: the form of an input whose first record has this value, and the length of
  // a sequence. kCorrupt where the settings do not allow it.
  Result<InputForm> input_form(const FieldValue& input) const;
  struct Measure {
    uint64_t length = 0;   // of all of it
    uint64_t labels = 0;   // how many
    uint64_t classes = 0;  // one more than the largest of them
  };
  Result<Measure> measure(std::span<const FieldValue> values) const;

 private:
  Status write_input(std::span<const FieldValue> values, const RandomKey& random_key,
                     std::span<std::byte> out) const;
  Status write_bytes(std::span<const FieldValue> values, std::span<std::byte> out) const;
  // `first`: the place of values[0] in the record.
  Status write_numbers(std::span<const FieldValue> values, size_t first,
                       std::span<std::byte> out) const;
  Result<uint64_t> num_steps(const FieldValue& value) const;
  Status write_sequence(const RecordValues& record, uint64_t& kept,
                        std::span<const std::span<std::byte>> outputs) const;
  Status write_steps(const FieldValue& value, uint64_t kept, std::span<std::byte> out) const;
  Status write_labels(const FieldValue& value, uint64_t steps, std::span<std::byte> out) const;

  const SampleSpec spec_;
};

}  // namespace stoker::data::record
