#include "shared/checkpoint/tensor_pickle.h"

#include <string_view>

#include "shared/checkpoint/pickle_globals.h"
#include "shared/checkpoint/pickle_op.h"

namespace stoker::checkpoint {
namespace {

constexpr std::string_view kTorch = "torch.";

// Appends instructions, each of which leaves a value on the stack unless it says otherwise.
class PickleWriter {
 public:
  PickleWriter() { op(op::kProto).bytes(2, 1); }

  PickleWriter& op(uint8_t code) {
    text_ += static_cast<char>(code);
    return *this;
  }
  PickleWriter& bytes(uint64_t value, size_t count) {
    for (size_t i = 0; i < count; ++i) text_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  PickleWriter& text(std::string_view value) {
    op(op::kBinUnicode).bytes(value.size(), 4).text_ += value;
    return *this;
  }
  // As Python writes it: the shortest that takes it.
  PickleWriter& number(uint64_t value) {
    if (value < 0x100) return op(op::kBinInt1).bytes(value, 1);
    if (value < 0x10000) return op(op::kBinInt2).bytes(value, 2);
    if (value < 0x80000000) return op(op::kBinInt).bytes(value, 4);
    return op(op::kLong1).bytes(sizeof value + 1, 1).bytes(value, sizeof value).bytes(0, 1);
  }
  PickleWriter& name(std::string_view module, std::string_view word) {
    op(op::kGlobal).text_ += std::string(module) + '\n' + std::string(word) + '\n';
    return *this;
  }
  PickleWriter& numbers(const std::vector<int64_t>& values) {
    op(op::kMark);
    for (const int64_t value : values) number(static_cast<uint64_t>(value));
    return op(op::kTuple);
  }
  PickleWriter& tensor(const TensorSpec& spec, size_t storage);
  std::string finish() { return std::move(op(op::kStop).text_); }

 private:
  std::string text_;
};

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) {
    // As PyTorch: an extent of 0 counts as 1. Beyond 63 bits nothing is stored, and nothing counts.
    const int64_t extent = shape[i] > 0 ? shape[i] : 1;
    if (__builtin_mul_overflow(strides[i], extent, &strides[i - 1])) strides[i - 1] = 1;
  }
  return strides;
}

// torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict()); where PyTorch has
// no type of storage for the dtype, _v3 of a storage of bytes, with the dtype behind it.
PickleWriter& PickleWriter::tensor(const TensorSpec& spec, size_t storage) {
  const std::string_view type = storage_type_name(spec.dtype);
  const bool is_typed = !type.empty();
  name("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  op(op::kMark).op(op::kMark).text("storage");
  name(is_typed ? "torch" : "torch.storage", is_typed ? type : "UntypedStorage");
  text(std::to_string(storage)).text("cpu");
  number(is_typed ? static_cast<uint64_t>(spec.elements()) : spec.bytes());
  op(op::kTuple).op(op::kBinPersId).number(0);
  numbers(spec.shape).numbers(strides_of(spec.shape)).op(op::kNewFalse);
  name("collections", "OrderedDict").op(op::kEmptyTuple).op(op::kReduce);
  if (!is_typed) name("torch", torch_dtype_name(spec.dtype).substr(kTorch.size()));
  return op(op::kTuple).op(op::kReduce);
}

void put_dict(PickleWriter& pickle, const std::vector<TensorSpec>& tensors, size_t first_storage) {
  pickle.op(op::kEmptyDict).op(op::kMark);
  for (const TensorSpec& spec : tensors) pickle.text(spec.name).tensor(spec, first_storage++);
  pickle.op(op::kSetItems);
}

}  // namespace

std::string pickle_tensors(const std::vector<TensorSpec>& tensors) {
  PickleWriter pickle;
  put_dict(pickle, tensors, 0);
  return pickle.finish();
}

std::string pickle_parts(const std::vector<PickledPart>& parts, uint64_t step) {
  PickleWriter pickle;
  size_t storage = 0;
  pickle.op(op::kEmptyDict).op(op::kMark);
  for (const PickledPart& part : parts) {
    pickle.text(part.name);
    put_dict(pickle, part.tensors, storage);
    storage += part.tensors.size();
  }
  pickle.text("step").number(step).op(op::kSetItems);
  return pickle.finish();
}

}  // namespace stoker::checkpoint
