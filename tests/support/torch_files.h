// Builds files in the format of torch.save without PyTorch, also malformed ones.
//
//   torch_file(pickled(dict({{text("w"), tensor("FloatStorage", "0", 2, 0, {2}, {1})}})),
//              {{"0", bytes_of<float>({1, 2})}})
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stoker::test::torch_files {

// Pickle opcodes that leave one value on the stack of the pickle machine.
std::string text(const std::string& text);
std::string number(int64_t value);  // at most 32 bits
std::string long_number(int64_t value);
std::string name(const std::string& module, const std::string& word);
std::string tuple(const std::vector<std::string>& items);
std::string dict(const std::vector<std::pair<std::string, std::string>>& items);
std::string call(const std::string& function, const std::vector<std::string>& arguments);
std::string ordered_dict(const std::vector<std::pair<std::string, std::string>>& items);
// `type` is a storage type of PyTorch, such as "FloatStorage".
std::string storage(const std::string& type, const std::string& key, int64_t elements);
std::string tensor(const std::string& type, const std::string& key, int64_t elements,
                   int64_t offset, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides);
// For a dtype without a storage type, such as "uint16".
std::string raw_tensor(const std::string& dtype, const std::string& key, int64_t bytes,
                       int64_t offset, const std::vector<int64_t>& shape,
                       const std::vector<int64_t>& strides);
std::string parameter(const std::string& tensor);

// The complete pickle of one value.
std::string pickled(const std::string& value);
// The archive; `storages` are pairs of key and bytes.
std::string torch_file(const std::string& pickle,
                       const std::vector<std::pair<std::string, std::string>>& storages,
                       const std::string& byte_order = "little");

}  // namespace stoker::test::torch_files
