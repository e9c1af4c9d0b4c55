#include "shared/data/format/npy_value.h"

#include <string>

namespace stoker::data::format {
namespace {

bool is_channels(uint64_t side) { return side == 1 || side == 3; }

}  // namespace

NpyTensorForm npy_tensor_form(const NpyType& type, std::span<const uint64_t> shape) {
  const auto side = [&](size_t i) { return static_cast<int64_t>(shape[i]); };
  NpyTensorForm form{.shape = {shape.begin(), shape.end()}};
  if (form.shape.empty()) form.shape = {1};
  const bool is_byte = type == NpyType{'u', 1};
  form.is_image = is_byte && (shape.size() == 2 || shape.size() == 3);
  if (!form.is_image) return form;
  if (shape.size() == 2) {
    form.shape = {1, side(0), side(1)};
  } else if (!is_channels(shape[0]) && is_channels(shape[2])) {
    form.is_interleaved = shape[2] > 1;
    form.shape = {side(2), side(0), side(1)};
  }
  return form;
}

namespace {

Status array_error(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

std::string to_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ']';
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t side : shape) elements *= side;
  return elements;
}

Status check_shape(const std::vector<int64_t>& shape, const std::vector<int64_t>& wanted) {
  const bool is_flat = wanted.size() == 1 && wanted[0] == elements_of(shape);
  if (wanted.empty() || is_flat || shape == wanted) return {};
  return array_error("is an array of " + to_text(shape) + ", but its shape is to be " +
                     to_text(wanted));
}

}  // namespace

Result<bool> npy_is_bytes(std::span<const std::byte> head, uint64_t array_bytes) {
  STOKER_ASSIGN_OR_RETURN(const NpyHeader header, parse_npy_value_header(head, array_bytes));
  return npy_tensor_form(header.type, header.shape).is_image;
}

Status read_npy_value(std::span<const std::byte> array, const NpyWanted& wanted,
                      record::FieldValue& value) {
  STOKER_ASSIGN_OR_RETURN(const NpyHeader header, parse_npy_value_header(array, array.size()));
  const NpyTensorForm form = npy_tensor_form(header.type, header.shape);
  record::FieldArray numbers{.bytes = array.subspan(header.data_offset), .type = header.type};
  // Channels are moved to the front only in datasets of images.
  const bool is_not_moved = form.is_interleaved && !wanted.bytes;
  STOKER_RETURN_IF_ERROR(check_shape(
      is_not_moved ? std::vector<int64_t>(header.shape.begin(), header.shape.end()) : form.shape,
      wanted.shape));
  if (numbers.size() > wanted.max_elements)
    return array_error("has " + std::to_string(numbers.size()) +
                       " numbers, more than the required " + std::to_string(wanted.max_elements));
  if (wanted.bytes && !form.is_image)
    return array_error("is an array of " + std::string(to_string(header.type)) + " " +
                       to_text(form.shape) + ", but those before are images of uint8");
  if (wanted.bytes && form.is_interleaved)
    numbers.interleaved_channels = static_cast<uint64_t>(form.shape[0]);
  value = numbers;
  return {};
}

Status read_npy_steps(std::span<const std::byte> array, uint64_t values_per_step,
                      record::FieldValue& value) {
  STOKER_ASSIGN_OR_RETURN(const NpyHeader header, parse_npy_value_header(array, array.size()));
  if (header.shape.size() > 1 && header.row_elements() != values_per_step)
    return array_error("is an array of " + to_text({header.shape.begin(), header.shape.end()}) +
                       ", whose rows have " + std::to_string(header.row_elements()) +
                       " numbers, but " + std::to_string(values_per_step) +
                       " are needed for each time step");
  value = record::FieldArray{.bytes = array.subspan(header.data_offset), .type = header.type};
  return {};
}

Status read_npy_label(std::span<const std::byte> array, record::FieldValue& value) {
  STOKER_ASSIGN_OR_RETURN(const NpyHeader header, parse_npy_value_header(array, array.size()));
  const record::FieldArray label{.bytes = array.subspan(header.data_offset), .type = header.type};
  if (!header.type.is_integer() || label.size() != 1)
    return array_error("must be one integer, got " + record::describe(label));
  value = label;
  return {};
}

}  // namespace stoker::data::format
