#include "shared/model/graph_operands.h"

#include <map>
#include <optional>
#include <utility>

#include <ATen/ScalarOps.h>

namespace stoker::model {
namespace {

using Kind = graph::Argument::Kind;

Operand constant(c10::IValue value) {
  Operand operand;
  operand.constant = std::move(value);
  return operand;
}

[[noreturn]] void fail(const std::string& what) { throw OperandError(what); }

at::Scalar number_of(const graph::Argument& argument) {
  if (argument.kind == Kind::kBool) return {argument.integer != 0};
  if (argument.kind == Kind::kInt) return {argument.integer};
  if (argument.kind == Kind::kFloat) return {argument.number};
  fail("must be a number");
}

int64_t enumerator_of(const graph::Argument& argument) {
  if (argument.kind == Kind::kInt || argument.kind == Kind::kBool) return argument.integer;
  if (argument.kind == Kind::kDtype) return static_cast<int64_t>(scalar_type_named(argument.text));
  if (argument.kind == Kind::kLayout) {
    if (argument.text != "strided") fail("layout must be strided");
    return static_cast<int64_t>(at::kStrided);
  }
  if (argument.kind == Kind::kMemoryFormat) {
    static const std::map<std::string, at::MemoryFormat> kFormats = {
        {"contiguous_format", at::MemoryFormat::Contiguous},
        {"preserve_format", at::MemoryFormat::Preserve},
        {"channels_last", at::MemoryFormat::ChannelsLast},
        {"channels_last_3d", at::MemoryFormat::ChannelsLast3d}};
    const auto found = kFormats.find(argument.text);
    if (found == kFormats.end()) fail("the memory format is unknown");
    return static_cast<int64_t>(found->second);
  }
  fail("must be an integer");
}

bool is_tensor_type(const c10::TypePtr& type) { return type->kind() == c10::TypeKind::TensorType; }

Operand bind_list(const graph::Argument& argument, const c10::TypePtr& item_type) {
  Operand list;
  list.kind = Operand::Kind::kList;
  list.item_type = item_type;
  bool is_constant = true;
  const auto add = [&](const graph::Argument& item) {
    list.items.push_back(bind_operand(item, item_type));
    list.items.back().wraps_number = false;
    is_constant &= list.items.back().kind == Operand::Kind::kConstant;
  };
  if (argument.kind == Kind::kList)
    for (const graph::Argument& item : argument.items) add(item);
  else
    add(argument);  // one number where the schema has int[2]
  if (!is_constant) return list;
  std::vector<c10::IValue> values;
  for (const Operand& item : list.items) values.push_back(item.constant);
  return constant(make_list(item_type, values));
}

}  // namespace

at::ScalarType scalar_type_named(const std::string& name) {
  static const std::map<std::string, at::ScalarType> kTypes = {{"float32", at::kFloat},
                                                               {"float64", at::kDouble},
                                                               {"float16", at::kHalf},
                                                               {"int64", at::kLong},
                                                               {"bfloat16", at::kBFloat16},
                                                               {"int32", at::kInt},
                                                               {"int16", at::kShort},
                                                               {"int8", at::kChar},
                                                               {"uint8", at::kByte},
                                                               {"bool", at::kBool},
                                                               {"complex64", at::kComplexFloat}};
  const auto found = kTypes.find(name);
  if (found == kTypes.end()) fail("the dtype is unknown");
  return found->second;
}

at::Tensor wrap_number(const at::Scalar& number) {
  at::Tensor tensor = at::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

Operand bind_operand(const graph::Argument& argument, const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>())
    return argument.kind == Kind::kNone ? Operand{}
                                        : bind_operand(argument, optional->getElementType());
  if (argument.kind == Kind::kNone) {
    if (is_tensor_type(type)) return constant(at::Tensor());
    fail("must not be null");
  }
  if (argument.kind == Kind::kValue || argument.kind == Kind::kTensor) {
    Operand operand = bind_untyped(argument);
    operand.wraps_number = argument.kind == Kind::kValue && is_tensor_type(type);
    return operand;
  }
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return constant(wrap_number(number_of(argument)));
    case c10::TypeKind::NumberType:
      return constant(number_of(argument));
    case c10::TypeKind::FloatType:
      return constant(number_of(argument).toDouble());
    case c10::TypeKind::BoolType:
      if (argument.kind != Kind::kBool) fail("must be true or false");
      return constant(argument.integer != 0);
    case c10::TypeKind::StringType:
      if (argument.kind != Kind::kText) fail("must be a text");
      return constant(argument.text);
    case c10::TypeKind::DeviceObjType: {
      Operand device;
      device.kind = Operand::Kind::kDevice;
      return device;
    }
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
      return constant(enumerator_of(argument));
    case c10::TypeKind::ListType:
      return bind_list(argument, type->expectRef<c10::ListType>().getElementType());
    default:
      fail("arguments of the type " + type->str() + " are not supported");
  }
}

Operand bind_untyped(const graph::Argument& argument) {
  switch (argument.kind) {
    case Kind::kNone:
      return {};
    case Kind::kBool:
      return constant(argument.integer != 0);
    case Kind::kInt:
      return constant(argument.integer);
    case Kind::kFloat:
      return constant(argument.number);
    case Kind::kDtype:
      return constant(enumerator_of(argument));
    case Kind::kValue:
    case Kind::kTensor: {
      Operand operand;
      operand.kind = argument.kind == Kind::kValue ? Operand::Kind::kValue : Operand::Kind::kTensor;
      operand.index = argument.integer;
      return operand;
    }
    case Kind::kText:
    case Kind::kDevice:
    case Kind::kLayout:
    case Kind::kMemoryFormat:
    case Kind::kList:
      break;
  }
  fail("must be a value, a tensor or a number");
}

namespace {

template <typename T, typename Convert>
c10::IValue list_of(const std::vector<c10::IValue>& items, const Convert& convert) {
  c10::List<T> list;
  list.reserve(items.size());
  for (const c10::IValue& item : items) list.push_back(convert(item));
  return list;
}

}  // namespace

c10::IValue make_list(const c10::TypePtr& item_type, const std::vector<c10::IValue>& items) {
  using c10::IValue;
  switch (item_type->kind()) {
    case c10::TypeKind::TensorType:
      return list_of<at::Tensor>(items, [](const IValue& item) { return item.toTensor(); });
    case c10::TypeKind::OptionalType:
      return list_of<std::optional<at::Tensor>>(items, [](const IValue& item) {
        return item.isNone() ? std::nullopt : std::make_optional(item.toTensor());
      });
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return list_of<int64_t>(items, [](const IValue& item) { return item.toInt(); });
    case c10::TypeKind::FloatType:
      return list_of<double>(items, [](const IValue& item) { return item.toScalar().toDouble(); });
    case c10::TypeKind::BoolType:
      return list_of<bool>(items, [](const IValue& item) { return item.toBool(); });
    case c10::TypeKind::NumberType:
      return list_of<at::Scalar>(items, [](const IValue& item) { return item.toScalar(); });
    default:
      TORCH_CHECK(false, "lists of ", item_type->str(), " are not supported");
  }
}

}  // namespace stoker::model
