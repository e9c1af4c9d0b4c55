#include "shared/data/format/tar_values.h"

#include <algorithm>
#include <optional>
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

namespace {

class TarFields final : public RecordFields {
 public:
  TarFields(const record::SampleSpec& spec, TarValues values)
      : RecordFields(spec),
        values_(std::move(values)),
        members_(values_.fields()),
        buffers_(values_.fields().size()) {}

  Status read(std::span<const std::byte> record, std::span<record::FieldValue> values,
              std::optional<size_t> /*maybe_known*/) override {
    STOKER_RETURN_IF_ERROR(find_members(record));
    for (size_t field = 0; field < values.size(); ++field) {
      const auto& found = members_.of(field);
      values[field] = record::FieldValue();
      if (!found) continue;
      if (found->is_link) return link_in_tar(values_.fields()[field].extensions[found->rank]);
      const auto member = record.subspan(found->content, found->size);
      STOKER_RETURN_IF_ERROR(values_.read(field, member, buffers_[field], values[field]));
    }
    return {};
  }

 private:
  Status find_members(std::span<const std::byte> record) {
    members_.clear();
    files::MemorySource bytes(record);
    TarReader tar(bytes);
    for (TarMember member;;) {
      STOKER_ASSIGN_OR_RETURN(const bool more, tar.next(member));
      if (!more) return {};
      if (!member.is_file && !member.is_link) continue;
      const auto name = split_tar_name(member.name);
      if (name) STOKER_RETURN_IF_ERROR(members_.add(member, name->extension));
    }
  }

  const TarValues values_;
  TarMembers members_;
  std::vector<TarValues::Buffer> buffers_;  // one per field
};

}  // namespace

Result<std::unique_ptr<RecordFields>> make_tar_fields(const DatasetRequest& request,
                                                      const record::SampleSpec& spec) {
  STOKER_ASSIGN_OR_RETURN(auto fields, tar_fields(request, spec));
  const auto form = spec.image ? record::InputForm::kImage : record::InputForm::kNumbers;
  return std::unique_ptr<RecordFields>(std::make_unique<TarFields>(
      spec, TarValues(std::move(fields), spec, *request.config.record(), form)));
}

}  // namespace stoker::data::format
