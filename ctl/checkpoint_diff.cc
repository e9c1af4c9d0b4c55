#include "ctl/checkpoint_diff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <boost/json.hpp>

#include "ctl/run_locator.h"
#include "ctl/text_format.h"
#include "shared/base/readable_format.h"
#include "shared/base/tensor_spec.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/checkpoint/store.h"

namespace stoker::ctl {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

template <typename T, typename Convert>
std::vector<double> convert(std::span<const std::byte> bytes, Convert&& convert_one) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value{};
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = convert_one(value);
  }
  return values;
}

template <typename T>
std::vector<double> convert(std::span<const std::byte> bytes) {
  return convert<T>(bytes, [](T value) { return static_cast<double>(value); });
}

}  // namespace

std::vector<double> to_doubles(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kU8:
    case DType::kBool:
      return convert<uint8_t>(bytes);
    case DType::kI8:
      return convert<int8_t>(bytes);
    case DType::kU16:
      return convert<uint16_t>(bytes);
    case DType::kI16:
      return convert<int16_t>(bytes);
    case DType::kI32:
      return convert<int32_t>(bytes);
    case DType::kI64:
      return convert<int64_t>(bytes);
    case DType::kF16:
      return convert<uint16_t>(bytes, half_to_float);
    case DType::kBF16:
      return convert<uint16_t>(bytes, bfloat16_to_float);
    case DType::kF32:
      return convert<float>(bytes);
    case DType::kF64:
      return convert<double>(bytes);
  }
  return {};
}

namespace {

using checkpoint::SafetensorsFile;

Result<std::unique_ptr<SafetensorsFile>> open_model(const std::string& checkpoint_path) {
  STOKER_ASSIGN_OR_RETURN(const auto verified,
                          checkpoint::CheckpointStore::open_verified(checkpoint_path));
  return verified.open_tensors("model.safetensors");
}

Result<std::vector<double>> read_values(const SafetensorsFile& file, const TensorSpec& spec) {
  std::vector<std::byte> bytes(spec.bytes());
  STOKER_RETURN_IF_ERROR(file.read(spec.name, bytes));
  return to_doubles(spec.dtype, bytes);
}

TensorDiff compare(const TensorSpec& spec, const std::vector<double>& before,
                   const std::vector<double>& after) {
  TensorDiff diff{.spec = spec};
  double squares = 0;
  double change_squares = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (!std::isfinite(before[i]) || !std::isfinite(after[i])) {
      ++diff.num_nonfinite;
      continue;
    }
    const double change = std::abs(after[i] - before[i]);
    if (change != 0) ++diff.num_changed;
    squares += before[i] * before[i];
    change_squares += change * change;
    diff.largest_change = std::max(diff.largest_change, change);
  }
  const auto finite = static_cast<double>(before.size() - diff.num_nonfinite);
  if (finite > 0) {
    diff.rms_before = std::sqrt(squares / finite);
    diff.rms_change = std::sqrt(change_squares / finite);
  }
  return diff;
}

// Tensors of `file` that `other` lacks or has with another shape or type.
std::vector<std::string> unmatched_tensors(const SafetensorsFile& file,
                                           const SafetensorsFile& other) {
  std::vector<std::string> only;
  for (const TensorSpec& spec : file.tensors()) {
    const TensorSpec* const match = other.find(spec.name);
    if (match == nullptr || *match != spec) only.push_back(to_string(spec));
  }
  return only;
}

std::string percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  return format_number(100.0 * static_cast<double>(part) / static_cast<double>(whole), 3) + " %";
}

std::string format_names(const char* title, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += std::string(title) + printable(name) + "\n";
  return text;
}

}  // namespace

double TensorDiff::relative_change() const {
  if (rms_change == 0) return 0;
  return rms_before > 0 ? rms_change / rms_before : std::numeric_limits<double>::infinity();
}

Result<CheckpointDiff> diff_checkpoints(const run::RunLayout& layout, const std::string& from,
                                        const std::string& to) {
  STOKER_ASSIGN_OR_RETURN(const auto first, select_checkpoint(layout, from));
  STOKER_ASSIGN_OR_RETURN(const auto second, select_checkpoint(layout, to));
  STOKER_ASSIGN_OR_RETURN(const auto before, open_model(first.path));
  STOKER_ASSIGN_OR_RETURN(const auto after, open_model(second.path));
  CheckpointDiff diff{.from_step = first.step, .to_step = second.step};
  for (const TensorSpec& spec : before->tensors()) {
    const TensorSpec* const match = after->find(spec.name);
    if (match == nullptr || *match != spec) continue;
    STOKER_ASSIGN_OR_RETURN(const auto was, read_values(*before, spec));
    STOKER_ASSIGN_OR_RETURN(const auto is, read_values(*after, spec));
    diff.tensors.push_back(compare(spec, was, is));
  }
  diff.only_before = unmatched_tensors(*before, *after);
  diff.only_after = unmatched_tensors(*after, *before);
  std::ranges::stable_sort(diff.tensors, std::ranges::greater(), &TensorDiff::relative_change);
  return diff;
}

std::string render_diff(const CheckpointDiff& diff, size_t rows, const TextStyle& style) {
  TextTable table({{.title = "tensor", .left = true},
                   {.title = "changed\nelements"},
                   {.title = "relative\nchange"},
                   {.title = "rms of\nchange", .can_drop = true},
                   {.title = "largest\nchange", .can_drop = true},
                   {.title = "nonfinite", .can_drop = true}});
  uint64_t elements = 0;
  uint64_t num_changed = 0;
  uint64_t num_nonfinite = 0;
  for (const TensorDiff& tensor : diff.tensors) {
    const auto size = static_cast<uint64_t>(tensor.spec.elements());
    elements += size;
    num_changed += tensor.num_changed;
    num_nonfinite += tensor.num_nonfinite;
    if (rows > 0 && table.rows() == rows) continue;
    table.add({printable(to_string(tensor.spec)), percent(tensor.num_changed, size),
               format_rate(tensor.relative_change()), format_rate(tensor.rms_change),
               format_rate(tensor.largest_change), format_count(tensor.num_nonfinite)});
  }
  std::string out = "step " + format_count(diff.from_step) + " to step " +
                    format_count(diff.to_step) + ": " + percent(num_changed, elements) + " of " +
                    format_count(elements) + " elements changed, in " +
                    format_count(diff.tensors.size()) + " tensors\n";
  if (num_nonfinite > 0) out += format_count(num_nonfinite) + " elements are nonfinite\n";
  out += format_names("only before: ", diff.only_before) +
         format_names("only after:  ", diff.only_after);
  if (table.rows() == 0) return out;
  out += "\n" + table.render(style);
  if (table.rows() < diff.tensors.size())
    out += "and " + format_count(diff.tensors.size() - table.rows()) +
           " with smaller changes (use --all to show them)\n";
  return out;
}

std::string to_json(const CheckpointDiff& diff) {
  namespace json = boost::json;
  const auto number = [](double value) -> json::value {
    if (std::isfinite(value)) return value;
    return nullptr;
  };
  json::array tensors;
  for (const TensorDiff& tensor : diff.tensors) {
    tensors.push_back(json::object{{"name", tensor.spec.name},
                                   {"elements", tensor.spec.elements()},
                                   {"changed", tensor.num_changed},
                                   {"relative_change", number(tensor.relative_change())},
                                   {"rms_before", number(tensor.rms_before)},
                                   {"rms_change", number(tensor.rms_change)},
                                   {"largest_change", number(tensor.largest_change)},
                                   {"num_nonfinite", tensor.num_nonfinite}});
  }
  return json::serialize(
      json::object{{"from_step", diff.from_step},
                   {"to_step", diff.to_step},
                   {"tensors", std::move(tensors)},
                   {"only_before", json::array(diff.only_before.begin(), diff.only_before.end())},
                   {"only_after", json::array(diff.only_after.begin(), diff.only_after.end())}});
}

}  // namespace stoker::ctl
