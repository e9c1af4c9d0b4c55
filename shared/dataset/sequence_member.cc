#include "shared/dataset/sequence_member.h"

#include <vector>

namespace stoker::dataset {

Status SequenceMember::read(const TarField& field, uint64_t values_per_step,
                            std::span<const std::byte> member, FieldValue& value) {
  value = FieldBytes(member);
  Status read;
  if (field.is_npy) read = array_.read_steps(member, values_per_step, value);
  if (field.is_json()) {
    json_ = std::make_unique<JsonValues>(std::vector{field.json_key}, values_per_step);
    read = json_->read(to_string_view(member), std::span(&value, 1));
  }
  return read.ok() ? read : read.with_context(field.extensions.front());
}

}  // namespace stoker::dataset
