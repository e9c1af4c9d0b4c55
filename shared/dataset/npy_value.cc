#include "shared/dataset/npy_value.h"

#include <string>

#include "shared/dataset/npy_numbers.h"

namespace stoker::dataset {
namespace {

Status pickle_error(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

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

Status check_shape(const NpyTensorForm& form, const std::vector<int64_t>& wanted) {
  const bool is_flat = wanted.size() == 1 && wanted[0] == elements_of(form.shape);
  if (wanted.empty() || is_flat || form.shape == wanted) return {};
  return pickle_error("is an array of " + to_text(form.shape) + ", but its shape is to be " +
                      to_text(wanted));
}

}  // namespace

Result<bool> npy_is_bytes(std::span<const std::byte> head, uint64_t array_bytes) {
  STOKER_ASSIGN_OR_RETURN(const NpyHeader header, parse_npy_value_header(head, array_bytes));
  return npy_tensor_form(header.type, header.shape).is_image;
}

Status NpyValue::read(std::span<const std::byte> array, const NpyWanted& wanted,
                      FieldValue& value) {
  STOKER_ASSIGN_OR_RETURN(const NpyHeader header, parse_npy_value_header(array, array.size()));
  const NpyTensorForm form = npy_tensor_form(header.type, header.shape);
  const auto data = array.subspan(header.data_offset);
  STOKER_RETURN_IF_ERROR(check_shape(form, wanted.shape));
  if (const uint64_t count = data.size() / header.type.bytes; count > wanted.max_elements)
    return pickle_error("has " + std::to_string(count) + " numbers, more than the " +
                        std::to_string(wanted.max_elements) + " that are needed");
  if (!wanted.bytes) {
    numbers_.resize(data.size() / header.type.bytes);
    npy_to_floats(header.type, data, std::as_writable_bytes(std::span(numbers_)));
    value = FieldFloats(numbers_);
    return {};
  }
  if (!form.is_image)
    return pickle_error("is an array of " + std::string(to_string(header.type)) + " " +
                        to_text(form.shape) + ", but those before are images of uint8");
  if (form.is_interleaved) {
    planes_.resize(data.size());
    deinterleave(data, static_cast<size_t>(form.shape[0]), planes_);
  }
  value = form.is_interleaved ? FieldBytes(planes_) : FieldBytes(data);
  return {};
}

Status NpyValue::read_steps(std::span<const std::byte> array, uint64_t values_per_step,
                            FieldValue& value) {
  STOKER_ASSIGN_OR_RETURN(const NpyHeader header, parse_npy_value_header(array, array.size()));
  if (header.shape.size() > 1 && header.row_elements() != values_per_step)
    return pickle_error("is an array of " + to_text({header.shape.begin(), header.shape.end()}) +
                        ", whose rows have " + std::to_string(header.row_elements()) +
                        " numbers, but " + std::to_string(values_per_step) +
                        " are needed for each place");
  const auto data = array.subspan(header.data_offset);
  const size_t count = data.size() / header.type.bytes;
  if (header.type.is_integer()) {
    whole_.resize(count);
    for (size_t i = 0; i < count; ++i)
      whole_[i] = npy_to_label(header.type, data.subspan(i * header.type.bytes));
    value = FieldInts(whole_);
  } else {
    numbers_.resize(count);
    npy_to_floats(header.type, data, std::as_writable_bytes(std::span(numbers_)));
    value = FieldFloats(numbers_);
  }
  return {};
}

Status NpyValue::read_label(std::span<const std::byte> array, FieldValue& value) {
  STOKER_ASSIGN_OR_RETURN(const NpyHeader header, parse_npy_value_header(array, array.size()));
  const auto data = array.subspan(header.data_offset);
  if (!header.type.is_integer() || data.size() != header.type.bytes)
    return pickle_error("is no single whole number but an array of " +
                        std::string(to_string(header.type)));
  label_ = npy_to_class(header.type, data);
  value = FieldInts(&label_, 1);
  return {};
}

}  // namespace stoker::dataset
