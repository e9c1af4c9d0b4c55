#include "shared/checkpoint/pickle.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <utility>

#include "shared/checkpoint/tensor_source.h"

namespace stoker::checkpoint {
namespace {

using Type = PickleValue::Type;

// Bound what few bytes of a pickle can create.
constexpr size_t kMaxValues = 2'000'000;
constexpr size_t kMaxReferences = 2 * kMaxValues;  // to values of the memo
constexpr size_t kMaxMarks = 1000;                 // the depth at which Python stops
constexpr size_t kMaxGlobalName = 256;             // of a type or function
constexpr uint8_t kMaxProtocol = 5;

std::string hex_of(uint8_t op) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'0', 'x', kDigits[op >> 4], kDigits[op & 15]};
}

class PickleReader {
 public:
  explicit PickleReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  Result<Pickle> run() {
    while (true) {
      opcode_offset_ = at_;
      STOKER_ASSIGN_OR_RETURN(const uint64_t op, number(1));
      if (op == op::kStop) break;
      STOKER_RETURN_IF_ERROR(step(static_cast<uint8_t>(op)));
    }
    STOKER_ASSIGN_OR_RETURN(pickle_.root, pop());
    if (!stack_.empty() || !marks_.empty()) return corrupt("has more than one value at the end");
    if (at_ != bytes_.size()) return corrupt("has trailing bytes");
    return std::move(pickle_);
  }

 private:
  Status corrupt(const std::string& what) const {
    return Status(StatusCode::kCorrupt,
                  "pickle: byte " + std::to_string(opcode_offset_) + ": " + what);
  }
  Result<std::string_view> read_bytes(uint64_t count) {
    if (count > bytes_.size() - at_) return corrupt("truncated opcode");
    const auto* const text = reinterpret_cast<const char*>(bytes_.data()) + at_;
    at_ += count;
    return std::string_view(text, count);
  }
  Result<uint64_t> number(size_t count) {
    STOKER_ASSIGN_OR_RETURN(const std::string_view text, read_bytes(count));
    uint64_t value = 0;
    for (size_t i = count; i > 0; --i) value = value << 8 | static_cast<unsigned char>(text[i - 1]);
    return value;
  }
  Result<std::string_view> line() {
    const auto* const text = reinterpret_cast<const char*>(bytes_.data());
    const std::string_view rest =
        std::string_view(text, bytes_.size()).substr(at_, kMaxGlobalName + 1);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) return corrupt("unterminated name");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  Status push(PickleValue value) {
    if (pickle_.values.size() == kMaxValues)
      return corrupt("more than " + std::to_string(kMaxValues) + " values");
    stack_.push_back(static_cast<uint32_t>(pickle_.values.size()));
    pickle_.values.push_back(std::move(value));
    return {};
  }
  Status push_number(int64_t value) { return push({.type = Type::kInt, .number = value}); }
  Status push_text(std::string_view text) {
    return push({.type = Type::kText, .text = std::string(text)});
  }
  // Values above the last mark belong to the opcode that consumes the mark.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Result<uint32_t> pop() {
    if (stack_.size() <= floor()) return corrupt("stack underflow");
    const uint32_t value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Result<std::vector<uint32_t>> pop_some(size_t count) {
    if (stack_.size() - floor() < count) return corrupt("stack underflow");
    std::vector<uint32_t> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  Result<std::vector<uint32_t>> pop_to_mark() {
    if (marks_.empty()) return corrupt("no mark on the stack");
    auto items = pop_some(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }
  Result<PickleValue*> top(Type type, const char* what) {
    if (stack_.size() <= floor() || value(stack_.back()).type != type)
      return corrupt(std::string("expected a ") + what);
    return &value(stack_.back());
  }
  PickleValue& value(uint32_t index) { return pickle_.values[index]; }

  // ---- Opcodes

  Status step(uint8_t op) {
    switch (op) {
      case op::kProto:
        return read_protocol();
      case op::kMark:
        if (marks_.size() == kMaxMarks)
          return corrupt("more than " + std::to_string(kMaxMarks) + " nested values");
        marks_.push_back(stack_.size());
        return {};
      case op::kPop:
        return pop().status();
      case op::kNone:
        return push({});
      case op::kNewTrue:
      case op::kNewFalse:
        return push({.type = Type::kBool, .number = op == op::kNewTrue ? 1 : 0});
      case op::kEmptyTuple:
        return push({.type = Type::kTuple});
      case op::kEmptyList:
        return push({.type = Type::kList});
      case op::kEmptyDict:
        return push({.type = Type::kDict});
      default:
        return step_with_bytes(op);
    }
  }
  Status step_with_bytes(uint8_t op) {
    switch (op) {
      case op::kBinInt:
      case op::kBinInt1:
      case op::kBinInt2:
      case op::kLong1:
      case op::kBinFloat:
        return read_number(op);
      case op::kBinUnicode:
      case op::kShortBinString:
        return read_text(op == op::kBinUnicode ? 4 : 1);
      case op::kGlobal:
        return read_name();
      case op::kBinGet:
      case op::kLongBinGet:
        return get(op == op::kBinGet ? 1 : 4);
      case op::kBinPut:
      case op::kLongBinPut:
        return put(op == op::kBinPut ? 1 : 4);
      default:
        return step_on_stack(op);
    }
  }
  Status step_on_stack(uint8_t op) {
    switch (op) {
      case op::kTuple:
        return push_tuple(pop_to_mark());
      case op::kTuple1:
      case op::kTuple2:
      case op::kTuple3:
        return push_tuple(pop_some(static_cast<size_t>(op - op::kTuple1) + 1));
      case op::kAppend:
        return append(pop_some(1));
      case op::kAppends:
        return append(pop_to_mark());
      case op::kSetItem:
        return set_items(pop_some(2));
      case op::kSetItems:
        return set_items(pop_to_mark());
      case op::kBinPersId:
        return load_storage();
      case op::kReduce:
        return reduce();
      case op::kBuild:
        return build();
      default:
        return corrupt("instruction " + hex_of(op) +
                       " is not one that torch.save writes by default");
    }
  }

  Status read_protocol() {
    STOKER_ASSIGN_OR_RETURN(const uint64_t protocol, number(1));
    if (protocol <= kMaxProtocol) return {};
    return corrupt("protocol " + std::to_string(protocol) + " does not exist");
  }
  Status read_number(uint8_t op) {
    if (op == op::kBinInt) {
      STOKER_ASSIGN_OR_RETURN(const uint64_t bits, number(4));
      return push_number(static_cast<int32_t>(static_cast<uint32_t>(bits)));
    }
    if (op == op::kBinFloat) {
      STOKER_RETURN_IF_ERROR(read_bytes(8).status());
      return push({.type = Type::kOther});
    }
    if (op == op::kLong1) return read_long();
    STOKER_ASSIGN_OR_RETURN(const uint64_t small, number(op == op::kBinInt1 ? 1 : 2));
    return push_number(static_cast<int64_t>(small));
  }
  // Two's complement, variable length.
  Status read_long() {
    STOKER_ASSIGN_OR_RETURN(const uint64_t count, number(1));
    STOKER_ASSIGN_OR_RETURN(const std::string_view bytes, read_bytes(count));
    if (count > sizeof(int64_t)) return push({.type = Type::kOther});
    const bool is_negative = count > 0 && static_cast<unsigned char>(bytes.back()) >= 0x80;
    uint64_t bits = is_negative ? ~uint64_t{0} : 0;
    for (size_t i = count; i > 0; --i) bits = bits << 8 | static_cast<unsigned char>(bytes[i - 1]);
    return push_number(static_cast<int64_t>(bits));
  }
  Status read_text(size_t length_bytes) {
    STOKER_ASSIGN_OR_RETURN(const uint64_t length, number(length_bytes));
    STOKER_ASSIGN_OR_RETURN(const std::string_view text, read_bytes(length));
    return push_text(text);
  }
  Status read_name() {
    STOKER_ASSIGN_OR_RETURN(const std::string_view module, line());
    STOKER_ASSIGN_OR_RETURN(const std::string_view word, line());
    std::string name = std::string(module) + '.' + std::string(word);
    if (is_allowed_global(name)) return push({.type = Type::kName, .text = std::move(name)});
    return corrupt("contains " + printable(name) +
                   ", which is not supported; save only the weights, from Python: "
                   "torch.save(model.state_dict(), FILE)");
  }

  Status get(size_t index_bytes) {
    STOKER_ASSIGN_OR_RETURN(const uint64_t index, number(index_bytes));
    const auto found = memo_.find(index);
    if (found == memo_.end()) return corrupt("unknown memo index");
    if (++num_references_ > kMaxReferences)
      return corrupt("more than " + std::to_string(kMaxReferences) + " references to values");
    stack_.push_back(found->second);
    return {};
  }
  Status put(size_t index_bytes) {
    STOKER_ASSIGN_OR_RETURN(const uint64_t index, number(index_bytes));
    if (stack_.size() <= floor()) return corrupt("stack underflow");
    memo_[index] = stack_.back();
    if (memo_.size() <= kMaxValues) return {};
    return corrupt("more than " + std::to_string(kMaxValues) + " values in the memo");
  }

  Status push_tuple(Result<std::vector<uint32_t>> items) {
    if (!items.ok()) return items.status();
    return push({.type = Type::kTuple, .items = *std::move(items)});
  }
  Status append(Result<std::vector<uint32_t>> items) {
    if (!items.ok()) return items.status();
    STOKER_ASSIGN_OR_RETURN(PickleValue* const list, top(Type::kList, "list"));
    list->items.insert(list->items.end(), items->begin(), items->end());
    return {};
  }
  Status set_items(Result<std::vector<uint32_t>> items) {
    if (!items.ok()) return items.status();
    if (items->size() % 2 != 0) return corrupt("a key without a value");
    STOKER_ASSIGN_OR_RETURN(PickleValue* const dict, top(Type::kDict, "dict"));
    dict->items.insert(dict->items.end(), items->begin(), items->end());
    return {};
  }
  // Ignores the attributes of an OrderedDict (such as state_dict metadata with module versions),
  // which are not needed here.
  Status build() {
    STOKER_ASSIGN_OR_RETURN(const uint32_t state, pop());
    STOKER_RETURN_IF_ERROR(top(Type::kDict, "dict").status());
    if (value(state).type == Type::kDict) return {};
    return corrupt("attributes are not a dict");
  }

  Status load_storage() {
    STOKER_ASSIGN_OR_RETURN(const uint32_t id, pop());
    auto storage = parse_storage(pickle_, value(id));
    if (!storage.ok()) return corrupt(storage.status().message());
    if (pickle_.storages.size() == kMaxTensors)
      return corrupt("more than " + std::to_string(kMaxTensors) + " storages");
    pickle_.storages.push_back(*std::move(storage));
    return push(
        {.type = Type::kStorage, .number = static_cast<int64_t>(pickle_.storages.size()) - 1});
  }
  Status reduce() {
    STOKER_ASSIGN_OR_RETURN(const uint32_t arguments, pop());
    STOKER_ASSIGN_OR_RETURN(const uint32_t function, pop());
    if (value(function).type != Type::kName || value(arguments).type != Type::kTuple)
      return corrupt("call of a non-function");
    auto result = apply_reduce(pickle_, value(function).text, value(arguments).items);
    if (!result.ok()) return corrupt(result.status().message());
    if (result->maybe_same) {
      stack_.push_back(*result->maybe_same);
      return {};
    }
    return push(std::move(result->value));
  }

  const std::span<const std::byte> bytes_;
  size_t at_ = 0;
  size_t opcode_offset_ = 0;  // offset of the current opcode
  Pickle pickle_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // stack heights
  std::unordered_map<uint64_t, uint32_t> memo_;
  size_t num_references_ = 0;
};

}  // namespace

Result<Pickle> read_pickle(std::span<const std::byte> bytes) { return PickleReader(bytes).run(); }

namespace {

using Type = PickleValue::Type;
using namespace std::string_view_literals;

struct DTypeNames {
  DType dtype;
  std::string_view storage;  // empty: PyTorch has no storage type for it
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

// Of all tensors. A tensor of 64 dimensions is 5 bytes of a pickle that repeats it.
constexpr size_t kMaxAllDimensions = 1'000'000;
constexpr size_t kMaxKey = 64;
constexpr size_t kShown = 100;

Status pickle_error(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

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

Result<std::vector<int64_t>> read_counts(const Pickle& pickle, const PickleValue& tuple,
                                         const char* what) {
  if (tuple.type != Type::kTuple) return pickle_error(std::string("a tensor without ") + what);
  if (tuple.items.size() > kMaxDimensions) return pickle_error("a tensor with too many dimensions");
  std::vector<int64_t> counts;
  for (const uint32_t item : tuple.items) {
    const PickleValue& value = pickle.values[item];
    if (value.type != Type::kInt || value.number < 0)
      return pickle_error(std::string("a tensor whose ") + what + " is not a count");
    counts.push_back(value.number);
  }
  return counts;
}

// The product of the shape, if the size in bytes fits into 63 bits.
std::optional<int64_t> checked_elements(const PickledTensor& tensor) {
  int64_t count = 1;
  for (const int64_t extent : tensor.shape)
    if (__builtin_mul_overflow(count, extent, &count)) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(count, dtype_bytes(tensor.dtype), &bytes)) return std::nullopt;
  return count;
}

// True if every element is within a storage of `elements` elements.
bool fits(const PickledTensor& tensor, uint64_t elements) {
  int64_t last = tensor.offset;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    int64_t distance = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &distance) ||
        __builtin_add_overflow(last, distance, &last))
      return false;
  }
  return static_cast<uint64_t>(last) < elements;
}

Result<ReduceResult> make_tensor(Pickle& pickle, const std::vector<uint32_t>& arguments,
                                 bool has_dtype) {
  if (arguments.size() < 4 || (has_dtype && arguments.size() < 7))
    return pickle_error("a tensor with too few arguments");
  const PickleValue& storage_value = pickle.values[arguments[0]];
  const PickleValue& offset = pickle.values[arguments[1]];
  if (storage_value.type != Type::kStorage) return pickle_error("a tensor without a storage");
  if (offset.type != Type::kInt || offset.number < 0)
    return pickle_error("a tensor with an invalid offset");
  PickledTensor tensor{.offset = offset.number,
                       .storage = static_cast<size_t>(storage_value.number)};
  STOKER_ASSIGN_OR_RETURN(tensor.shape, read_counts(pickle, pickle.values[arguments[2]], "shape"));
  STOKER_ASSIGN_OR_RETURN(tensor.strides,
                          read_counts(pickle, pickle.values[arguments[3]], "strides"));
  if (tensor.shape.size() != tensor.strides.size())
    return pickle_error("a tensor with " + std::to_string(tensor.shape.size()) + " extents and " +
                        std::to_string(tensor.strides.size()) + " strides");
  const PickledStorage& storage = pickle.storages[tensor.storage];
  const DTypeNames* const named_dtype =
      has_dtype ? find_dtype(pickle.values[arguments[6]].text) : nullptr;
  if (storage.dtype.has_value() == has_dtype || (has_dtype && named_dtype == nullptr))
    return pickle_error("a tensor without a dtype");
  tensor.dtype = has_dtype ? named_dtype->dtype : *storage.dtype;
  const uint64_t stored =
      has_dtype ? storage.elements / dtype_bytes(tensor.dtype) : storage.elements;
  const auto elements = checked_elements(tensor);
  if (!elements) return pickle_error("a tensor whose shape overflows 63 bits");
  if (*elements > 0 && !fits(tensor, stored))
    return pickle_error("a tensor that exceeds the " + std::to_string(stored) +
                        " elements of its storage");
  if (pickle.tensors.size() == kMaxTensors)
    return pickle_error("more than " + std::to_string(kMaxTensors) + " tensors");
  pickle.num_dimensions += tensor.shape.size();
  if (pickle.num_dimensions > kMaxAllDimensions)
    return pickle_error("tensors with more than " + std::to_string(kMaxAllDimensions) +
                        " dimensions in total");
  pickle.tensors.push_back(std::move(tensor));
  const auto index = static_cast<int64_t>(pickle.tensors.size()) - 1;
  return ReduceResult{.value = {.type = Type::kTensor, .number = index}};
}

// A function that returns its argument, which must have the given type.
Result<ReduceResult> return_argument(const Pickle& pickle, const std::vector<uint32_t>& arguments,
                                     Type type, std::string_view function) {
  if (arguments.empty() || pickle.values[arguments[0]].type != type)
    return pickle_error(std::string(function) + " with invalid arguments");
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
  if (id.type != Type::kTuple || id.items.size() != 5)
    return pickle_error("invalid storage reference");
  const PickleValue* const word = part(0, Type::kText);
  const PickleValue* const type = part(1, Type::kName);
  const PickleValue* const key = part(2, Type::kText);
  const PickleValue* const elements = part(4, Type::kInt);
  if (word == nullptr || word->text != "storage" || type == nullptr || key == nullptr ||
      elements == nullptr || elements->number < 0 || key->text.size() > kMaxKey)
    return pickle_error("invalid storage reference");
  PickledStorage storage{.key = key->text, .elements = static_cast<uint64_t>(elements->number)};
  if (const DTypeNames* const found = find_storage_type(type->text)) {
    storage.dtype = found->dtype;
  } else if (type->text != kRawStorage) {
    return pickle_error("a storage of type " + printable(type->text));
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(storage.elements, storage.dtype ? dtype_bytes(*storage.dtype) : 1,
                             &bytes) ||
      bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return pickle_error("a storage whose size overflows 63 bits");
  return storage;
}

Result<ReduceResult> apply_reduce(Pickle& pickle, std::string_view function,
                                  const std::vector<uint32_t>& arguments) {
  if (function == kTensorV1 || function == kTensorV2) return make_tensor(pickle, arguments, false);
  if (function == kTensorV3) return make_tensor(pickle, arguments, true);
  if (function == kParameter) return return_argument(pickle, arguments, Type::kTensor, function);
  if (function == kSize) return return_argument(pickle, arguments, Type::kTuple, function);
  if (function == kDevice) return return_argument(pickle, arguments, Type::kText, function);
  const bool is_dict = function == kOrderedDict || function == kCounter;
  if (is_dict && arguments.empty()) return ReduceResult{.value = {.type = Type::kDict}};
  if (is_dict) return return_argument(pickle, arguments, Type::kDict, function);
  return pickle_error(printable(function) + " is not a function");
}

std::string printable(std::string_view name) {
  std::string text(name.substr(0, kShown));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return text + (name.size() > kShown ? "…" : "");
}

}  // namespace stoker::checkpoint
