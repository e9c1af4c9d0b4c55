#include "shared/checkpoint/pickle.h"
#include "tests/fuzz/file_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/support/torch_files.h"

namespace stoker::fuzz {
namespace {

using namespace test::torch_files;
using Type = checkpoint::PickleValue::Type;

// The pickle only, so that the fuzzer need not produce a zip archive. In addition to the invariants
// of file_under_test.h, all references must resolve and memory use must be proportional to the
// input.
bool run(std::string_view input) {
  const auto pickle = checkpoint::read_pickle(std::as_bytes(std::span(input)));
  if (!check_status(pickle.status())) return false;
  if (reads_once()) return true;
  check_invariant(pickle->values.size() <= input.size(), "more values than opcodes");
  check_invariant(pickle->root < pickle->values.size(), "root index out of range");
  for (const checkpoint::PickleValue& value : pickle->values) {
    for (const uint32_t item : value.items)
      check_invariant(item < pickle->values.size(), "item index out of range");
    const auto number = static_cast<size_t>(value.number);
    if (value.type == Type::kTensor)
      check_invariant(number < pickle->tensors.size(), "tensor index out of range");
    if (value.type == Type::kStorage)
      check_invariant(number < pickle->storages.size(), "storage index out of range");
    if (value.type == Type::kDict)
      check_invariant(value.items.size() % 2 == 0, "dict with a key without value");
  }
  for (const checkpoint::PickledTensor& tensor : pickle->tensors) {
    check_invariant(tensor.storage < pickle->storages.size(), "tensor without storage");
    const uint64_t elements = pickle->storages[tensor.storage].elements;
    int64_t last = tensor.offset;
    bool is_empty = false;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      is_empty = is_empty || tensor.shape[i] == 0;
      last += (tensor.shape[i] - 1) * tensor.strides[i];
    }
    check_invariant(is_empty || static_cast<uint64_t>(last) < elements,
                    "tensor exceeds its storage");
  }
  return true;
}

}  // namespace

const Format& pickle_format() {
  static constexpr Format kFormat{
      .name = "pickle", .run = run, .seeds = [] {
        return std::vector<std::string>{
            pickled(dict({{text("w"), parameter(tensor("FloatStorage", "0", 6, 1, {2, 2}, {1, 2}))},
                          {text("u"), raw_tensor("uint16", "1", 8, 0, {4}, {1})}})),
            pickled(ordered_dict({{text("n"), number(-3)}, {text("l"), long_number(1)}}) +
                    dict({{text("_metadata"), "N"}}) + "b"),
            pickled("]q" + std::string(1, '\0') + "(K\1M\2\3\x88\x89Nh" + std::string(1, '\0') +
                    "U\1xG" + std::string(8, '\1') + "e)K\1\x85K\1K\2\x86K\1K\2K\3\x87" + "0000"),
            pickled(call(name("torch", "Size"), {tuple({number(2), number(3)})}))};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
