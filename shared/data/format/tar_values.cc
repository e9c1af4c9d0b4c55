#include "shared/data/format/tar_values.h"

#include <algorithm>
#include <utility>

namespace stoker::data::format {
namespace {

// Requirements on the array of each field. `form`: that of the input.
std::vector<NpyWanted> wanted_arrays(const config::RecordConfig& record, record::InputForm form,
                                     const std::vector<TarField>& fields) {
  const std::vector<int64_t>& shape = record.input_shape;
  const size_t inputs = record.fields.input.size();
  const auto names = static_cast<int64_t>(record.fields.target.size());
  const int64_t targets = record.num_targets.value_or(std::max<int64_t>(names, 1));
  uint64_t elements = 1;
  for (const int64_t side : shape) elements *= static_cast<uint64_t>(side);
  std::vector<NpyWanted> wanted;
  for (size_t i = 0; i < fields.size(); ++i) {
    const bool is_input = i < inputs;
    wanted.push_back({.bytes = is_input && form == record::InputForm::kBytes,
                      .shape = is_input && inputs == 1 ? shape : std::vector<int64_t>(),
                      .max_elements = is_input ? elements : static_cast<uint64_t>(targets)});
  }
  return wanted;
}

}  // namespace

TarValues::TarValues(std::vector<TarField> fields, const record::SampleSpec& spec,
                     const config::RecordConfig& record, record::InputForm form)
    : fields_(std::move(fields)), arrays_(wanted_arrays(record, form, fields_)) {
  for (size_t i = 0; spec.is_sequence() && i < fields_.size(); ++i)
    values_per_step_.push_back(spec.values_per_step(i));
}

Status TarValues::read(size_t field, std::span<const std::byte> member, Buffer& buffer,
                       record::FieldValue& value) const {
  const TarField& described = fields_[field];
  if (!values_per_step_.empty() && !described.is_label && !described.is_priority)
    return buffer.sequence.read(described, values_per_step_[field], member, value);
  value = record::FieldBytes(member);
  if (described.is_npy) {
    const Status read = described.is_label ? read_npy_label(member, value)
                                           : read_npy_value(member, arrays_[field], value);
    return read.with_context(described.extensions.front());
  }
  if (!described.is_json()) return {};
  buffer.json = described.make_json();
  return buffer.json->read(record::to_string_view(member), std::span(&value, 1));
}

}  // namespace stoker::data::format
