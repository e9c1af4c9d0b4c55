// TarValues: decodes the members of a sample in a tar file to the values of its fields.
//
// Threads:   immutable; any, each with its own buffers.
// Ownership: a value refers to the bytes of the member and to the buffer, and is valid until the next
//            read() into the buffer.
// Errors:    kCorrupt with the extension of the member; the caller adds the sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset_request.h"
#include "shared/data/format/json_values.h"
#include "shared/data/format/npy_value.h"
#include "shared/data/format/record_fields.h"
#include "shared/data/format/tar_index.h"
#include "shared/data/record/field_value.h"
#include "shared/data/record/sample_spec.h"

namespace stoker::data::format {

class TarValues {
 public:
  // For one field.
  struct Buffer {
    std::unique_ptr<JsonValues> json;
    SequenceMember sequence;
  };

  // `form`: that of the input.
  TarValues(std::vector<TarField> fields, const record::SampleSpec& spec,
            const config::RecordConfig& record, record::InputForm form);

  const std::vector<TarField>& fields() const { return fields_; }
  Status read(size_t field, std::span<const std::byte> member, Buffer& buffer,
              record::FieldValue& value) const;

 private:
  // Constant after construction.
  const std::vector<TarField> fields_;
  const std::vector<NpyWanted> arrays_;    // one per field
  std::vector<uint64_t> values_per_step_;  // one per field of sequences; else empty
};

// The fields of samples that are tar files of their own, as a stream has them.
Result<std::unique_ptr<RecordFields>> make_tar_fields(const DatasetRequest& request,
                                                      const record::SampleSpec& spec);

}  // namespace stoker::data::format
