// pickle: parses the pickles of PyTorch files without Python.
//
// A pickle is a program for a stack machine, and Python calls any function that it references. This
// machine supports only the opcodes and globals that tensors and plain values next to them need,
// which are those that torch.load(weights_only=True) accepts for them. Everything else is rejected
// with its name. A global is only compared as text and never called.
//
// Threads:  pure functions.
// Errors:   kCorrupt, with the offset in the pickle: an unknown opcode or global, an invalid stack,
//           a truncated opcode, a tensor outside its storage. Memory use is proportional to the
//           size of the pickle, and bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::checkpoint {

// The opcodes used by PyTorch's pickles (protocol 2).
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

// Data stored outside the pickle, in a separate archive member.
struct PickledStorage {
  std::string key;             // the member is "data/KEY"
  std::optional<DType> dtype;  // nullopt: untyped, each tensor has its own dtype
  uint64_t elements = 0;       // bytes if there is no dtype
};

// A view of a storage.
struct PickledTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements, nonnegative
  int64_t offset = 0;            // in elements
  size_t storage = 0;            // index into Pickle::storages
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
    kStorage,  // number: index into Pickle::storages
    kTensor,   // number: index into Pickle::tensors
    kOther     // a float or a very large integer, which tensors do not need
  };
  Type type = Type::kNothing;
  int64_t number = 0;
  std::string text;             // of a text or name
  std::vector<uint32_t> items;  // indices into Pickle::values; of a dict: key, value, key, value
};

// A value can be an element of several others, and of itself.
struct Pickle {
  std::deque<PickleValue> values;  // does not double its memory to grow
  std::vector<PickledStorage> storages;
  std::vector<PickledTensor> tensors;
  size_t num_dimensions = 0;  // of all tensors
  uint32_t root = 0;          // index into values
};

Result<Pickle> read_pickle(std::span<const std::byte> bytes);

// Globals in PyTorch's pickles and their meaning: a table lookup, nothing is called.
//
// Errors:   kCorrupt: invalid arguments, a tensor outside its storage.
bool is_allowed_global(std::string_view name);  // "torch._utils._rebuild_tensor_v2"
// Name of PyTorch's storage type for a dtype: "FloatStorage". Empty: there is none, and the tensor
// has its own dtype.
std::string_view storage_type_name(DType dtype);
// "torch.uint16"
std::string_view torch_dtype_name(DType dtype);

// The storage that a persistent id refers to: ("storage", type, key, location, elements).
Result<PickledStorage> parse_storage(const Pickle& pickle, const PickleValue& id);

// Result of a function call.
struct ReduceResult {
  // Index of the argument that is returned unchanged; otherwise `value` is set.
  std::optional<uint32_t> maybe_same;
  PickleValue value;
};
// Can add to pickle.tensors.
Result<ReduceResult> apply_reduce(Pickle& pickle, std::string_view function,
                                  const std::vector<uint32_t>& arguments);

// A name for messages: control characters are replaced, long names truncated.
std::string printable(std::string_view name);

}  // namespace stoker::checkpoint
