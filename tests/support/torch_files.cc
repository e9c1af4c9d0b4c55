#include "tests/support/torch_files.h"

#include "tests/support/numpy_files.h"
#include "tests/support/packed_bytes.h"

namespace stoker::test::torch_files {
namespace {

std::string integer_tuple(const std::vector<int64_t>& values) {
  std::vector<std::string> items;
  for (const int64_t value : values) items.push_back(long_number(value));
  return tuple(items);
}

std::string call_torch_utils(const char* function, std::vector<std::string> arguments) {
  return call(name("torch._utils", function), arguments);
}

}  // namespace

std::string text(const std::string& text) { return "X" + little_endian(text.size(), 4) + text; }
std::string number(int64_t value) { return "J" + little_endian(static_cast<uint64_t>(value), 4); }
std::string long_number(int64_t value) {
  return "\x8a\x08" + little_endian(static_cast<uint64_t>(value), 8);
}
std::string name(const std::string& module, const std::string& word) {
  return "c" + module + "\n" + word + "\n";
}

std::string tuple(const std::vector<std::string>& items) {
  std::string opcodes = "(";
  for (const std::string& item : items) opcodes += item;
  return opcodes + "t";
}

std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string opcodes = "}(";
  for (const auto& [key, value] : items) opcodes += key + value;
  return opcodes + "u";
}

std::string call(const std::string& function, const std::vector<std::string>& arguments) {
  return function + tuple(arguments) + "R";
}

std::string ordered_dict(const std::vector<std::pair<std::string, std::string>>& items) {
  return call(name("collections", "OrderedDict"), {}) + dict(items).substr(1);
}

std::string storage(const std::string& type, const std::string& key, int64_t elements) {
  const std::string module = type == "UntypedStorage" ? "torch.storage" : "torch";
  return tuple(
             {text("storage"), name(module, type), text(key), text("cpu"), long_number(elements)}) +
         "Q";
}

std::string tensor(const std::string& type, const std::string& key, int64_t elements,
                   int64_t offset, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides) {
  return call_torch_utils("_rebuild_tensor_v2",
                          {storage(type, key, elements), long_number(offset), integer_tuple(shape),
                           integer_tuple(strides), "\x89", ordered_dict({})});
}

std::string raw_tensor(const std::string& dtype, const std::string& key, int64_t bytes,
                       int64_t offset, const std::vector<int64_t>& shape,
                       const std::vector<int64_t>& strides) {
  return call_torch_utils(
      "_rebuild_tensor_v3",
      {storage("UntypedStorage", key, bytes), long_number(offset), integer_tuple(shape),
       integer_tuple(strides), "\x89", ordered_dict({}), name("torch", dtype)});
}

std::string parameter(const std::string& tensor) {
  return call_torch_utils("_rebuild_parameter", {tensor, "\x88", ordered_dict({})});
}

std::string pickled(const std::string& value) { return "\x80\x02" + value + "."; }

std::string torch_file(const std::string& pickle,
                       const std::vector<std::pair<std::string, std::string>>& storages,
                       const std::string& byte_order) {
  std::vector<std::pair<std::string, std::string>> members = {{"archive/data.pkl", pickle},
                                                              {"archive/byteorder", byte_order}};
  for (const auto& [key, bytes] : storages) members.emplace_back("archive/data/" + key, bytes);
  members.emplace_back("archive/version", "3\n");
  return zip(members, /*deflated=*/false);
}

}  // namespace stoker::test::torch_files
