#include "shared/data/format/npy_value.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

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

void deinterleave(std::span<const std::byte> pixels, size_t channels, std::span<std::byte> planes) {
  const size_t count = pixels.size() / channels;
  for (size_t channel = 0; channel < channels; ++channel)
    for (size_t pixel = 0; pixel < count; ++pixel)
      planes[channel * count + pixel] = pixels[pixel * channels + channel];
}

namespace {

struct Half {
  uint16_t bits;
};

template <typename Number>
float as_float(Number number) {
  if constexpr (std::is_same_v<Number, Half>) {
    return half_to_float(number.bits);
  } else if constexpr (std::is_same_v<Number, double>) {
    constexpr double kMaxCount = std::numeric_limits<float>::max();
    // Beyond it a conversion is not defined; halfway to the next power it would still round down.
    constexpr double kRoundsDown = kMaxCount + 0x1p102;
    if (number > kMaxCount)
      return number < kRoundsDown ? std::numeric_limits<float>::max()
                                  : std::numeric_limits<float>::infinity();
    if (number < -kMaxCount)
      return number > -kRoundsDown ? -std::numeric_limits<float>::max()
                                   : -std::numeric_limits<float>::infinity();
    return static_cast<float>(number);
  } else {
    return static_cast<float>(number);
  }
}

template <typename Number>
void convert(std::span<const std::byte> from, std::span<std::byte> to) {
  const size_t count = to.size() / sizeof(float);
  for (size_t i = 0; i < count; ++i) {
    Number number;
    std::memcpy(&number, from.data() + i * sizeof(Number), sizeof(Number));
    const float value = as_float(number);
    std::memcpy(to.data() + i * sizeof(float), &value, sizeof value);
  }
}

template <typename Number>
int64_t label_of(std::span<const std::byte> from) {
  Number number;
  std::memcpy(&number, from.data(), sizeof number);
  constexpr auto kMaxCount = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (number > Number{0} && static_cast<uint64_t>(number) > kMaxCount) return -1;
  return static_cast<int64_t>(number);
}

// Calls `with` with a value of the type.
template <typename With>
auto with_type(const NpyType& type, const With& with) {
  const bool is_signed = type.kind == 'i';
  switch (type.bytes) {
    case 1:
      return is_signed ? with(int8_t{}) : with(uint8_t{});
    case 2:
      return is_signed ? with(int16_t{}) : with(uint16_t{});
    case 4:
      return is_signed ? with(int32_t{}) : with(uint32_t{});
    default:
      return is_signed ? with(int64_t{}) : with(uint64_t{});
  }
}

}  // namespace

void npy_to_floats(const NpyType& type, std::span<const std::byte> from, std::span<std::byte> to) {
  assert(from.size() / type.bytes == to.size() / sizeof(float));
  if (type == NpyType{'f', 2}) return convert<Half>(from, to);
  if (type == NpyType{'f', 4}) return convert<float>(from, to);
  if (type == NpyType{'f', 8}) return convert<double>(from, to);
  with_type(type, [&](auto number) { convert<decltype(number)>(from, to); });
}

int64_t npy_to_class(const NpyType& type, std::span<const std::byte> from) {
  return std::max<int64_t>(npy_to_label(type, from), -1);
}

int64_t npy_to_label(const NpyType& type, std::span<const std::byte> from) {
  assert(type.is_integer() && from.size() >= type.bytes);
  return with_type(type, [&](auto number) { return label_of<decltype(number)>(from); });
}

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
                      record::FieldValue& value) {
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
    value = record::FieldFloats(numbers_);
    return {};
  }
  if (!form.is_image)
    return pickle_error("is an array of " + std::string(to_string(header.type)) + " " +
                        to_text(form.shape) + ", but those before are images of uint8");
  if (form.is_interleaved) {
    planes_.resize(data.size());
    deinterleave(data, static_cast<size_t>(form.shape[0]), planes_);
  }
  value = form.is_interleaved ? record::FieldBytes(planes_) : record::FieldBytes(data);
  return {};
}

Status NpyValue::read_steps(std::span<const std::byte> array, uint64_t values_per_step,
                            record::FieldValue& value) {
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
    value = record::FieldInts(whole_);
  } else {
    numbers_.resize(count);
    npy_to_floats(header.type, data, std::as_writable_bytes(std::span(numbers_)));
    value = record::FieldFloats(numbers_);
  }
  return {};
}

Status NpyValue::read_label(std::span<const std::byte> array, record::FieldValue& value) {
  STOKER_ASSIGN_OR_RETURN(const NpyHeader header, parse_npy_value_header(array, array.size()));
  const auto data = array.subspan(header.data_offset);
  if (!header.type.is_integer() || data.size() != header.type.bytes)
    return pickle_error("is no single whole number but an array of " +
                        std::string(to_string(header.type)));
  label_ = npy_to_class(header.type, data);
  value = record::FieldInts(&label_, 1);
  return {};
}

}  // namespace stoker::data::format
