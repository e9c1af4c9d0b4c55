// SequenceMember: the value of one field of a sequence, out of the member of a tar file that holds it.
//
// Threads: one at a time. The value points into the member's bytes and into this object's memory,
//          until the next call.
// Errors:  kCorrupt, naming the member's extension; the caller adds which sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "shared/base/status.h"
#include "shared/dataset/field_value.h"
#include "shared/dataset/json_values.h"
#include "shared/dataset/npy_value.h"
#include "shared/dataset/tar_fields.h"

namespace stoker::dataset {

class SequenceMember {
 public:
  // `values_per_step`: how many numbers a place of the field has.
  Status read(const TarField& field, uint64_t values_per_step, std::span<const std::byte> member,
              FieldValue& value);

 private:
  std::unique_ptr<JsonValues> json_;
  NpyValue array_;
};

}  // namespace stoker::dataset
