// RecordFields: decodes the named fields of a record to values. Indexing, reading and streams use the
// same.
//
// Threads:   one at a time.
// Ownership: values refer to the record and to this object, and are valid until the next call.
// Errors:    kCorrupt with the field; the caller adds the record. Those of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shared/base/status.h"
#include "shared/data/format/framing.h"
#include "shared/data/record/field_value.h"
#include "shared/data/record/sample_spec.h"

namespace stoker::data::format {

class RecordFields {
 public:
  explicit RecordFields(const record::SampleSpec& spec);
  virtual ~RecordFields() = default;
  RecordFields(const RecordFields&) = delete;
  RecordFields& operator=(const RecordFields&) = delete;

  // Sets the first values of spec.names. `record`: the content of its frame. `maybe_known`: one that is
  // not needed, and may remain as it is.
  virtual Status read(std::span<const std::byte> record, std::span<record::FieldValue> values,
                      std::optional<size_t> maybe_known) = 0;
  // Sets what RecordIndexBuilder::add() needs of the values, and returns the size of the text, which is 0
  // unless spec.is_text(). By default reads the whole record.
  virtual Result<uint64_t> scan(Framer& framer, const Frame& frame,
                                std::span<record::FieldValue> values);

 protected:
  // Without tokenizer and vocabulary: a thread keeps its fields for longer than the dataset lives.
  const record::SampleSpec& spec() const { return spec_; }

 private:
  record::SampleSpec spec_;  // constant after construction
};

}  // namespace stoker::data::format
