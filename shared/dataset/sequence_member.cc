#include "shared/dataset/sequence_member.h"

#include <vector>

namespace stoker::dataset {

Status SequenceMember::read(const TarField& field, uint64_t a_place,
                            std::span<const std::byte> member, FieldValue& value) {
  value = FieldBytes(member);
  Status read;
  if (field.is_npy) read = array_.read_places(member, a_place, value);
  if (field.is_json()) {
    json_ = std::make_unique<JsonValues>(std::vector{field.json_key}, a_place);
    read = json_->read(text_of(member), std::span(&value, 1));
  }
  return read.ok() ? read : read.with_context(field.extensions.front());
}

}  // namespace stoker::dataset
