// PickleReader: what a pickle of PyTorch's holds, without Python.
//
// A pickle is a program for a stack machine, and Python runs whatever it names. This machine knows
// the few instructions and names that tensors, and plain values beside them, need: those that
// torch.load(weights_only=True) takes for them. Everything else is refused by its name, and a name
// is a word here, never something that is called.
//
// Threads: functions of their arguments.
// Errors:  kCorrupt: an instruction or a name that is not known, a stack that does not fit, an
//          end inside an instruction, a tensor that lies beyond its storage; with the byte of the
//          pickle. Memory is in proportion to the pickle, and bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::checkpoint {

// The instructions of a pickle that PyTorch's files are made of (protocol 2).
namespace op {

inline constexpr uint8_t kProto = 0x80, kStop = '.', kMark = '(', kPop = '0';
inline constexpr uint8_t kNone = 'N', kNewTrue = 0x88, kNewFalse = 0x89;
inline constexpr uint8_t kBinInt = 'J', kBinInt1 = 'K', kBinInt2 = 'M', kLong1 = 0x8a;
inline constexpr uint8_t kBinFloat = 'G', kBinUnicode = 'X', kShortBinString = 'U';
inline constexpr uint8_t kEmptyTuple = ')', kTuple = 't';
inline constexpr uint8_t kTuple1 = 0x85, kTuple2 = 0x86, kTuple3 = 0x87;
inline constexpr uint8_t kEmptyList = ']', kAppend = 'a', kAppends = 'e';
inline constexpr uint8_t kEmptyDict = '}', kSetItem = 's', kSetItems = 'u';
inline constexpr uint8_t kBinGet = 'h', kLongBinGet = 'j', kBinPut = 'q', kLongBinPut = 'r';
inline constexpr uint8_t kGlobal = 'c', kBinPersId = 'Q', kReduce = 'R', kBuild = 'b';

}  // namespace op

// Bytes beside the pickle, in a member of their own.
struct PickledStorage {
  std::string key;             // of the member "data/KEY"
  std::optional<DType> dtype;  // nullopt: bytes, and each tensor says what they are
  uint64_t elements = 0;       // bytes where there is no dtype
};

// A view of a storage.
struct PickledTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements, none negative
  int64_t offset = 0;            // in elements
  size_t storage = 0;            // of Pickle::storages
};

struct PickleValue {
  enum class Type {
    kNothing,
    kBool,
    kInt,
    kText,
    kTuple,
    kList,
    kDict,
    kName,     // of a type or function
    kStorage,  // number: of Pickle::storages
    kTensor,   // number: of Pickle::tensors
    kOther     // a float, a very large number: nothing that a tensor needs
  };
  Type type = Type::kNothing;
  int64_t number = 0;
  std::string text;             // of a text or name
  std::vector<uint32_t> items;  // of Pickle::values; of a dict: key, value, key, value
};

// A value may be part of several others, and of itself.
struct Pickle {
  std::vector<PickleValue> values;
  std::vector<PickledStorage> storages;
  std::vector<PickledTensor> tensors;
  uint32_t root = 0;  // of values
};

Result<Pickle> read_pickle(std::span<const std::byte> bytes);

// The names of types and functions in PyTorch's pickles, and what they stand for: a table, behind
// which nothing is called.
//
// Errors:  kCorrupt: arguments that do not fit, a tensor that lies beyond its storage.
bool is_allowed_global(std::string_view name);  // "torch._utils._rebuild_tensor_v2"
// The type of storage in which PyTorch keeps a dtype: "FloatStorage"; empty: it has none, and the
// tensor says its dtype itself.
std::string_view storage_type_name(DType dtype);
// "torch.uint16"
std::string_view torch_dtype_name(DType dtype);

// What a persistent id refers to: ("storage", type, key, place, elements).
Result<PickledStorage> parse_storage(const Pickle& pickle, const PickleValue& id);

// What the function gives for these arguments.
struct ReduceResult {
  std::optional<uint32_t> maybe_same;  // one of its arguments, as it is; else:
  PickleValue value;
};
// Adds to pickle.tensors.
Result<ReduceResult> apply_reduce(Pickle& pickle, std::string_view function,
                                  const std::vector<uint32_t>& arguments);

// A name in a message: what could move a terminal's cursor replaced, cut where it is long.
std::string printable(std::string_view name);

}  // namespace stoker::checkpoint
