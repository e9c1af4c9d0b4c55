#include "shared/checkpoint/pickle_globals.h"

#include <algorithm>
#include <array>
#include <limits>

namespace stoker::checkpoint {
namespace {

using Type = PickleValue::Type;
using namespace std::string_view_literals;

struct DTypeNames {
  DType dtype;
  std::string_view storage;  // empty: PyTorch has no type of storage for it
  std::string_view torch;
};
constexpr std::array<DTypeNames, 11> kDTypes{{{DType::kF64, "DoubleStorage", "torch.float64"},
                                              {DType::kF32, "FloatStorage", "torch.float32"},
                                              {DType::kF16, "HalfStorage", "torch.float16"},
                                              {DType::kBF16, "BFloat16Storage", "torch.bfloat16"},
                                              {DType::kI64, "LongStorage", "torch.int64"},
                                              {DType::kI32, "IntStorage", "torch.int32"},
                                              {DType::kI16, "ShortStorage", "torch.int16"},
                                              {DType::kI8, "CharStorage", "torch.int8"},
                                              {DType::kU8, "ByteStorage", "torch.uint8"},
                                              {DType::kBool, "BoolStorage", "torch.bool"},
                                              {DType::kU16, "", "torch.uint16"}}};

constexpr std::string_view kTorch = "torch.";
constexpr std::string_view kRawStorage = "torch.storage.UntypedStorage";
constexpr std::string_view kTensorV1 = "torch._utils._rebuild_tensor";
constexpr std::string_view kTensorV2 = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kTensorV3 = "torch._utils._rebuild_tensor_v3";
constexpr std::string_view kParameter = "torch._utils._rebuild_parameter";
constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::string_view kCounter = "collections.Counter";
constexpr std::string_view kSize = "torch.Size";
constexpr std::string_view kDevice = "torch.device";
constexpr auto kFunctions = std::to_array(
    {kTensorV1, kTensorV2, kTensorV3, kParameter, kOrderedDict, kCounter, kSize, kDevice});

constexpr size_t kMaxDimensions = 64;  // of PyTorch
// What a few bytes of a pickle may make again and again.
constexpr size_t kMaxTensors = 200'000;
constexpr size_t kMaxKey = 64;
constexpr size_t kShown = 100;

Status corrupt(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

const DTypeNames* find_storage_type(std::string_view name) {
  if (!name.starts_with(kTorch)) return nullptr;
  name.remove_prefix(kTorch.size());
  const auto* const found = std::ranges::find(kDTypes, name, &DTypeNames::storage);
  return found == kDTypes.end() || name.empty() ? nullptr : found;
}
const DTypeNames* find_dtype(std::string_view name) {
  const auto* const found = std::ranges::find(kDTypes, name, &DTypeNames::torch);
  return found == kDTypes.end() ? nullptr : found;
}

Result<std::vector<int64_t>> counts_of(const Pickle& pickle, const PickleValue& tuple,
                                       const char* what) {
  if (tuple.type != Type::kTuple) return corrupt(std::string("a tensor without ") + what);
  if (tuple.items.size() > kMaxDimensions) return corrupt("a tensor of too many dimensions");
  std::vector<int64_t> counts;
  for (const uint32_t item : tuple.items) {
    const PickleValue& value = pickle.values[item];
    if (value.type != Type::kInt || value.number < 0)
      return corrupt(std::string("a tensor whose ") + what + " is no count");
    counts.push_back(value.number);
  }
  return counts;
}

// The product of the shape, where bytes in that number still fit 63 bits.
std::optional<int64_t> checked_elements(const PickledTensor& tensor) {
  int64_t count = 1;
  for (const int64_t extent : tensor.shape)
    if (__builtin_mul_overflow(count, extent, &count)) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(count, dtype_bytes(tensor.dtype), &bytes)) return std::nullopt;
  return count;
}

// Whether every element is inside a storage of so many.
bool fits(const PickledTensor& tensor, uint64_t elements) {
  int64_t last = tensor.offset;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    int64_t way = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &way) ||
        __builtin_add_overflow(last, way, &last))
      return false;
  }
  return static_cast<uint64_t>(last) < elements;
}

Result<ReduceResult> make_tensor(Pickle& pickle, const std::vector<uint32_t>& arguments,
                                 bool says_dtype) {
  if (arguments.size() < 4 || (says_dtype && arguments.size() < 7))
    return corrupt("a tensor with too few arguments");
  const PickleValue& of = pickle.values[arguments[0]];
  const PickleValue& offset = pickle.values[arguments[1]];
  if (of.type != Type::kStorage) return corrupt("a tensor without a storage");
  if (offset.type != Type::kInt || offset.number < 0)
    return corrupt("a tensor whose offset is no count");
  PickledTensor tensor{.offset = offset.number, .storage = static_cast<size_t>(of.number)};
  STOKER_ASSIGN_OR_RETURN(tensor.shape, counts_of(pickle, pickle.values[arguments[2]], "shape"));
  STOKER_ASSIGN_OR_RETURN(tensor.strides,
                          counts_of(pickle, pickle.values[arguments[3]], "strides"));
  if (tensor.shape.size() != tensor.strides.size())
    return corrupt("a tensor with " + std::to_string(tensor.shape.size()) + " extents and " +
                   std::to_string(tensor.strides.size()) + " strides");
  const PickledStorage& storage = pickle.storages[tensor.storage];
  const DTypeNames* const said =
      says_dtype ? find_dtype(pickle.values[arguments[6]].text) : nullptr;
  if (storage.dtype.has_value() == says_dtype || (says_dtype && said == nullptr))
    return corrupt("a tensor without a dtype");
  tensor.dtype = says_dtype ? said->dtype : *storage.dtype;
  const uint64_t stored =
      says_dtype ? storage.elements / dtype_bytes(tensor.dtype) : storage.elements;
  const auto elements = checked_elements(tensor);
  if (!elements) return corrupt("a tensor whose shape overflows 63 bits");
  if (*elements > 0 && !fits(tensor, stored))
    return corrupt("a tensor that lies beyond the " + std::to_string(stored) +
                   " elements of its storage");
  if (pickle.tensors.size() == kMaxTensors)
    return corrupt("more than " + std::to_string(kMaxTensors) + " tensors");
  pickle.tensors.push_back(std::move(tensor));
  const auto index = static_cast<int64_t>(pickle.tensors.size()) - 1;
  return ReduceResult{.value = {.type = Type::kTensor, .number = index}};
}

// One argument of a kind, which is the result.
Result<ReduceResult> same(const Pickle& pickle, const std::vector<uint32_t>& arguments, Type type,
                          std::string_view function) {
  if (arguments.empty() || pickle.values[arguments[0]].type != type)
    return corrupt(std::string(function) + " with arguments that do not fit");
  return ReduceResult{.maybe_same = arguments[0], .value = {}};
}

}  // namespace

bool is_allowed_global(std::string_view name) {
  return std::ranges::count(kFunctions, name) > 0 || name == kRawStorage ||
         find_storage_type(name) != nullptr || find_dtype(name) != nullptr;
}

std::string_view storage_type_name(DType dtype) {
  const auto* const found = std::ranges::find(kDTypes, dtype, &DTypeNames::dtype);
  return found == kDTypes.end() ? ""sv : found->storage;
}

std::string_view torch_dtype_name(DType dtype) {
  const auto* const found = std::ranges::find(kDTypes, dtype, &DTypeNames::dtype);
  return found == kDTypes.end() ? ""sv : found->torch;
}

Result<PickledStorage> parse_storage(const Pickle& pickle, const PickleValue& id) {
  const auto part = [&](size_t i, Type type) -> const PickleValue* {
    const PickleValue& value = pickle.values[id.items[i]];
    return value.type == type ? &value : nullptr;
  };
  if (id.type != Type::kTuple || id.items.size() != 5) return corrupt("a reference to no storage");
  const PickleValue* const word = part(0, Type::kText);
  const PickleValue* const type = part(1, Type::kName);
  const PickleValue* const key = part(2, Type::kText);
  const PickleValue* const elements = part(4, Type::kInt);
  if (word == nullptr || word->text != "storage" || type == nullptr || key == nullptr ||
      elements == nullptr || elements->number < 0 || key->text.size() > kMaxKey)
    return corrupt("a reference to no storage");
  PickledStorage storage{.key = key->text, .elements = static_cast<uint64_t>(elements->number)};
  if (const DTypeNames* const found = find_storage_type(type->text)) {
    storage.dtype = found->dtype;
  } else if (type->text != kRawStorage) {
    return corrupt("a storage of type " + printable(type->text));
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(storage.elements, storage.dtype ? dtype_bytes(*storage.dtype) : 1,
                             &bytes) ||
      bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return corrupt("a storage of more than 63 bits of bytes");
  return storage;
}

Result<ReduceResult> apply_reduce(Pickle& pickle, std::string_view function,
                                  const std::vector<uint32_t>& arguments) {
  if (function == kTensorV1 || function == kTensorV2) return make_tensor(pickle, arguments, false);
  if (function == kTensorV3) return make_tensor(pickle, arguments, true);
  if (function == kParameter) return same(pickle, arguments, Type::kTensor, function);
  if (function == kSize) return same(pickle, arguments, Type::kTuple, function);
  if (function == kDevice) return same(pickle, arguments, Type::kText, function);
  const bool is_dict = function == kOrderedDict || function == kCounter;
  if (is_dict && arguments.empty()) return ReduceResult{.value = {.type = Type::kDict}};
  if (is_dict) return same(pickle, arguments, Type::kDict, function);
  return corrupt(printable(function) + " is no function");
}

std::string printable(std::string_view name) {
  std::string text(name.substr(0, kShown));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return text + (name.size() > kShown ? "…" : "");
}

}  // namespace stoker::checkpoint
